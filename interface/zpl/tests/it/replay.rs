//! Intent logs of a file system and of a volume, as OpenZFS leaves them after a crash: replayed by the import, whole, once, and without a
//! leak, whatever happens meanwhile. What users lose when these fail: what their programs had made durable, the blocks of somebody
//! else, or the pool.

use crate::replay_bed::{Bed, FS, NewLog, RECORD_BYTES, VOLUME, listing, node, runtime};
use dmu::TxgConfig;
use need::pattern;
use ondisk::zil::{
    LrAcl, LrAttr, LrAttrEnd, LrCreate, LrLink, LrRemove, LrRename, LrRenameWhiteout, LrSetSaXattr, LrSetattr, LrTruncate, LrWrite, TxType,
};
use ondisk::{BlockPtr, ByteOrder, Field, ObjectId, Txg, ZilHeader};
use pool::{Pool, PoolError, Runtime};
use sim::{CrashChoice, Image, cuts_every};
use std::collections::BTreeMap;
use zil::testing::record;
use zpl::{NewNode, Settings, Zfs};

const LITTLE: ByteOrder = ByteOrder::Little;
/// Objects that the log makes: numbers that are free in the file system.
const NEW: u64 = 500;
const DIRECTORY: u64 = 501;
const LINK: u64 = 502;
const XATTRS: u64 = 504;
const XATTR: u64 = 505;
const WHITEOUT: u64 = 506;
const FIXED: u64 = 507;
const OWN: u64 = 508;
/// Object that was gone before the crash.
const GONE: u64 = 900;
const CRTIME: [u64; 2] = [1_600_000_000, 77];

/// Records under construction: each gets the next number.
struct Log {
    txg: u64,
    records: Vec<Vec<u8>>,
}

impl Log {
    fn add<R: Field>(&mut self, kind: TxType, fixed: &R, tail: &[u8]) {
        let seq = self.records.len() as u64 + 1;
        self.records.push(record(kind, (self.txg, seq), fixed, tail, LITTLE));
    }
    fn create(&mut self, kind: TxType, directory: u64, object: u64, mode: u64, tail: &[u8]) {
        let (lr_uid, lr_gid, lr_gen, lr_crtime) = (1000, 100, 33, CRTIME);
        let fixed =
            LrCreate { lr_doid: directory, lr_foid: object, lr_mode: mode, lr_uid, lr_gid, lr_gen, lr_crtime, ..LrCreate::default() };
        self.add(kind, &fixed, tail);
    }
    fn write(&mut self, object: u64, offset: u64, data: &[u8]) {
        let fixed = LrWrite { lr_foid: object, lr_offset: offset, lr_length: data.len() as u64, ..LrWrite::default() };
        self.add(TxType::WRITE, &fixed, data);
    }
    fn write_block(&mut self, object: u64, (offset, length): (u64, u64), bp: BlockPtr) {
        let fixed = LrWrite { lr_foid: object, lr_offset: offset, lr_length: length, lr_blkptr: bp, ..LrWrite::default() };
        self.add(TxType::WRITE, &fixed, &[]);
    }
    fn remove(&mut self, kind: TxType, directory: u64, name: &[u8]) {
        self.add(kind, &LrRemove { lr_doid: directory, ..LrRemove::default() }, name);
    }
    fn rename(&mut self, kind: TxType, (from, to): (u64, u64), names: &[u8]) {
        self.add(kind, &LrRename { lr_sdoid: from, lr_tdoid: to, ..LrRename::default() }, names);
    }
}

fn attributes(mask: u32, set: u64) -> Vec<u8> {
    let attr = LrAttr { lr_attr_masksize: 3, lr_attr_bitmap: mask };
    let end = LrAttrEnd { lr_attr_attrs: set, ..LrAttrEnd::default() };
    [attr.encode().to_vec(), vec![0; 8], end.encode().to_vec()].concat()
}

/// Contents of the file system before the log begins.
fn fill(zfs: &std::sync::Arc<Zfs>) {
    let root = node(zfs, "");
    let file = NewNode { mode: 0o100_644, uid: 1000, gid: 100, ..NewNode::default() };
    for (name, length) in
        [("old", 2 * RECORD_BYTES), ("moved", 100), ("doomed", 100), ("xa", 0), ("hole", 3 * RECORD_BYTES), ("e1", 1), ("e2", 2), ("w", 3)]
    {
        let made = zfs.create_node(&root, name.as_bytes(), &file).expect("made");
        crate::replay_bed::write(zfs, &made, 0, &pattern(length as usize, length));
    }
    zfs.create_node(&root, b"empty", &NewNode { mode: 0o040_755, ..NewNode::default() }).expect("made");
    zfs.set_xattr(&node(zfs, "xa"), b"user.a", b"1", zpl::SetMode::Any).expect("set");
    // So large a value lies in a file of its own, which goes with the node.
    let hoarder = zfs.create_node(&root, b"hoarder", &file).expect("made");
    zfs.set_xattr(&hoarder, b"user.large", &pattern(40_000, 8), zpl::SetMode::Any).expect("set");
}

