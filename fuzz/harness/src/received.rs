//! Streams that our own send made of datasets, and received where others might have changed them: they are taken, or refused and leave nothing.

use crate::pools::{empty, go_on, populated};
use abd::Abd;
use dmu::Objset;
use dsl::{CreateDataset, DslError};
use ondisk::ObjsetType;
use pool::Pool;
use receive::{Receiver, Target};
use send::{Base, SendOptions, Sending};
use std::cell::RefCell;
use std::sync::{Arc, OnceLock};
use stream::{Reader, Record, Writer, begin_list};
use zpl::{Accounting, CreateOptions, NewNode, Settings, WriteData, Zfs};

/// Number of inputs that share a pool in memory.
const INPUTS_PER_POOL: u64 = 25;
/// Bit of the first byte: what comes of a stream that ends early is kept.
const RESUMABLE: u8 = 1;
/// Dataset whose snapshot streams go on from.
const COPY: &str = "tank/copy";
/// Dataset that full streams make.
const NEW: &str = "tank/new";

/// Streams of datasets in memory: the first is what a pool has received before any input, the second goes on from it.
pub fn streams() -> &'static [Vec<u8>] {
    static STREAMS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    STREAMS.get_or_init(|| {
        let (_device, pool) = populated();
        make_files(&pool);
        make_sealed(&pool);
        let packed = SendOptions { compressed: true, embedded: true, ..SendOptions::default() };
        vec![
            sent(&pool, None, "tank/a@0", packed.clone()),
            sent(&pool, Some("tank/a@0"), "tank/a@2", packed.clone()),
            sent(&pool, Some("tank/a@0"), "tank/a@1", SendOptions::default()),
            sent(&pool, None, "tank/files@s", packed),
            sent(&pool, None, "tank/files@s", SendOptions::default()),
            sent(&pool, None, "tank/sealed@0", SendOptions { raw: true, ..SendOptions::default() }),
        ]
    })
}

fn sent(pool: &Pool, from: Option<&str>, to: &str, options: SendOptions) -> Vec<u8> {
    let held = |name: &str| pool.dsl().hold(name).expect("held");
    let to = held(to);
    let base = from.map(|name| Base::snapshot(&to, held(name)).expect("an earlier one"));
    let mut writer = Writer::new(Vec::new());
    Sending::new(to, base, options).expect("it can be sent").run(&mut writer).expect("memory takes all");
    writer.into_sink()
}

/// Makes a file system with a file, a directory and a link, and a snapshot of it.
fn make_files(pool: &Pool) {
    let options = CreateOptions::default();
    let new = CreateDataset {
        kind: ObjsetType::ZFS,
        properties: Vec::new(),
        init: Box::new(move |objset, tx| Zfs::create(objset, &options, tx).map_err(|_| DslError::Unsupported)),
    };
    pool.dsl().create_dataset("tank/files", new).expect("a file system");
    let objset = pool.dsl().hold("tank/files").and_then(|handle| handle.objset()).expect("its objects");
    let zfs = Zfs::open(&objset, Some(pool.txgs().clone()), Settings::default()).expect("it opens");
    let root = zfs.node(zfs.root()).expect("its root");
    let named = |name: &[u8], mode: u64, target: &'static [u8]| {
        let new = NewNode { mode, target, ..NewNode::default() };
        zfs.create_node(&root, name, &new).expect("a name of it")
    };
    let file = named(b"file", 0o100_600, b"");
    let data = Abd::from_slice(&b"sixteen bytes of ".repeat(400));
    zfs.write(&file, WriteData { offset: 0, data, may_keep: false, kill_suid: true, synchronous: false }).expect("written");
    let _ = (named(b"directory", 0o040_700, b""), named(b"link", 0o120_777, b"file"));
    pool.dsl().snapshot(&["tank/files@s".to_string()], Vec::new()).expect("a snapshot");
}

/// Makes an encrypted dataset with an object, and a snapshot of it.
fn make_sealed(pool: &Pool) {
    let properties = [("encryption", "on"), ("keyformat", "raw")].map(|(name, value)| (name.to_string(), value.to_string())).to_vec();
    let new = CreateDataset { kind: ObjsetType::OTHER, properties, init: Box::new(|_, _| Ok(())) };
    pool.dsl().create_dataset_with("tank/sealed", new, Some(&[7; 32])).expect("an encrypted dataset");
    go_on(pool.dsl(), "tank/sealed", 0);
}

