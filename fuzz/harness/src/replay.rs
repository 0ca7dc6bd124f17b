//! Records of intent logs, and of arenas: decoded, and replayed in a file system in memory, which must be sound afterwards.

use crate::objects::Files;
use dmu::TxgManager;
use dsl::Told;
use ondisk::zil::{
    LogRecords, LrAttr, LrAttrEnd, LrCreate, LrLink, LrRemove, LrRename, LrRenameWhiteout, LrSetSaXattr, LrSetattr, LrTruncate, LrWrite,
    TX_CI, TxType,
};
use ondisk::{ByteOrder, Field};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use zil::testing::record;
use zil::{Record, Source};
use zpl::{FileReplay, Space, SpaceSource};

/// Bit of the first byte: the records are told by an arena, and replayed in a file system of their own.
const OF_ARENA: u8 = 2;
/// Number of inputs that share a file system in memory.
const INPUTS_PER_POOL: u64 = 100;

/// Nobody who knows of space.
struct Boundless;

impl SpaceSource for Boundless {
    fn space(&self) -> Space {
        Space::default()
    }
}

thread_local! {
    static FILES: RefCell<Option<Files>> = const { RefCell::new(None) };
    static INPUTS: Cell<u64> = const { Cell::new(0) };
}

fn attributes(order: ByteOrder) -> Vec<u8> {
    let mut bytes = vec![0; LrAttr::SIZE + 8 + LrAttrEnd::SIZE];
    LrAttr { lr_attr_masksize: 3, lr_attr_bitmap: 0x7_ffff }.put(&mut bytes[..LrAttr::SIZE], order);
    LrAttrEnd { lr_attr_attrs: 0x40, ..LrAttrEnd::default() }.put(&mut bytes[LrAttr::SIZE + 8..], order);
    bytes
}

/// Seeds: each kind of record about the files that there are, some after one another.
pub fn log_record_seeds() -> Vec<Vec<u8>> {
    let files = Files::new();
    let root = files.zfs.root();
    let file = files.zfs.node(root).and_then(|root| files.zfs.lookup(&root, b"a")).map_or(0, |node| node.object().0);
    let root = root.0;
    let mut seeds = Vec::new();
    for (flag, order) in [(0u8, ByteOrder::Little), (1, ByteOrder::Big)] {
        let made = |kind, object, mode, tail: &[u8]| {
            let fixed = LrCreate { lr_doid: root, lr_foid: object, lr_mode: mode, lr_gen: 5, ..LrCreate::default() };
            record(kind, (5, 1), &fixed, tail, order)
        };
        let rename = LrRename { lr_sdoid: root, lr_tdoid: root, ..LrRename::default() };
        let left = LrRenameWhiteout { lr_rename: rename.clone(), lr_wfoid: 700, lr_wmode: 0o020_000, ..LrRenameWhiteout::default() };
        let write = LrWrite { lr_foid: file, lr_offset: 100, lr_length: 8, ..LrWrite::default() };
        let set = |mask| LrSetattr { lr_foid: file, lr_mask: mask, lr_mode: 0o600, lr_size: 1 << 20, ..LrSetattr::default() };
        let records = [
            made(TxType::CREATE, 600, 0o100_644, b"n\0"),
            made(TxType(TxType::MKDIR.0 | TX_CI), 601 | 1 << 56, 0o040_755, b"d\0"),
            made(TxType::MKDIR_ATTR, 602, 0o040_755, &[attributes(order), b"e\0".to_vec()].concat()),
            made(TxType::SYMLINK, 603, 0o120_777, b"l\0t\0"),
            record(TxType::REMOVE, (5, 1), &LrRemove { lr_doid: root, ..LrRemove::default() }, b"b\0", order),
            record(TxType::RMDIR, (5, 1), &LrRemove { lr_doid: root, ..LrRemove::default() }, b"d\0", order),
            record(TxType::LINK, (5, 1), &LrLink { lr_doid: root, lr_link_obj: file, ..LrLink::default() }, b"a2\0", order),
            record(TxType::RENAME, (5, 1), &rename, b"a\0c\0", order),
            record(TxType::RENAME_EXCHANGE, (5, 1), &rename, b"a\0b\0", order),
            record(TxType::RENAME_WHITEOUT, (5, 1), &left, b"a\0c\0", order),
            record(TxType::WRITE, (5, 1), &write, b"12345678", order),
            record(TxType::WRITE2, (5, 1), &write, &[], order),
            record(TxType::TRUNCATE, (5, 1), &LrTruncate { lr_foid: file, lr_offset: 10, ..LrTruncate::default() }, &[], order),
            record(TxType::SETATTR, (5, 1), &set(0x7f), &[], order),
            record(TxType::SETATTR, (5, 1), &set(1 << 31), &attributes(order), order),
            record(
                TxType::SETSAXATTR,
                (5, 1),
                &LrSetSaXattr { lr_foid: file, lr_size: 2, ..LrSetSaXattr::default() },
                b"user.x\0vv",
                order,
            ),
        ];
        seeds.extend(records.iter().map(|record| [&[flag][..], record].concat()));
        seeds.push([&[flag][..], &records.concat()].concat());
        seeds.push([&[flag | OF_ARENA][..], &records.concat()].concat());
    }
    seeds
}