/// The log of the file system.
fn files_log(bed: &Bed, log: &mut Log) {
    let zfs = bed.files();
    let root = zfs.root().0;
    let number = |name: &str| node(&zfs, name).object().0;
    log.create(TxType::CREATE, root, NEW, 0o100_640, b"new\0");
    log.write(NEW, 0, &pattern(300, 1));
    // Only a part was written, but the block came whole: what is behind the end is nobody's yet.
    log.write_block(number("old"), (RECORD_BYTES + 10, 100), bed.data(&pattern(RECORD_BYTES as usize, 2)));
    log.create(TxType::MKDIR, root, DIRECTORY, 0o042_755, b"d\0");
    // The directory hands its group on, but the record knows better.
    let own = LrCreate { lr_doid: DIRECTORY, lr_foid: OWN, lr_mode: 0o100_644, lr_gid: 101, ..LrCreate::default() };
    log.add(TxType::CREATE, &own, b"own\0");
    log.rename(TxType::RENAME, (root, DIRECTORY), b"moved\0there\0");
    let doomed = number("doomed");
    log.remove(TxType::REMOVE, root, b"doomed\0");
    // Its number is used again at once, which takes a sync in between.
    log.create(TxType::CREATE, root, doomed, 0o100_600, b"reborn\0");
    log.write(doomed, 0, &pattern(50, 3));
    log.create(TxType::SYMLINK, root, LINK, 0o120_777, b"sym\0d/there\0");
    log.add(TxType::LINK, &LrLink { lr_doid: DIRECTORY, lr_link_obj: NEW, ..LrLink::default() }, b"hard\0");
    let set = LrSetattr { lr_foid: NEW, lr_mask: 0x63, lr_mode: 0o4711, lr_uid: 7, lr_mtime: [1_500_000_000, 9], ..LrSetattr::default() };
    log.add(TxType::SETATTR, &set, &[]);
    let hole = LrTruncate { lr_foid: number("hole"), lr_offset: RECORD_BYTES, lr_length: RECORD_BYTES, ..LrTruncate::default() };
    log.add(TxType::TRUNCATE, &hole, &[]);
    let xa = number("xa");
    log.add(TxType::SETSAXATTR, &LrSetSaXattr { lr_foid: xa, lr_size: 0, ..LrSetSaXattr::default() }, b"user.a\0");
    log.add(TxType::SETSAXATTR, &LrSetSaXattr { lr_foid: xa, lr_size: 2, ..LrSetSaXattr::default() }, b"user.b\0zz");
    log.create(TxType::MKXATTR, NEW, XATTRS, 0o041_777, b"\0");
    log.create(TxType::CREATE, XATTRS, XATTR, 0o100_644, b"user.big\0");
    log.write(XATTR, 0, b"value");
    log.write(GONE, 0, b"nobody's");
    log.rename(TxType::RENAME_EXCHANGE, (root, root), b"e1\0e2\0");
    let rename = LrRename { lr_sdoid: root, lr_tdoid: root, ..LrRename::default() };
    let left = LrRenameWhiteout { lr_rename: rename, lr_wfoid: WHITEOUT, lr_wmode: 0o020_000, lr_wgen: 33, ..LrRenameWhiteout::default() };
    log.add(TxType::RENAME_WHITEOUT, &left, b"w\0w2\0");
    log.add(TxType::WRITE2, &LrWrite { lr_foid: NEW, lr_offset: 300, lr_length: 100, ..LrWrite::default() }, &[]);
    log.create(TxType::MKDIR_ATTR, root, FIXED, 0o040_755, &[attributes(0x40, 0x40), b"fixed\0".to_vec()].concat());
    log.remove(TxType::RMDIR, root, b"empty\0");
    log.remove(TxType::REMOVE, root, b"hoarder\0");
}

/// The log of the volume.
fn volume_log(bed: &Bed, log: &mut Log) {
    log.write(1, 512, &pattern(1000, 4));
    log.write_block(1, (5 * RECORD_BYTES, RECORD_BYTES), bed.data(&pattern(RECORD_BYTES as usize, 5)));
    log.add(TxType::TRUNCATE, &LrTruncate { lr_foid: 1, lr_offset: 0, lr_length: 512, ..LrTruncate::default() }, &[]);
}

/// State that a crash left.
struct Crashed {
    /// Object of the file that the log removes.
    doomed: u64,
    /// Txg of the youngest block of the logs.
    youngest: Txg,
}

