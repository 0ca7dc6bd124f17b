//! Streams of our pools, read by OpenZFS's `zstream` and received by its engine: every file of every snapshot must arrive as it was.

use crate::driver::{self, Layout, NewPool};
use crate::manifest::{self, Lines};
use crate::oracle::Oracle;
use crate::program::{Program, Size};
use crate::report::Table;
use crate::{Failure, Wanted};
use need::Need;
use pool::Pool;
use send::{Base, SendOptions, Sending};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use stream::Writer;
use vdev::TopKind;

const FROM: &str = "zs_from";
const TO: &str = "zs_to";
const DEVICE_BYTES: u64 = 2 << 30;
const LAYOUT: Layout = Layout { name: "stripe1", kind: TopKind::Leaf, tops: 1, width: 1 };
const SIZE: Size = Size { rounds: 20, entries: 300, every_property: false, huge: false };
/// Snapshot of everything, after all changes.
const LAST: &str = "last";

/// Form of streams, and whether the quick subset has it. Blocks stay whole in all: a manifest names their sizes.
const FORMS: [(&str, bool, bool); 2] = [("compressed and embedded", true, true), ("plain", false, false)];

/// Stream in a file.
struct Sent {
    /// Snapshot, without the pool.
    snapshot: String,
    file: PathBuf,
}

/// Does the checks.
pub fn run(oracle: &Oracle, wanted: &Wanted, table: &Table) {
    if !wanted.includes("streams", true) {
        return;
    }
    if !oracle.has_zpfix() {
        return table.left_out(Need::Peer, "streams: received by the real engine", "zpfix is missing");
    }
    let Some((pool, expected)) = table.check("streams: a pool with everything in it", make) else { return };
    for (form, is_packed, is_quick) in FORMS {
        if is_quick || wanted.all {
            let sent = table.check(&format!("streams, {form}: sent, and read by zstream"), || send_all(oracle, &pool, form, is_packed));
            if let Some(sent) = sent {
                table.check(&format!("streams, {form}: received by the real engine"), || received(oracle, &sent, form, &expected));
            }
        }
    }
    table.check("streams: the pool is let go of", || Ok(pool.export()?));
}

/// Makes the pool, and lists what is in its snapshots.
fn make() -> Result<(Pool, Lines), Failure> {
    let folder = folder("from")?;
    let new = NewPool { name: FROM, layout: LAYOUT, ashift: 12, device_bytes: DEVICE_BYTES, no_features: false, small_memory: false };
    let pool = driver::create(&driver::executor(), &folder, new)?;
    let mut program = Program::new(&pool, SIZE, 5);
    program.fill()?;
    program.churn(SIZE.rounds)?;
    drop(program);
    let heads = driver::datasets(&pool)?.into_iter().filter(|name| !name.contains('@') && name != FROM);
    let last: Vec<String> = heads.map(|name| format!("{name}@{LAST}")).collect();
    pool.dsl().snapshot(&last, Vec::new())?;
    let mut lines = Lines::new();
    for name in driver::datasets(&pool)?.iter().filter(|name| name.contains('@') && name.contains('/')) {
        manifest::of_dataset(&pool, name, &mut lines)?;
    }
    Ok((pool, without_pool(&lines, FROM)))
}

fn folder(name: &str) -> Result<PathBuf, Failure> {
    let folder = crate::scratch()?.join(format!("streams-{name}"));
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Lines that begin with the name of a pool or dataset, without it.
pub fn without_pool(lines: &Lines, pool: &str) -> Lines {
    lines.iter().filter_map(|line| line.strip_prefix(pool).map(str::to_string)).collect()
}

/// Sends every snapshot: the first of a dataset whole, the others from the one before.
fn send_all(oracle: &Oracle, pool: &Pool, form: &str, is_packed: bool) -> Result<Vec<Sent>, Failure> {
    let folder = folder(&form.replace(' ', "-"))?;
    let options = SendOptions { large_blocks: true, embedded: is_packed, compressed: is_packed, ..SendOptions::default() };
    let mut sent = Vec::new();
    for name in driver::datasets(pool)?.iter().filter(|name| !name.contains('@') && *name != FROM) {
        let mut before: Option<String> = None;
        for snapshot in pool.dsl().snapshots(name)? {
            let full = format!("{name}@{}", snapshot.name);
            let file = folder.join(format!("{}.zfs", sent.len()));
            write(pool, &full, before.as_deref(), &options, &file).map_err(|error| format!("{full}: {error}"))?;
            oracle.dump(&file).map_err(|error| format!("{full}: {error}"))?;
            sent.push(Sent { snapshot: full[FROM.len()..].to_string(), file });
            before = Some(full);
        }
    }
    Ok(sent)
}

/// Writes a stream of a snapshot into a file.
pub fn write(pool: &Pool, to: &str, from: Option<&str>, options: &SendOptions, file: &Path) -> Result<(), Failure> {
    let to = pool.dsl().hold(to)?;
    let from = from.map(|from| -> Result<Base, Failure> { Ok(Base::snapshot(&to, pool.dsl().hold(from)?)?) }).transpose()?;
    let mut writer = Writer::new(BufWriter::new(std::fs::File::create(file)?));
    Sending::new(to, from, options.clone())?.run(&mut writer)?;
    std::io::Write::flush(writer.sink())?;
    Ok(())
}

/// Has the real engine receive all streams into a new pool, and compares what is in it then.
fn received(oracle: &Oracle, sent: &[Sent], form: &str, expected: &Lines) -> Result<(), Failure> {
    let folder = folder(&format!("to-{}", form.replace(' ', "-")))?;
    let new = NewPool { name: TO, layout: LAYOUT, ashift: 12, device_bytes: DEVICE_BYTES, no_features: false, small_memory: false };
    driver::create(&driver::executor(), &folder, new)?.export()?;
    for Sent { snapshot, file } in sent {
        let (dataset, name) = snapshot.split_once('@').unwrap_or((snapshot, ""));
        oracle.receive(&folder, TO, (&format!("{TO}{dataset}"), name), file).map_err(|error| format!("{snapshot}: {error}"))?;
    }
    oracle.zdb_clean(&folder, TO)?;
    let pool = driver::import(&driver::executor(), &folder, TO, true)?;
    let mut found = Lines::new();
    for Sent { snapshot, .. } in sent {
        manifest::of_dataset(&pool, &format!("{TO}{snapshot}"), &mut found)?;
    }
    pool.export()?;
    manifest::compare("received", expected, &without_pool(&found, TO))
}
