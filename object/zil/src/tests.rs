//! Logs read, claimed and decoded from a store in memory. What users lose when these fail: what they had made durable, or everything, to
//! a log that lies.

use crate::record::shared_blocks;
use crate::testing::{LOG_BYTES, log_block, log_pointer, record};
use crate::{End, IntentLog, Made, Obstacle, Record, RecordError, RenameKind, Source, Visit, claim, walk};
use abd::Abd;
use dmu::{BlockError, BlockIo, BlockWrite, WriteDone};
use exec::{Exec, Inline};
use ondisk::zil::{
    LrAttr, LrAttrEnd, LrCloneRange, LrCommon, LrCreate, LrLink, LrRemove, LrRename, LrRenameWhiteout, LrSetSaXattr, LrSetattr, LrTruncate,
    LrWrite, TX_CI, TxType,
};
use ondisk::{BlockPtr, Bookmark, ByteOrder, Compression, Dva, Field, ObjectId, ObjectType, Txg, VdevId, ZilHeader};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

const OBJSET: u64 = 54;
/// Last txg on disk.
const SYNCED: Txg = Txg(10);

/// Blocks by address; those that are not there were never written.
struct Store {
    exec: Exec,
    blocks: BTreeMap<u64, Result<Vec<u8>, BlockError>>,
}

impl Store {
    fn new() -> Store {
        Store { exec: Arc::new(Inline::new(1)), blocks: BTreeMap::new() }
    }
    fn put(&mut self, bp: &BlockPtr, block: Vec<u8>) {
        self.blocks.insert(bp.dva(0).offset, Ok(block));
    }
}

impl BlockIo for Store {
    fn exec(&self) -> &Exec {
        &self.exec
    }
    fn read(&self, bp: &BlockPtr, _: &Bookmark) -> Result<Abd, BlockError> {
        let block = self.blocks.get(&bp.dva(0).offset).cloned().unwrap_or(Err(BlockError::Checksum));
        block.map(|bytes| Abd::from_slice(&bytes))
    }
    fn prefetch(&self, _: &BlockPtr, _: &Bookmark) {}
    fn write(&self, _: BlockWrite, done: WriteDone) {
        done(Err(BlockError::Io));
    }
    fn free(&self, _: Txg, _: &BlockPtr) {}
    fn dsize(&self, _: &BlockPtr) -> u64 {
        0
    }
}

fn at(seq: u64) -> Dva {
    Dva { vdev: VdevId(0), offset: LOG_BYTES as u64 * seq, asize: LOG_BYTES as u64, gang: false }
}

fn pointer(seq: u64, txg: u64) -> BlockPtr {
    log_pointer(OBJSET, seq, at(seq), Txg(txg))
}

/// Pointer of a block of data.
fn data_pointer(place: u64, txg: u64) -> BlockPtr {
    let mut bp = pointer(place, txg);
    bp.set_object_type(ObjectType::PLAIN_FILE_CONTENTS);
    bp.set_compression(Compression::OFF);
    bp
}

fn header(first: BlockPtr) -> ZilHeader {
    ZilHeader { zh_log: first, ..ZilHeader::default() }
}

fn remove(txg: u64, seq: u64) -> Vec<u8> {
    record(TxType::REMOVE, (txg, seq), &LrRemove { lr_doid: 34, ..LrRemove::default() }, b"gone\0", ByteOrder::Little)
}

fn write_of(bp: BlockPtr, txg: u64, seq: u64) -> Vec<u8> {
    let fixed = LrWrite { lr_foid: 7, lr_offset: 100, lr_length: 50, lr_blkptr: bp, ..LrWrite::default() };
    record(TxType::WRITE, (txg, seq), &fixed, &[], ByteOrder::Little)
}

fn decode(bytes: &[u8], order: ByteOrder) -> Result<Record<'_>, RecordError> {
    Record::decode(&LrCommon::decode_order(bytes, order).expect("a header"), bytes, order)
}

/// Numbers of the records that a walk shows, and whether each is to be replayed.
struct Seen(Vec<(u64, bool)>);

impl Visit for Seen {
    fn block(&mut self, _: &BlockPtr) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
    fn record(&mut self, common: &LrCommon, _: &[u8], _: ByteOrder, is_wanted: bool) -> ControlFlow<()> {
        self.0.push((common.lrc_seq, is_wanted));
        ControlFlow::Continue(())
    }
}