/// Devices of a pool that crashed with both logs.
fn crashed() -> (Vec<Image>, Crashed) {
    let bed = Bed::new(&fill);
    let doomed = node(&bed.files(), "doomed").object().0;
    let log = |make: fn(&Bed, &mut Log)| {
        move |bed: &Bed, txg| {
            let mut log = Log { txg, records: Vec::new() };
            make(bed, &mut log);
            log.records
        }
    };
    bed.leave_logs(&[
        NewLog { dataset: FS, blocks: 3, records: &log(files_log) },
        NewLog { dataset: VOLUME, blocks: 1, records: &log(volume_log) },
    ]);
    let youngest = bed.youngest();
    (bed.crash(), Crashed { doomed, youngest })
}

fn check(pool: &Pool, crashed: &Crashed, what: &str) {
    for name in [FS, VOLUME] {
        let header = pool.dsl().hold(name).expect("held").objset().expect("objset").zil_header();
        assert_eq!(header, ZilHeader::default(), "{what}: the log of {name} is gone");
    }
    let zfs = Zfs::open(&pool.dsl().hold(FS).expect("held").objset().expect("objset"), None, Settings::default()).expect("open");
    let stat = |path: &str| node(&zfs, path).fields();
    let bytes = |path: &str| zfs.read(&node(&zfs, path), 0, 1 << 20).expect("read").to_vec();
    let mut names = BTreeMap::new();
    listing(&zfs, &node(&zfs, ""), "", &mut names);
    let all: Vec<&str> = names.keys().map(String::as_str).collect();
    assert_eq!(
        all,
        ["d", "d/hard", "d/own", "d/there", "e1", "e2", "fixed", "hole", "new", "old", "reborn", "sym", "w", "w2", "xa"],
        "{what}"
    );
    let new = stat("new");
    assert_eq!((names["new"], new.mode, new.uid, new.gid, new.links, new.size), (NEW, 0o104_711, 7, 100, 2, 400), "{what}");
    assert_eq!((new.generation, new.times[3], new.times[1]), (33, (1_600_000_000, 77), new.times[1]), "{what}");
    assert_eq!(bytes("new")[..300], pattern(300, 1), "{what}");
    let old = [&pattern(2 * RECORD_BYTES as usize, 2 * RECORD_BYTES)[..RECORD_BYTES as usize], &pattern(RECORD_BYTES as usize, 2)].concat();
    assert!(bytes("old") == old, "{what}: a block that the log named");
    let d = stat("d");
    assert_eq!((names["d"], d.mode, d.size, d.links), (DIRECTORY, 0o042_755, 5, 2), "{what}");
    assert_eq!((names["d/own"], stat("d/own").gid, stat("d/own").mode), (OWN, 101, 0o100_644), "{what}");
    assert_eq!(bytes("d/there"), pattern(100, 100), "{what}");
    assert_eq!((names["reborn"], bytes("reborn"), stat("reborn").mode), (crashed.doomed, pattern(50, 3), 0o100_600), "{what}");
    assert_eq!(zfs.read_link(&node(&zfs, "sym")), Ok(b"d/there".to_vec()), "{what}");
    let mut hole = pattern(3 * RECORD_BYTES as usize, 3 * RECORD_BYTES);
    hole[RECORD_BYTES as usize..2 * RECORD_BYTES as usize].fill(0);
    assert!(bytes("hole") == hole, "{what}: a hole that was punched");
    assert_eq!(zfs.list_xattrs(&node(&zfs, "xa")), Ok(vec![b"user.b".to_vec()]), "{what}");
    assert_eq!(zfs.get_xattr(&node(&zfs, "xa"), b"user.b"), Ok(b"zz".to_vec()), "{what}");
    assert_eq!(zfs.get_xattr(&node(&zfs, "new"), b"user.big"), Ok(b"value".to_vec()), "{what}");
    assert_eq!((bytes("e1").len(), bytes("e2").len()), (2, 1), "{what}");
    assert_eq!((names["w"], stat("w").mode, bytes("w2")), (WHITEOUT, 0o020_000, pattern(3, 3)), "{what}");
    assert_ne!(stat("fixed").flags & 0x10_0000_0000, 0, "{what}: immutable");
    let (data, mut found) =
        (pool.dsl().hold(VOLUME).expect("held").objset().expect("objset").hold(ObjectId(1)).expect("data"), vec![0; 2048]);
    data.read(0, &mut found).expect("read");
    let first = [vec![0; 512], pattern(1000, 4), pattern(2048, 9)[1512..].to_vec()].concat();
    assert!(found == first, "{what}: the volume's beginning");
    let mut found = vec![0; RECORD_BYTES as usize];
    data.read(5 * RECORD_BYTES, &mut found).expect("read");
    assert!(found == pattern(RECORD_BYTES as usize, 5), "{what}: the volume's block that the log named");
}

