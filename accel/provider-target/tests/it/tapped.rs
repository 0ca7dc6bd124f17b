//! Somebody who hears all that crosses the link: he sees no record, no path, no secret.

use crate::common::{Host, Side, blocks, exec, features, setup};
use exec::Mutex;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;
use target_wire::{Address, Connection, Listener};

/// A wire that keeps what goes over it, in both directions.
struct Tap {
    address: Address,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Tap {
    fn new(target: &Address) -> Tap {
        let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".to_string())).unwrap();
        let (address, heard, target) = (listener.address().unwrap(), Arc::<Mutex<Vec<u8>>>::default(), target.clone());
        let own = heard.clone();
        std::thread::spawn(move || {
            while let Ok(near) = listener.accept() {
                let Ok(far) = Connection::open(&target, Duration::from_secs(5)) else { return };
                for (from, to) in [(near.try_clone(), far.try_clone()), (far.try_clone(), near.try_clone())] {
                    let heard = own.clone();
                    std::thread::spawn(move || carry(from.unwrap(), to.unwrap(), &heard));
                }
            }
        });
        Tap { address, heard }
    }
}

fn carry(mut from: Connection, mut to: Connection, heard: &Mutex<Vec<u8>>) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count) = from.read(&mut bytes) {
        heard.lock().extend_from_slice(&bytes[..count]);
        if count == 0 || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    from.shut_down();
    to.shut_down();
}

/// Files of people who trusted the disks cross networks that they never saw.
#[test]
fn nothing_of_a_record_can_be_heard_on_the_link() {
    let side = Side::new("tapped", features(), setup(30_000));
    let listening = side.tcp();
    let tap = Tap::new(listening.address());
    let host = Host::new(&exec(), &tap.address, &side.folder.0, 512);
    let disks = side.disks("disk");
    let stores = host.open(&disks).unwrap();
    // Words and noise.
    let blocks = blocks(2, 128 << 10, true);
    host.write_all(&disks, &stores, &blocks);
    assert!(blocks.iter().all(|block| host.round_trip(block) == *block));
    let heard = tap.heard.lock().clone();
    assert!(heard.len() as u64 > host.provider.stats().bytes() && heard.len() > 5 * (128 << 10), "it did not hear all");
    let (words, noise) = (blocks[0].to_vec(), blocks[1].to_vec());
    let path = disks[0].to_str().unwrap().as_bytes();
    let parts = [&b"checksum"[..], b"compression", &words[1000..1016], &noise[1000..1016], path, b"correct horse"];
    for part in parts {
        assert!(!heard.windows(part.len()).any(|other| other == part), "{:?} can be heard", String::from_utf8_lossy(part));
    }
}