/// Three blocks, the first known to the space maps, with two records each, and the block that was never written.
fn chain() -> (Store, ZilHeader) {
    let mut store = Store::new();
    let pointers = [pointer(5, 9), pointer(6, 12), pointer(7, 13), pointer(8, 14)];
    for (index, pair) in pointers.windows(2).enumerate() {
        let first = 2 * index as u64 + 1;
        store.put(
            &pair[0],
            log_block(&[remove(10 + index as u64, first), remove(11 + index as u64, first + 1)], pair[1], ByteOrder::Little),
        );
    }
    (store, header(pointers[0]))
}

#[test]
fn a_claim_takes_what_no_space_map_knows_and_bounds_the_log() {
    let (store, unclaimed) = chain();
    let mut taken = Vec::new();
    let claimed = claim(&store, &unclaimed, OBJSET, SYNCED, &mut |bp| {
        taken.push(bp.dva(0).offset / LOG_BYTES as u64);
        Ok(())
    });
    assert_eq!(taken, [6, 7, 8], "what was synced is allocated; the block that was never written is the log's too");
    let header = claimed.header;
    assert_eq!((header.zh_claim_txg, header.zh_claim_blk_seq, header.zh_claim_lr_seq), (11, 8, 6));
    assert_eq!(header.zh_flags, ZilHeader::REPLAY_NEEDED | ZilHeader::CLAIM_LR_SEQ_VALID);
    assert_eq!((claimed.newest, claimed.cut, claimed.is_unreadable), (Txg(14), None, false));
    assert_eq!(claimed.blocks, [pointer(5, 9), pointer(6, 12), pointer(7, 13), pointer(8, 14)]);
    let again = claim(&store, &header, OBJSET, Txg(11), &mut |bp| panic!("{bp:?} is claimed already"));
    assert_eq!((again.header, again.blocks, again.newest), (header.clone(), claimed.blocks, Txg(14)));
    let log = IntentLog::read(&store, &header, OBJSET, Txg(11));
    assert_eq!((log.blocks.len(), log.is_pending, log.obstacle), (4, true, None));
    let mut seen = Seen(Vec::new());
    // The first record is of a txg that was synced.
    assert_eq!(walk(&store, &header, OBJSET, Txg(11), &mut seen).end, End::Whole);
    assert_eq!(seen.0, [(1, false), (2, true), (3, true), (4, true), (5, true), (6, true)]);
    let mut seen = Seen(Vec::new());
    walk(&store, &ZilHeader { zh_replay_seq: 4, ..header }, OBJSET, Txg(11), &mut seen);
    assert_eq!(seen.0.iter().filter(|(_, is_wanted)| *is_wanted).map(|(seq, _)| *seq).collect::<Vec<_>>(), [5, 6]);
}

#[test]
fn what_cannot_be_had_ends_the_log_and_is_told() {
    let (store, unclaimed) = chain();
    let claimed = claim(&store, &unclaimed, OBJSET, SYNCED, &mut |bp| match bp.dva(0).offset / LOG_BYTES as u64 {
        7 => Err(BlockError::Corrupt),
        _ => Ok(()),
    });
    assert_eq!((claimed.header.zh_claim_blk_seq, claimed.header.zh_claim_lr_seq), (6, 4));
    assert!(claimed.cut.is_some_and(|why| why.contains("cannot be had")));
    assert_eq!(claimed.blocks, [pointer(5, 9), pointer(6, 12)]);
    let (mut store, unclaimed) = chain();
    store.blocks.insert(at(7).offset, Err(BlockError::Io));
    assert!(claim(&store, &unclaimed, OBJSET, SYNCED, &mut |_| Ok(())).is_unreadable);
    assert_eq!(IntentLog::read(&store, &unclaimed, OBJSET, SYNCED).obstacle, Some(Obstacle::Unreadable));
    // A block that would be of the far future keeps nobody waiting for that txg.
    let store = Store::new();
    let claimed = claim(&store, &header(pointer(1, u64::MAX >> 1)), OBJSET, SYNCED, &mut |bp| panic!("{bp:?}"));
    assert!(claimed.cut.is_some() && claimed.newest == SYNCED);
}

