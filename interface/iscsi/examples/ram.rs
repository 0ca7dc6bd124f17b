//! An iSCSI target whose units lie in memory, for trying initiators and test programs: `ram ADDRESS MIB UNITS EXPONENT [USER SECRET]`; a physical
//! block is 2 to the power of EXPONENT blocks of 512 bytes.

use iscsi::ram::{Anybody, RamStore, RamUnit};
use iscsi::{Account, Chap, Disk, Geometry, Options, Targets, serve};
use std::sync::Arc;

const NAME: &str = "iqn.2026-11.example.zirconia:ram";

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |index: usize| arguments.get(index).cloned();
    let address = argument(0).unwrap_or_else(|| "127.0.0.1:3260".into());
    let number = |index: usize, default: u64| argument(index).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (mib, units, exponent) = (number(1, 64), number(2, 1), number(3, 3));
    let account = |name: String, secret: String| Account { name, secret: secret.into_bytes() };
    let chap = argument(4).zip(argument(5)).map(|(name, secret)| Chap { initiator: account(name, secret), target: None });
    let targets = Targets::new(Arc::new(Anybody(chap)));
    let target = targets.add(NAME).ok_or_else(|| std::io::Error::other("the name is none of a target"))?;
    for number in 0..units {
        let geometry =
            Geometry { blocks: mib * 2048, block_bytes: 512, physical_exponent: exponent as u8, is_thin: true, is_read_only: false };
        let unit = Arc::new(RamUnit::new(&format!("ram-{number:08}"), geometry));
        target.attach(number as u16, Arc::new(Disk::new(unit, Arc::new(RamStore::default()), None)));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(&address).await?;
        println!("iscsi://{}/{NAME}/0", listener.local_addr()?);
        let (_stop, stopped) = tokio::sync::watch::channel(false);
        serve(listener, targets, Options::default(), stopped).await;
        Ok(())
    })
}