/// Imports, checks, exports, and finds the space maps right; gives what happened on the devices.
fn recovered(images: Vec<Image>, runtime: &Runtime, crashed: &Crashed, what: &str) -> sim::Recording {
    let bed = crate::replay_bed::Devices::of(images);
    bed.sim.start_recording();
    let pool = bed.import(false, runtime).unwrap_or_else(|error| panic!("{what}: {error}"));
    if !pool.replayed().is_empty() {
        assert!(pool.txg() >= crashed.youngest, "{what}: blocks of the log are of the future");
    }
    let failed: Vec<_> = pool.replayed().iter().filter_map(|log| log.failure.clone()).collect();
    assert!(failed.is_empty(), "{what}: {failed:?}");
    check(&pool, crashed, what);
    pool.export().expect("exported");
    let recording = bed.sim.take_recording();
    bed.check_space(what);
    recording
}

/// Every record in a txg of its own.
fn small_txgs() -> Runtime {
    Runtime { txg: TxgConfig { dirty_data_max: 1, ..TxgConfig::default() }, ..runtime() }
}

#[test]
fn logs_are_replayed_by_the_import() {
    let (images, crashed) = crashed();
    recovered(images.clone(), &runtime(), &crashed, "in one txg");
    recovered(images, &small_txgs(), &crashed, "each record in a txg of its own");
}

#[test]
fn a_power_cut_in_claim_or_replay_loses_nothing() {
    let every = cuts_every(29);
    let (images, crashed) = crashed();
    for (runtime, every) in [(runtime(), every), (small_txgs(), 4 * every + 1)] {
        let recording = recovered(images.clone(), &runtime, &crashed, "without a cut");
        recording.each_cut((every, 0), &mut |cut| {
            for choice in [CrashChoice::Lost, CrashChoice::Random(cut.events as u64)] {
                recovered(cut.images(choice), &runtime, &crashed, &format!("cut {} {choice:?}", cut.events));
            }
        });
    }
}

/// A bed whose log has a record in its middle that cannot be replayed.
fn with_record(middle: &dyn Fn(&mut Log, u64)) -> Vec<Image> {
    let bed = Bed::new(&|_| {});
    let root = bed.files().root().0;
    let records = |_: &Bed, txg| {
        let mut log = Log { txg, records: Vec::new() };
        log.create(TxType::CREATE, root, NEW, 0o100_640, b"before\0");
        middle(&mut log, root);
        log.create(TxType::CREATE, root, NEW + 1, 0o100_640, b"after\0");
        log.records
    };
    bed.leave_logs(&[NewLog { dataset: FS, blocks: 2, records: &records }]);
    bed.crash()
}

#[test]
fn a_record_that_cannot_be_replayed_ends_the_log_and_is_told() {
    for (kind, middle) in [
        ("TX_REMOVE", &(|log: &mut Log, root| log.remove(TxType::REMOVE, root, b"never\0")) as &dyn Fn(&mut Log, u64)),
        ("TX_CREATE", &|log: &mut Log, root| log.create(TxType::CREATE, root, NEW, 0o100_640, b"taken\0")),
        ("TX_CREATE", &|log: &mut Log, root| log.create(TxType::CREATE, root, 1 << 50, 0o100_640, b"../..\0")),
    ] {
        let devices = crate::replay_bed::Devices::of(with_record(middle));
        let pool = devices.import(false, &runtime()).expect("imported");
        let [log] = pool.replayed() else { panic!("{:?}", pool.replayed()) };
        let why = log.failure.as_deref().expect("a failure");
        assert!(log.dataset == FS && log.records == 1 && why.contains(&format!("record 2 ({kind})")) && why.contains("2 of"), "{log:?}");
        let zfs = Zfs::open(&pool.dsl().hold(FS).expect("held").objset().expect("objset"), None, Settings::default()).expect("open");
        let mut names = BTreeMap::new();
        listing(&zfs, &node(&zfs, ""), "", &mut names);
        assert_eq!(names.into_keys().collect::<Vec<_>>(), ["before"], "what came before stands");
        pool.export().expect("exported");
        devices.check_space(kind);
    }
}

#[test]
fn what_this_release_cannot_replay_keeps_the_pool_as_it_is() {
    let images = with_record(&|log, _| log.add(TxType::ACL, &LrAcl { lr_foid: NEW, ..LrAcl::default() }, &[]));
    let devices = crate::replay_bed::Devices::of(images.clone());
    let refused = devices.import(false, &runtime()).err();
    assert!(matches!(&refused, Some(PoolError::IntentLogs(names)) if *names == [FS]), "{refused:?}");
    assert!(devices.images() == images, "nothing was written");
    devices.import(true, &runtime()).expect("read-only").export().expect("closed");
}