/// If this fails, a device that fails for a moment just after the log of an encrypted dataset was claimed costs the space of its end for good, once the
/// dataset is destroyed without its key: nobody knows of these blocks.
#[test]
fn what_a_claim_took_is_known_without_reading_the_log_again() {
    let (mut store, unclaimed) = chain();
    let claimed = claim(&store, &unclaimed, OBJSET, SYNCED, &mut |_| Ok(()));
    store.blocks.insert(at(6).offset, Err(BlockError::Io));
    let again = IntentLog::read(&store, &claimed.header, OBJSET, Txg(11));
    assert_eq!((again.obstacle, again.blocks.len()), (Some(Obstacle::Unreadable), 2));
    assert!(claimed.blocks.starts_with(&again.blocks) && claimed.blocks.len() == 4, "{:?}", claimed.blocks);
}

/// If this fails, what was made durable on a pool that had nothing to do for long is lost with a crash: its uberblock is of many txgs before.
#[test]
fn a_log_may_begin_many_txgs_after_the_newest_uberblock() {
    for (ahead, is_log) in [(3, true), (999_999, true), (1_000_002, false)] {
        let (mut store, txg) = (Store::new(), SYNCED.0 + ahead);
        store.put(&pointer(1, txg), log_block(&[remove(txg, 1)], pointer(2, txg), ByteOrder::Little));
        let claimed = claim(&store, &header(pointer(1, txg)), OBJSET, SYNCED, &mut |_| Ok(()));
        assert_eq!((claimed.cut.is_none(), claimed.header.zh_claim_lr_seq), (is_log, u64::from(is_log)), "{ahead} txgs later");
    }
}

#[test]
fn a_write_whose_data_never_reached_the_disk_ends_the_log_in_silence() {
    let mut store = Store::new();
    let (there, never) = (data_pointer(20, 12), data_pointer(21, 12));
    store.put(&there, vec![1; LOG_BYTES]);
    let records = [write_of(there, 12, 1), write_of(there, 12, 2), write_of(never, 12, 3), remove(12, 4)];
    store.put(&pointer(1, 9), log_block(&records, pointer(2, 12), ByteOrder::Little));
    let mut taken = 0;
    let claimed = claim(&store, &header(pointer(1, 9)), OBJSET, SYNCED, &mut |_| {
        taken += 1;
        Ok(())
    });
    assert_eq!((taken, claimed.cut), (1, None), "a block that two records name is taken once");
    assert_eq!((claimed.header.zh_claim_lr_seq, claimed.header.zh_claim_blk_seq), (2, 1));
    let log = IntentLog::read(&store, &claimed.header, OBJSET, Txg(11));
    assert_eq!(log.blocks, [pointer(1, 9), there], "the log's block and the data");
    assert_eq!(log.blocks, claimed.blocks);
}

/// If this fails, blocks that the log of an encrypted dataset shares are nobody's for good once it goes: everything else of the record takes a key.
#[test]
fn shared_blocks_are_found_in_a_record_that_nobody_can_read() {
    let (mut store, order) = (Store::new(), ByteOrder::Little);
    let fixed = LrCloneRange { lr_foid: u64::MAX, lr_offset: u64::MAX, lr_length: 3, lr_blksz: 0, lr_nbps: 2, ..LrCloneRange::default() };
    let mut pointers = vec![0; 2 * BlockPtr::BYTES];
    data_pointer(20, 9).put(&mut pointers, order);
    let shared = record(TxType::CLONE_RANGE, (12, 1), &fixed, &pointers, order);
    assert!(decode(&shared, order).is_err());
    store.put(&pointer(1, 9), log_block(&[shared], pointer(2, 12), order));
    let zh_flags = ZilHeader::REPLAY_NEEDED | ZilHeader::CLAIM_LR_SEQ_VALID;
    let claimed = ZilHeader { zh_claim_txg: 11, zh_claim_blk_seq: 2, zh_claim_lr_seq: 1, zh_flags, ..header(pointer(1, 9)) };
    let log = IntentLog::read(&store, &claimed, OBJSET, Txg(11));
    assert_eq!(log.blocks, [pointer(1, 9), data_pointer(20, 9), pointer(2, 12)]);
    let again = claim(&store, &claimed, OBJSET, Txg(11), &mut |bp| panic!("{bp:?} is claimed already"));
    assert_eq!(again.blocks, log.blocks);
}