/// A pool that has received what other streams go on from.
fn receiving() -> Pool {
    let (_, pool) = empty();
    assert!(take_as(&pool, &streams()[0], &Target { name: COPY.to_string(), snapshot: "base".to_string(), ..Target::default() }));
    pool
}

/// Seeds: streams, each twice: as one of which nothing is kept when it ends early, and as one that is resumed then.
pub fn receive_seeds() -> Vec<Vec<u8>> {
    streams().iter().flat_map(|stream| [0, RESUMABLE].map(|flags| [&[flags][..], stream].concat())).collect()
}

thread_local! {
    static KEPT: RefCell<Option<(Pool, u64)>> = const { RefCell::new(None) };
}

/// Receives a stream: the first byte says how. What came of it goes again, and the pool is sound.
pub fn receive(data: &[u8]) {
    let [flags, stream @ ..] = data else { return };
    KEPT.with_borrow_mut(|slot| {
        let (pool, inputs) = slot.get_or_insert_with(|| (receiving(), 0));
        take(pool, stream, flags & RESUMABLE != 0);
        *inputs += 1;
        if *inputs == INPUTS_PER_POOL {
            assert!(is_sound(pool), "what streams leave is sound");
            *slot = None;
        }
    });
}

fn is_sound(pool: &Pool) -> bool {
    pool.sync().is_ok() && pool.verify_space().is_ok_and(|report| report.is_clean())
}

/// Receives a stream where it belongs, looks at what came, and takes it away again; true if it was received.
fn take(pool: &Pool, stream: &[u8], resumable: bool) -> bool {
    let dsl = pool.dsl();
    let mut is_received = false;
    for name in [COPY, NEW] {
        // What is no increment is refused as that by the first, and the other way round.
        let target = Target { name: name.to_string(), snapshot: "came".to_string(), force: true, resumable, ..Target::default() };
        let came = take_as(pool, stream, &target);
        if let Ok(Some(partial)) = dsl.partial_receive(name) {
            assert!(!came && resumable, "{name} has the rest of a receive that nobody asked for");
            let object = partial.object();
            drop(partial);
            dsl.receive_abort(object).expect("what was received half can go");
        }
        let snapshot = format!("{name}@came");
        assert_eq!(came, dsl.hold(&snapshot).is_ok(), "{snapshot} is there when it was received");
        if came {
            look_at(pool, &snapshot);
            dsl.destroy_snapshots(&[snapshot], false).expect("what was received can be destroyed");
        }
        if name == NEW && came {
            dsl.destroy_dataset(NEW).expect("what was received can be destroyed");
        }
        is_received |= came;
    }
    is_received
}

/// Receives a stream, checksums uncompared; true if it was received.
fn take_as(pool: &Pool, stream: &[u8], target: &Target) -> bool {
    let (mut reader, mut payload) = (Reader::new(stream).ignoring_checksums(), Vec::new());
    let Ok(Some(Record::Begin(begin))) = reader.read_record(&mut payload) else { return false };
    let Ok(list) = begin_list(&payload) else { return false };
    let count = |objset: &Arc<Objset>| {
        if objset.kind() == ObjsetType::ZFS {
            Accounting::install(objset);
        }
    };
    let begun = Receiver::begin(pool.dsl(), &begin, &list, target, &count);
    begun.and_then(|receiver| receiver.run(&mut reader)).is_ok()
}

/// Reads a snapshot as a file system: any error will do.
fn look_at(pool: &Pool, name: &str) {
    let Ok(objset) = pool.dsl().hold(name).and_then(|handle| handle.objset()) else { return };
    let Ok(zfs) = Zfs::open(&objset, None, Settings::default()) else { return };
    let Ok(root) = zfs.node(zfs.root()) else { return };
    for name in [&b"file"[..], b"directory", b"link"] {
        let Ok(node) = zfs.lookup(&root, name) else { continue };
        let _ = (zfs.read(&node, 0, 4096).is_ok(), zfs.read_link(&node).is_ok(), zfs.list(&node, 0, &mut |_| true));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of the longest input.
    const INPUT_BYTES_MAX: usize = 64 << 10;

    /// If this fails, the target mutates what nobody would receive anyway, and finds nothing.
    #[test]
    fn seeds_are_received() {
        let pool = receiving();
        for (number, seed) in streams().iter().enumerate() {
            assert!(seed.len() < INPUT_BYTES_MAX, "stream {number} is cut off: {} bytes", seed.len());
            assert!(take(&pool, seed, number % 2 == 0), "stream {number}");
        }
        assert!(is_sound(&pool));
    }
}
