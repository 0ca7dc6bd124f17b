//! Direct writes that find no room for a while, and such as never find any. When these fail, a program that overwrites its
//! files on a full pool gets ENOSPC although space was about to come back, or a failed write leaves bytes behind the file's end.

use abd::Abd;
use dmu::ObjsetProps;
use dmu::testing::{MemBlockIo, TestPool};
use exec::Mutex;
use ondisk::ObjsetType;
use std::sync::Arc;
use zpl::direct::Access;
use zpl::{CreateOptions, NewNode, Node, Settings, WriteData, Zfs, ZplError};

const PAGE: usize = 4096;
const RECORD: usize = 4 * PAGE;
/// Bytes of the file: one page into the fourth block.
const OLD: usize = 3 * RECORD + PAGE;

fn bytes(length: usize, salt: u8) -> Vec<u8> {
    (0..length).map(|at| (at / 7 % 251) as u8 ^ salt).collect()
}

fn request(offset: usize, data: &[u8]) -> WriteData {
    WriteData { offset: offset as u64, data: Abd::from_slice(data), may_keep: true, kill_suid: false, synchronous: false }
}

struct Bed {
    pool: TestPool,
    zfs: Arc<Zfs>,
    node: Node,
}

/// Makes a file of `OLD` bytes.
fn bed(io: Arc<MemBlockIo>) -> Bed {
    let props = ObjsetProps { record_size: RECORD, ..ObjsetProps::default() };
    let pool = TestPool::create(io, ObjsetType::ZFS, props).expect("an object set");
    Zfs::create(&pool.objset, &CreateOptions::default(), &pool.txgs.assign(0).expect("a transaction")).expect("a file system");
    let zfs = Zfs::open(&pool.objset, Some(pool.txgs.clone()), Settings::default()).expect("it opens");
    let root = zfs.node(zfs.root()).expect("a root");
    let node = zfs.create_node(&root, b"f", &NewNode { mode: 0o100_644, ..NewNode::default() }).expect("a file");
    zfs.write(&node, request(0, &bytes(OLD, 1))).expect("written");
    Bed { pool, zfs, node }
}

impl Bed {
    /// Checks that the file holds this, now and from the disks, and zeros behind it when it is made longer.
    fn holds(&self, wanted: &[u8], what: &str) {
        for _ in 0..2 {
            assert_eq!(self.node.fields().size, wanted.len() as u64, "{what}");
            assert!(self.zfs.read(&self.node, 0, 1 << 20).expect("read").to_vec() == wanted, "{what}");
            self.pool.sync().expect("synced");
        }
        let longer = wanted.len() + 5 * RECORD;
        self.zfs.truncate(&self.node, longer as u64).expect("made longer");
        let found = self.zfs.read(&self.node, 0, 1 << 20).expect("read").to_vec();
        assert!(found[..wanted.len()] == *wanted && found[wanted.len()..].iter().all(|byte| *byte == 0), "{what}: behind the end");
        self.pool.sync().expect("synced");
        assert_eq!(self.pool.check(), Ok(()), "{what}");
        assert_eq!(self.pool.io.violations(), Vec::<&str>::new(), "{what}");
    }
}

/// Offsets and bytes of requests: head, whole blocks, tail; within the file, and from inside it past its end.
const REQUESTS: [(usize, usize); 3] = [(PAGE, 2 * RECORD), (OLD - 2 * PAGE, 4 * RECORD), (OLD, 3 * RECORD + 2 * PAGE)];

fn after(offset: usize, data: &[u8]) -> Vec<u8> {
    let mut wanted = bytes(OLD, 1);
    wanted.resize(OLD.max(offset + data.len()), 0);
    wanted[offset..offset + data.len()].copy_from_slice(data);
    wanted
}

#[test]
fn a_write_that_waits_for_it_finds_room_in_a_later_txg() {
    for (offset, length) in REQUESTS {
        for full_for in [1, 2, 5, 8] {
            for append in [false, true] {
                if append && offset != OLD {
                    continue;
                }
                let bed = bed(MemBlockIo::inline(full_for));
                assert_eq!(bed.zfs.direct_counts(&bed.node), None, "nobody asked for direct so far");
                let (data, before) = (bytes(length, 77), bed.pool.txgs.synced_txg());
                bed.pool.io.full_for(full_for);
                let written = bed.zfs.write_with(&bed.node, request(offset, &data), Access { append, ..Access::DIRECT });
                assert_eq!(written, Ok(length as u64), "{offset} {length} {full_for} {append}");
                assert!(bed.pool.txgs.synced_txg() > before, "it waited");
                let counts = bed.zfs.direct_counts(&bed.node).expect("counted");
                assert_eq!((counts.asked.0, counts.direct_writes.0), (1, 1), "one request is one, however often it is tried");
                bed.holds(&after(offset, &data), &format!("{offset} {length} {full_for} {append}"));
            }
        }
    }
}

#[test]
fn a_write_that_never_finds_room_says_so_and_changes_nothing() {
    for (offset, length) in REQUESTS {
        let bed = bed(MemBlockIo::inline(1));
        bed.pool.io.full_for(10_000);
        let result = bed.zfs.write_with(&bed.node, request(offset, &bytes(length, 77)), Access::DIRECT);
        assert_eq!(result, Err(ZplError::NoSpace));
        bed.pool.io.full_for(0);
        // Head and tail go through the cache, which had room; a tail behind the end of the file is taken back.
        let (head, end, data) = (offset.next_multiple_of(RECORD) - offset, offset + length, bytes(length, 77));
        let mut wanted = after(offset, &data[..head]);
        if end < OLD {
            let tail = end % RECORD;
            wanted[end - tail..end].copy_from_slice(&data[length - tail..]);
        }
        bed.holds(&wanted, &format!("{offset} {length}"));
    }
}

#[test]
fn writes_that_nobody_waits_for_find_room_too() {
    let bed = bed(MemBlockIo::threaded(2));
    // As often as one write is repeated: whichever of them meets how many refusals, none may give up.
    bed.pool.io.full_for(8);
    let done = Arc::new(Mutex::new(Vec::new()));
    let mut wanted = bytes(OLD, 1);
    for block in [0, 1, 2] {
        let data = bytes(RECORD, 100 + block as u8);
        wanted[block * RECORD..(block + 1) * RECORD].copy_from_slice(&data);
        let own = done.clone();
        let then = Box::new(move |result| own.lock().push(result));
        bed.zfs.write_then(&bed.node, request(block * RECORD, &data), Access::DIRECT, then);
    }
    let exec = dmu::BlockIo::exec(&bed.pool.io).clone();
    exec.wait(&|| done.lock().len() == 3, &|| exec.sleep_ns(100_000));
    assert_eq!(*done.lock(), [Ok(RECORD as u64), Ok(RECORD as u64), Ok(RECORD as u64)]);
    bed.holds(&wanted, "asynchronous");
}