#[test]
fn records_of_wrong_lengths_and_numbers_end_the_log() {
    let mut long = remove(12, 2);
    long[8..16].copy_from_slice(&4000u64.to_le_bytes());
    for second in [long, remove(12, 1)] {
        let mut store = Store::new();
        store.put(&pointer(1, 9), log_block(&[remove(12, 1), second, remove(12, 3)], pointer(2, 12), ByteOrder::Little));
        let mut seen = Seen(Vec::new());
        assert_eq!(walk(&store, &header(pointer(1, 9)), OBJSET, SYNCED, &mut seen).end, End::Malformed);
        assert_eq!(seen.0, [(1, true)]);
        assert!(claim(&store, &header(pointer(1, 9)), OBJSET, SYNCED, &mut |_| Ok(())).cut.is_some());
    }
}

fn create() -> LrCreate {
    LrCreate {
        lr_doid: 34,
        lr_foid: 7 | 1 << 56,
        lr_mode: 0o100_640,
        lr_uid: 1000,
        lr_gid: 100,
        lr_gen: 12,
        lr_crtime: [1_700_000_000, 5],
        ..LrCreate::default()
    }
}

fn attributes(mask: u32, set: u64, order: ByteOrder) -> Vec<u8> {
    let mut bytes = vec![0; LrAttr::SIZE + 8 + LrAttrEnd::SIZE];
    LrAttr { lr_attr_masksize: 3, lr_attr_bitmap: mask }.put(&mut bytes[..LrAttr::SIZE], order);
    let mut end = LrAttrEnd { lr_attr_attrs: set, lr_attr_crtime: [5, 6], ..LrAttrEnd::default() };
    77u64.put(&mut end.lr_attr_scanstamp[..8], order);
    end.put(&mut bytes[LrAttr::SIZE + 8..], order);
    bytes
}