/// Decodes and replays records: the first byte says in which byte order they are, and who tells of them.
pub fn log_record(data: &[u8]) {
    if data.first().is_some_and(|flag| flag & OF_ARENA != 0) {
        let files = Files::new();
        replay_told(&files, data);
        assert!(files.pool.sync().is_ok() && files.pool.check().is_ok(), "what a takeover leaves is sound");
        return;
    }
    INPUTS.set(INPUTS.get() + 1);
    FILES.with_borrow_mut(|slot| {
        if INPUTS.get().is_multiple_of(INPUTS_PER_POOL)
            && let Some(files) = slot.take()
        {
            assert!(files.pool.sync().is_ok() && files.pool.check().is_ok(), "what a replay leaves is sound");
        }
        replay(slot.get_or_insert_with(Files::new), data);
    });
}

/// Replays records; gives how many there were, and how many could be replayed.
fn replay(files: &Files, data: &[u8]) -> (usize, usize) {
    let [flag, records @ ..] = data else { return (0, 0) };
    let order = if flag % 2 == 0 { ByteOrder::Little } else { ByteOrder::Big };
    let txgs: &Arc<TxgManager> = &files.pool.txgs;
    let mut replay = FileReplay::records(files.zfs.clone(), Arc::new(Boundless));
    let (mut all, mut done) = (0, 0);
    for (common, bytes) in LogRecords::new(records, order) {
        all += 1;
        let Ok(decoded) = Record::decode(&common, bytes, order) else { continue };
        let bytes = match decoded {
            Record::Write(write) => match write.source {
                Source::Record(data) => data.to_vec(),
                Source::Block(_) => vec![7; write.length().min(1 << 20) as usize],
            },
            _ => Vec::new(),
        };
        let Ok(tx) = txgs.assign(0) else { break };
        done += usize::from(replay.replay(&decoded, common.lrc_txtype & TX_CI != 0, &bytes, &tx).is_ok());
    }
    (all, done)
}

/// Replays records as an arena tells of them, all in one transaction; gives how many could be replayed.
fn replay_told(files: &Files, data: &[u8]) -> usize {
    let [flag, records @ ..] = data else { return 0 };
    let order = if flag % 2 == 0 { ByteOrder::Little } else { ByteOrder::Big };
    let Ok(tx) = files.pool.txgs.assign(0) else { return 0 };
    let mut replay = FileReplay::told(files.zfs.clone(), Arc::new(Boundless));
    let mut done = 0;
    for (common, bytes) in LogRecords::new(records, order) {
        let told = match Record::decode(&common, bytes, order) {
            Ok(Record::Create(create)) if flag & 4 != 0 => Told::Nameless(create),
            Ok(Record::Link(link)) if flag & 4 != 0 => Told::Gone(link.object),
            Ok(Record::Write(write)) => match write.source {
                Source::Record(data) => Told::Record(Record::Write(write), data, false),
                Source::Block(_) => continue,
            },
            Ok(record) => Told::Record(record, &[], common.lrc_txtype & TX_CI != 0),
            Err(_) => continue,
        };
        done += usize::from(replay.replay_told(&told, (1, 2), &tx).is_ok());
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, the target mutates what no file system would take anyway, and finds nothing.
    #[test]
    fn seeds_are_replayed() {
        let (mut all, mut done) = (0, 0);
        for seed in log_record_seeds() {
            let (records, replayed) = replay(&Files::new(), &seed);
            (all, done) = (all + records, done + replayed);
        }
        let told = log_record_seeds().into_iter().filter(|seed| seed[0] & OF_ARENA != 0).map(|seed| replay_told(&Files::new(), &seed));
        assert!(told.sum::<usize>() > 10, "arenas are replayed too");
        // Some are about what an earlier one makes or takes away.
        assert!(all > 60 && done > all * 3 / 4, "{done} of {all}");
    }
}
