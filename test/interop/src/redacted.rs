//! Redaction: lists that we make, as OpenZFS's `zdb` counts them; streams redacted by them, and what came later, received by its engine.

use crate::driver::{self, Layout, NewPool};
use crate::manifest::{self, Lines};
use crate::oracle::Oracle;
use crate::report::Table;
use crate::shadow::{Kind, content};
use crate::touch::{new_file, write};
use crate::{Failure, Wanted, streams};
use need::Need;
use pool::Pool;
use send::{Base, SendOptions, Sending};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use stream::Writer;
use vdev::TopKind;

const FROM: &str = "zr_from";
/// Fixture that is received into: the real engine made it, with every feature that it knows.
const FIXTURE: &str = "snapclone";
const DEVICE_BYTES: u64 = 512 << 20;
const LAYOUT: Layout = Layout { name: "stripe1", kind: TopKind::Leaf, tops: 1, width: 1 };
const RECORD_BYTES: usize = 4096;
/// Part of a file that a clone replaces: its offset and its bytes.
const REPLACED: (usize, usize) = (10 * RECORD_BYTES, 8 * RECORD_BYTES);

/// Streams of a file system whose first snapshot was redacted, and what the second one must be.
struct Sent {
    first: PathBuf,
    second: PathBuf,
    expected: Lines,
}

/// Does the checks.
pub fn run(oracle: &Oracle, wanted: &Wanted, table: &Table) {
    if !wanted.includes("redacted", true) {
        return;
    }
    let Some(sent) = table.check("redacted: a list, and streams by it, read by zdb and zstream", || make(oracle)) else { return };
    if !oracle.has_zpfix() {
        return table.left_out(Need::Peer, "redacted: received by the real engine", "zpfix is missing");
    }
    table.check("redacted: received by the real engine, and what came later", || received(oracle, &sent));
}

fn folder(name: &str) -> Result<PathBuf, Failure> {
    let folder = crate::scratch()?.join(format!("redacted-{name}"));
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn make(oracle: &Oracle) -> Result<Sent, Failure> {
    let folder = folder("from")?;
    let new = NewPool { name: FROM, layout: LAYOUT, ashift: 12, device_bytes: DEVICE_BYTES, no_features: false, small_memory: false };
    let pool = driver::create(&driver::executor(), &folder, new)?;
    let secret = content(300_000, 3, Kind::Random);
    fill(&pool, &secret)?;
    let to = pool.dsl().hold(&format!("{FROM}/fs@a"))?;
    send::redact(&to, "r", &[pool.dsl().hold(&format!("{FROM}/clone@s"))?])?;
    let (first, second) = (folder.join("first.zfs"), folder.join("second.zfs"));
    let bookmark = format!("{FROM}/fs#r");
    stream_to(&first, &Sending::new(to, None, SendOptions::default())?.redacted(&bookmark)?)?;
    oracle.dump(&first)?;
    let replaced = &secret[REPLACED.0..][..RECORD_BYTES];
    if std::fs::read(&first)?.windows(RECORD_BYTES).any(|part| part == replaced) {
        return Err("what is redacted is in the stream".into());
    }
    later(&pool)?;
    let to = pool.dsl().hold(&format!("{FROM}/fs@b"))?;
    let known = pool.dsl().bookmarks(&format!("{FROM}/fs"))?;
    let base = Base::bookmark(&to, &format!("{FROM}/fs"), known.first().ok_or("no bookmark")?)?;
    stream_to(&second, &Sending::new(to, Some(base), SendOptions::default())?)?;
    oracle.dump(&second)?;
    let mut lines = Lines::new();
    manifest::of_dataset(&pool, &format!("{FROM}/fs@b"), &mut lines)?;
    pool.export()?;
    oracle.zdb_clean(&folder, FROM)?;
    Ok(Sent { first, second, expected: streams::without_pool(&lines, &format!("{FROM}/fs")) })
}

fn stream_to(file: &Path, sending: &Sending) -> Result<(), Failure> {
    let mut writer = Writer::new(BufWriter::new(std::fs::File::create(file)?));
    sending.run(&mut writer)?;
    std::io::Write::flush(writer.sink())?;
    Ok(())
}

/// A file system with a snapshot, and a clone of that which replaced a part of a file and lacks another one.
fn fill(pool: &Pool, secret: &[u8]) -> Result<(), Failure> {
    let (name, clone) = (format!("{FROM}/fs"), format!("{FROM}/clone"));
    pool.dsl().create_dataset(&name, driver::filesystem(&[("recordsize", "4K"), ("compression", "off")]))?;
    {
        let zfs = driver::open(pool, &name)?;
        let root = zfs.node(zfs.root())?;
        drop(new_file(&zfs, &root, b"secret", secret)?);
        drop(new_file(&zfs, &root, b"gone", &content(50_000, 4, Kind::Random))?);
        drop(new_file(&zfs, &root, b"shared", &content(70_000, 5, Kind::Text))?);
        zfs.sync()?;
    }
    pool.dsl().snapshot(&[format!("{name}@a")], Vec::new())?;
    pool.dsl().clone_snapshot(&clone, &format!("{name}@a"), Vec::new())?;
    {
        let zfs = driver::open(pool, &clone)?;
        let root = zfs.node(zfs.root())?;
        write(&zfs, &zfs.lookup(&root, b"secret")?, REPLACED.0 as u64, &content(REPLACED.1, 6, Kind::Random))?;
        zfs.unlink(&root, b"gone")?;
        drop(root);
        zfs.sync()?;
    }
    pool.dsl().snapshot(&[format!("{clone}@s")], Vec::new())?;
    Ok(())
}

/// Changes that everybody may see, and the second snapshot.
fn later(pool: &Pool) -> Result<(), Failure> {
    let name = format!("{FROM}/fs");
    {
        let zfs = driver::open(pool, &name)?;
        let root = zfs.node(zfs.root())?;
        write(&zfs, &zfs.lookup(&root, b"shared")?, 20_000, &content(9000, 7, Kind::Random))?;
        drop(root);
        zfs.sync()?;
    }
    pool.dsl().snapshot(&[format!("{name}@b")], Vec::new())?;
    Ok(())
}

/// Has the real engine receive both, and compares the second snapshot, which lacks nothing.
fn received(oracle: &Oracle, sent: &Sent) -> Result<(), Failure> {
    let folder = folder("to")?;
    oracle.make(FIXTURE, &folder)?;
    let (to, dataset) = (format!("fx_{FIXTURE}"), format!("fx_{FIXTURE}/from-us"));
    for (snapshot, file) in [("a", &sent.first), ("b", &sent.second)] {
        oracle.receive(&folder, &to, (&dataset, snapshot), file).map_err(|error| format!("@{snapshot}: {error}"))?;
    }
    oracle.zdb_clean(&folder, &to)?;
    let pool = driver::import(&driver::executor(), &folder, &to, true)?;
    let mut found = Lines::new();
    manifest::of_dataset(&pool, &format!("{dataset}@b"), &mut found)?;
    pool.export()?;
    manifest::compare("received", &sent.expected, &streams::without_pool(&found, &dataset))
}