#[test]
fn records_of_both_byte_orders_are_understood() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let bytes = record(TxType(TxType::CREATE.0 | TX_CI), (12, 1), &create(), b"name\0", order);
        let Ok(Record::Create(made)) = decode(&bytes, order) else { panic!("{:?}", decode(&bytes, order)) };
        assert_eq!((made.made, made.directory, made.object, made.slots), (Made::Plain, ObjectId(34), ObjectId(7), 2));
        assert_eq!((made.mode, made.uid, made.gid, made.generation, made.crtime), (0o100_640, 1000, 100, 12, (1_700_000_000, 5)));
        assert_eq!((made.name, made.attributes), (&b"name"[..], None));
        let tail = [attributes(0x4_0041, 0x40, order), b"dir\0".to_vec()].concat();
        let bytes = record(TxType::MKDIR_ATTR, (12, 1), &LrCreate { lr_mode: 0o040_755, ..create() }, &tail, order);
        let Ok(Record::Create(made)) = decode(&bytes, order) else { panic!("{:?}", decode(&bytes, order)) };
        let given = made.attributes.expect("attributes");
        assert_eq!((made.name, given.mask, given.set, given.crtime, given.project), (&b"dir"[..], 0x4_0041, 0x40, Some((5, 6)), Some(77)));
        let link = LrCreate { lr_mode: 0o120_777, lr_rdev: 99, ..create() };
        let bytes = record(TxType::SYMLINK, (12, 1), &link, b"a\0b/c\0", order);
        let Ok(Record::Create(made)) = decode(&bytes, order) else { panic!("{:?}", decode(&bytes, order)) };
        assert_eq!((made.name, made.target, made.slots, made.rdev), (&b"a"[..], &b"b/c"[..], 1, 0));
        let rename = LrRename { lr_sdoid: 34, lr_tdoid: 35, ..LrRename::default() };
        let whiteout = LrRenameWhiteout { lr_rename: rename.clone(), lr_wfoid: 9, lr_wmode: 0o020_000, ..LrRenameWhiteout::default() };
        let bytes = record(TxType::RENAME_WHITEOUT, (12, 1), &whiteout, b"x\0y\0", order);
        let Ok(Record::Rename(moved)) = decode(&bytes, order) else { panic!("{:?}", decode(&bytes, order)) };
        assert_eq!((moved.from, moved.to), ((ObjectId(34), &b"x"[..]), (ObjectId(35), &b"y"[..])));
        assert!(matches!(moved.kind, RenameKind::Whiteout(left) if left.object == ObjectId(9) && left.name == b"x"));
        let bytes = record(TxType::RENAME_EXCHANGE, (12, 1), &rename, b"x\0y\0", order);
        assert!(matches!(decode(&bytes, order), Ok(Record::Rename(moved)) if moved.kind == RenameKind::Exchange));
        let fixed = LrWrite { lr_foid: 7, lr_offset: 10, lr_length: 3, ..LrWrite::default() };
        let bytes = record(TxType::WRITE, (12, 1), &fixed, b"abc", order);
        assert!(matches!(decode(&bytes, order), Ok(Record::Write(write)) if write.source == Source::Record(b"abc") && write.end == 13));
        let fixed = LrWrite { lr_offset: 3 * LOG_BYTES as u64 + 8, lr_blkptr: data_pointer(1, 9), ..fixed };
        let bytes = record(TxType::WRITE, (12, 1), &fixed, &[], order);
        let Ok(Record::Write(write)) = decode(&bytes, order) else { panic!("{:?}", decode(&bytes, order)) };
        assert_eq!((write.offset, write.length(), write.end), (3 * LOG_BYTES as u64, LOG_BYTES as u64, 3 * LOG_BYTES as u64 + 11));
        let block = LOG_BYTES as u64;
        let fixed =
            LrCloneRange { lr_foid: 7, lr_offset: 3 * block, lr_length: block + 5, lr_blksz: block, lr_nbps: 2, ..LrCloneRange::default() };
        let mut pointers = vec![0; 2 * BlockPtr::BYTES];
        data_pointer(1, 9).put(&mut pointers, order);
        let bytes = record(TxType::CLONE_RANGE, (12, 1), &fixed, &pointers, order);
        let Ok(Record::Clone(shared)) = decode(&bytes, order) else { panic!("{:?}", decode(&bytes, order)) };
        assert_eq!((shared.object, shared.offset, shared.end), (ObjectId(7), 3 * block, 4 * block + 5));
        assert_eq!(shared.pointers().collect::<Vec<_>>(), [data_pointer(1, 9), BlockPtr::HOLE]);
        assert_eq!(shared_blocks(&bytes, order).expect("a sound record").count(), 1);
        for damaged in [LrCloneRange { lr_nbps: 3, ..fixed.clone() }, LrCloneRange { lr_blksz: 0, ..fixed.clone() }] {
            let bytes = record(TxType::CLONE_RANGE, (12, 1), &damaged, &pointers, order);
            assert!(matches!(decode(&bytes, order), Err(RecordError::Damaged(_))));
        }
        let fixed = LrSetSaXattr { lr_foid: 7, lr_size: 2, ..LrSetSaXattr::default() };
        let bytes = record(TxType::SETSAXATTR, (12, 1), &fixed, b"user.a\0vw", order);
        assert_eq!(decode(&bytes, order), Ok(Record::SetXattr { object: ObjectId(7), name: b"user.a", value: b"vw" }));
        let fixed = LrTruncate { lr_foid: 7, lr_offset: 5, lr_length: 0, ..LrTruncate::default() };
        let bytes = record(TxType::TRUNCATE, (12, 1), &fixed, &[], order);
        assert_eq!(decode(&bytes, order), Ok(Record::Truncate { object: ObjectId(7), offset: 5, length: 0 }));
    }
}

/// If this fails, a chmod of FreeBSD becomes a chown of Linux.
#[test]
fn the_two_kernels_masks_are_told_apart() {
    let set = |mask: u64| {
        let fixed = LrSetattr { lr_foid: 7, lr_mask: mask, lr_mode: 0o600, lr_uid: 1, lr_gid: 2, lr_size: 3, ..LrSetattr::default() };
        let bytes = record(TxType::SETATTR, (12, 1), &fixed, &attributes(0, 0, ByteOrder::Little), ByteOrder::Little);
        match decode(&bytes, ByteOrder::Little) {
            Ok(Record::SetAttributes(set)) => (set.mode, set.uid, set.gid, set.size, set.atime.is_some(), set.mtime.is_some()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(set(0x41), (Some(0o600), None, None, None, false, false), "Linux's chmod");
    assert_eq!(set(0x46), (None, Some(1), Some(2), None, false, false), "Linux's chown");
    assert_eq!(set(0x8), (None, None, None, Some(3), false, false), "Linux's truncate");
    assert_eq!(set(0x70), (None, None, None, None, true, true), "Linux's utimensat");
    assert_eq!(set(0x2), (Some(0o600), None, None, None, false, false), "FreeBSD's chmod");
    assert_eq!(set(0xc), (None, Some(1), Some(2), None, false, false), "FreeBSD's chown");
    assert_eq!(set(0x80), (None, None, None, Some(3), false, false), "FreeBSD's truncate");
    assert_eq!(set(0x300), (None, None, None, None, true, true), "FreeBSD's utimensat");
}

/// Whatever a record says, it is refused in words and never believed; what OpenZFS may write and is not known here keeps the pool as it is.
#[test]
fn damaged_records_are_refused() {
    let order = ByteOrder::Little;
    let is_damaged = |bytes: &[u8]| matches!(decode(bytes, order), Err(RecordError::Damaged(_)));
    let made = |change: &dyn Fn(&mut LrCreate), tail: &[u8]| {
        let mut fixed = create();
        change(&mut fixed);
        record(TxType::CREATE, (12, 1), &fixed, tail, order)
    };
    assert!(decode(&made(&|_| {}, b"a\0"), order).is_ok());
    for name in [&b"no end.."[..], b"..\0", b"\0", b"a/b\0"] {
        assert!(is_damaged(&made(&|_| {}, name)), "{name:?}");
    }
    assert!(is_damaged(&made(&|fixed| fixed.lr_foid = 0, b"a\0")));
    assert!(is_damaged(&made(&|fixed| fixed.lr_doid = 0, b"a\0")));
    assert!(is_damaged(&made(&|fixed| fixed.lr_foid = 7 | 200 << 56, b"a\0")), "a dnode of 201 slots");
    assert!(is_damaged(&made(&|fixed| fixed.lr_mode = 0o040_755, b"a\0")), "a directory that is made as a file");
    assert!(is_damaged(&made(&|fixed| fixed.lr_crtime = [0, u64::MAX], b"a\0")));
    assert!(matches!(decode(&made(&|fixed| fixed.lr_uid = 1 << 32, b"a\0"), order), Err(RecordError::Unsupported(_))));
    let link = LrLink { lr_doid: 34, lr_link_obj: 1 << 48, ..LrLink::default() };
    assert!(is_damaged(&record(TxType::LINK, (12, 1), &link, b"a\0", order)));
    for (offset, length) in [(u64::MAX, 2), (i64::MAX as u64, 1), (0, 100)] {
        let fixed = LrWrite { lr_foid: 7, lr_offset: offset, lr_length: length, ..LrWrite::default() };
        assert!(is_damaged(&record(TxType::WRITE, (12, 1), &fixed, b"abc", order)), "{offset} {length}");
    }
    let fixed = LrWrite { lr_foid: 7, lr_offset: 4000, lr_length: 200, lr_blkptr: data_pointer(1, 9), ..LrWrite::default() };
    assert!(is_damaged(&record(TxType::WRITE, (12, 1), &fixed, &[], order)), "beyond the block");
    let fixed = LrSetSaXattr { lr_foid: 7, lr_size: 100, ..LrSetSaXattr::default() };
    assert!(is_damaged(&record(TxType::SETSAXATTR, (12, 1), &fixed, b"user.a\0v", order)));
    for kind in (0..40).chain([u64::MAX]) {
        for bytes in [32, 40, 48, 56, 104, 112, 192, 200] {
            let mut bytes = vec![0xff; bytes];
            LrCommon { lrc_txtype: kind, lrc_reclen: bytes.len() as u64, lrc_txg: 12, lrc_seq: 1 }.put(&mut bytes[..32], order);
            assert!(decode(&bytes, order).is_err(), "type {kind}, {} bytes", bytes.len());
        }
    }
}
