//! Records as they are written: the inverse of [`Record::decode`], in the byte order that everything here is written in.
//!
//! What the log knows only when it writes a record stays zero: number, txg, and the bytes or the block of a write.

use super::create::{Create, Made, NewAttributes};
use super::setattr::SetAttributes;
use super::{Record, RenameKind, Source, WriteRecord};
use ondisk::zil::{
    LrAttr, LrAttrEnd, LrCloneRange, LrCommon, LrCreate, LrLink, LrRemove, LrRename, LrRenameWhiteout, LrSetSaXattr, LrTruncate, LrWrite,
    TxType, foid,
};
use ondisk::{BlockPtr, ByteOrder, Field, ObjectId};

const ORDER: ByteOrder = ByteOrder::Little;
/// Bytes that records are multiples of.
const ALIGNMENT: usize = 8;
/// Words of requested attributes in which the last two are always zero.
const REQUESTED_WORDS: u32 = 3;
const MORE_REQUESTED_BYTES: usize = 8;
/// Bytes of the place that has the project: a virus scanner's stamp by name.
const STAMP_BYTES: usize = 32;

/// Record under construction.
struct Writer(Vec<u8>);

impl Writer {
    /// Begins with the fixed part; `rest` is the number of bytes that follow.
    fn new<R: Field>(fixed: &R, rest: usize) -> Writer {
        let mut bytes = Vec::with_capacity((R::BYTES + rest).next_multiple_of(ALIGNMENT));
        bytes.resize(R::BYTES, 0);
        fixed.put(&mut bytes, ORDER);
        Writer(bytes)
    }

    fn bytes(mut self, bytes: &[u8]) -> Writer {
        self.0.extend_from_slice(bytes);
        self
    }

    /// A text, with the zero byte that ends it.
    fn text(self, text: &[u8]) -> Writer {
        self.bytes(text).bytes(&[0])
    }

    fn attributes(self, given: Option<&NewAttributes>) -> Writer {
        let Some(given) = given else { return self };
        let start = LrAttr { lr_attr_masksize: REQUESTED_WORDS, lr_attr_bitmap: given.mask as u32 };
        let mut stamp = [0; STAMP_BYTES];
        stamp[..8].copy_from_slice(&given.project.unwrap_or(0).to_le_bytes());
        let (seconds, nanoseconds) = given.crtime.unwrap_or_default();
        let crtime = [seconds as u64, u64::from(nanoseconds)];
        let end = LrAttrEnd { lr_attr_attrs: given.set, lr_attr_crtime: crtime, lr_attr_scanstamp: stamp };
        self.bytes(&start.encode()).bytes(&[0; MORE_REQUESTED_BYTES]).bytes(&end.encode())
    }

    /// Ends the record: pads it, and says in its header what it is and how long.
    fn end(mut self, kind: TxType) -> Vec<u8> {
        self.0.resize(self.0.len().next_multiple_of(ALIGNMENT), 0);
        let common = LrCommon { lrc_txtype: kind.0, lrc_reclen: self.0.len() as u64, ..LrCommon::default() };
        common.put(&mut self.0[..LrCommon::SIZE], ORDER);
        self.0
    }
}

/// Record of a write of so many bytes at an offset, without its bytes or its block: whoever writes it adds them.
pub fn write_header(object: ObjectId, offset: u64, length: u64) -> Vec<u8> {
    write(object, (offset, length), BlockPtr::HOLE, &[])
}

fn write(object: ObjectId, (offset, length): (u64, u64), bp: BlockPtr, data: &[u8]) -> Vec<u8> {
    let fixed = LrWrite { lr_foid: object.0, lr_offset: offset, lr_length: length, lr_blkptr: bp, ..LrWrite::default() };
    Writer::new(&fixed, data.len()).bytes(data).end(TxType::WRITE)
}

impl Record<'_> {
    /// Bytes of the record, a multiple of 8; its header has the kind and the length.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Record::Create(create) => create.encode(),
            Record::Remove(remove) => {
                let fixed = LrRemove { lr_doid: remove.directory.0, ..LrRemove::default() };
                let kind = if remove.is_directory { TxType::RMDIR } else { TxType::REMOVE };
                Writer::new(&fixed, remove.name.len() + 1).text(remove.name).end(kind)
            }
            Record::Link(link) => {
                let fixed = LrLink { lr_doid: link.directory.0, lr_link_obj: link.object.0, ..LrLink::default() };
                Writer::new(&fixed, link.name.len() + 1).text(link.name).end(TxType::LINK)
            }
            Record::Rename(rename) => {
                let names = rename.from.1.len() + rename.to.1.len() + 2;
                let fixed = LrRename { lr_sdoid: rename.from.0.0, lr_tdoid: rename.to.0.0, ..LrRename::default() };
                let (begun, kind) = match &rename.kind {
                    RenameKind::Replace => (Writer::new(&fixed, names), TxType::RENAME),
                    RenameKind::Exchange => (Writer::new(&fixed, names), TxType::RENAME_EXCHANGE),
                    RenameKind::Whiteout(left) => (Writer::new(&left.left_by(fixed), names), TxType::RENAME_WHITEOUT),
                };
                begun.text(rename.from.1).text(rename.to.1).end(kind)
            }
            Record::Write(written) => written.encode(),
            Record::Clone(shared) => {
                let fixed = LrCloneRange {
                    lr_foid: shared.object.0,
                    lr_offset: shared.offset,
                    lr_length: shared.end.saturating_sub(shared.offset),
                    lr_blksz: shared.block,
                    lr_nbps: shared.pointers().count() as u64,
                    ..LrCloneRange::default()
                };
                let begun = Writer::new(&fixed, fixed.lr_nbps as usize * BlockPtr::BYTES);
                shared.pointers().fold(begun, |writer, bp| writer.bytes(&bp.encode())).end(TxType::CLONE_RANGE)
            }
            Record::Extend { object, end } => {
                let fixed = LrWrite { lr_foid: object.0, lr_length: *end, ..LrWrite::default() };
                Writer::new(&fixed, 0).end(TxType::WRITE2)
            }
            Record::Truncate { object, offset, length } => {
                let fixed = LrTruncate { lr_foid: object.0, lr_offset: *offset, lr_length: *length, ..LrTruncate::default() };
                Writer::new(&fixed, 0).end(TxType::TRUNCATE)
            }
            Record::SetAttributes(set) => set.encode(),
            Record::SetXattr { object, name, value } => {
                let fixed = LrSetSaXattr { lr_foid: object.0, lr_size: value.len() as u64, ..LrSetSaXattr::default() };
                Writer::new(&fixed, name.len() + 1 + value.len()).text(name).bytes(value).end(TxType::SETSAXATTR)
            }
        }
    }
}

impl WriteRecord<'_> {
    fn encode(&self) -> Vec<u8> {
        let range = (self.offset, self.end.saturating_sub(self.offset));
        match self.source {
            Source::Record(data) => write(self.object, range, BlockPtr::HOLE, data),
            Source::Block(bp) => write(self.object, range, bp, &[]),
        }
    }
}

impl Create<'_> {
    fn encode(&self) -> Vec<u8> {
        let (seconds, nanoseconds) = self.crtime;
        let slots = if self.made == Made::Symlink { 1 } else { self.slots };
        let fixed = LrCreate {
            lr_doid: self.directory.0,
            lr_foid: foid::encode(self.object, usize::from(slots)),
            lr_mode: self.mode,
            lr_uid: u64::from(self.uid),
            lr_gid: u64::from(self.gid),
            lr_gen: self.generation,
            lr_crtime: [seconds as u64, u64::from(nanoseconds)],
            lr_rdev: if self.made == Made::Symlink { 0 } else { self.rdev },
            ..LrCreate::default()
        };
        let kind = match (self.made, self.attributes) {
            (Made::Plain, None) => TxType::CREATE,
            (Made::Plain, Some(_)) => TxType::CREATE_ATTR,
            (Made::Directory, None) => TxType::MKDIR,
            (Made::Directory, Some(_)) => TxType::MKDIR_ATTR,
            (Made::XattrDirectory, _) => TxType::MKXATTR,
            (Made::Symlink, _) => TxType::SYMLINK,
        };
        let has_attributes = matches!(kind, TxType::CREATE_ATTR | TxType::MKDIR_ATTR);
        let optional = LrAttr::SIZE + MORE_REQUESTED_BYTES + LrAttrEnd::SIZE;
        let rest = self.name.len() + self.target.len() + 2 + if has_attributes { optional } else { 0 };
        let begun = Writer::new(&fixed, rest).attributes(self.attributes.as_ref().filter(|_| has_attributes)).text(self.name);
        let whole = if self.made == Made::Symlink { begun.text(self.target) } else { begun };
        whole.end(kind)
    }

    /// Fixed part of a renaming that leaves this node.
    fn left_by(&self, rename: LrRename) -> LrRenameWhiteout {
        let (seconds, nanoseconds) = self.crtime;
        LrRenameWhiteout {
            lr_rename: rename,
            lr_wfoid: foid::encode(self.object, usize::from(self.slots)),
            lr_wmode: self.mode,
            lr_wuid: u64::from(self.uid),
            lr_wgid: u64::from(self.gid),
            lr_wgen: self.generation,
            lr_wcrtime: [seconds as u64, u64::from(nanoseconds)],
            lr_wrdev: self.rdev,
        }
    }
}

impl SetAttributes {
    fn encode(&self) -> Vec<u8> {
        Writer::new(&self.fixed(), LrAttr::SIZE + MORE_REQUESTED_BYTES + LrAttrEnd::SIZE)
            .attributes(self.attributes.as_ref())
            .end(TxType::SETATTR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::record;
    use crate::{Link, Remove, Rename, Time};
    use ondisk::zil::LrSetattr;
    use ondisk::{Dva, Txg, VdevId};

    const NAMES: [&[u8]; 6] = [b"a", b"sevenof", b"eight888", &[b'n'; 255], &[0xC3; 1023], b" \xFF\x01'*\n"];
    const CRTIME: Time = (1_600_000_000, 999_999_999);

    fn create(made: Made, mode: u64) -> Create<'static> {
        let (directory, object) = (ObjectId(34), ObjectId((1 << 48) - 1));
        let (uid, gid, generation, rdev) = (u32::MAX, 100, 1 << 40, if made == Made::Plain { 8 << 20 | 1 } else { 0 });
        let slots = if made == Made::Symlink { 1 } else { 32 };
        Create {
            made,
            directory,
            object,
            slots,
            mode,
            uid,
            gid,
            generation,
            crtime: CRTIME,
            rdev,
            name: b"",
            target: b"",
            attributes: None,
        }
    }

    fn block() -> BlockPtr {
        let mut bp = BlockPtr::HOLE;
        bp.set_dva(0, Dva { vdev: VdevId(0), offset: 1 << 20, asize: 1 << 14, gang: false });
        bp.set_lsize(1 << 14);
        bp.set_psize(1 << 14);
        bp.set_birth(Txg(5), Txg(5));
        bp
    }

    /// Every kind of record; those that have names with this one.
    fn all(name: &'static [u8]) -> Vec<Record<'static>> {
        let (object, directory) = (ObjectId(7), ObjectId(34));
        let given = NewAttributes { mask: 0x4_0041, set: 0x40, crtime: Some((-5, 1)), project: Some(u64::MAX) };
        let plain = SetAttributes { object, mode: None, uid: None, gid: None, size: None, atime: None, mtime: None, attributes: None };
        let rename = |kind| Record::Rename(Rename { from: (directory, name), to: (object, b"another"), kind });
        vec![
            Record::Create(Create { name, ..create(Made::Plain, 0o100_644) }),
            Record::Create(Create { name, attributes: Some(given), ..create(Made::Plain, 0o020_600) }),
            Record::Create(Create { name, ..create(Made::Directory, 0o042_755) }),
            Record::Create(Create { name, attributes: Some(given), ..create(Made::Directory, 0o040_755) }),
            Record::Create(create(Made::XattrDirectory, 0o041_777)),
            Record::Create(Create { name, target: &[b'/'; 4095], ..create(Made::Symlink, 0o120_777) }),
            Record::Create(Create { name, target: b"x", ..create(Made::Symlink, 0o120_777) }),
            Record::Remove(Remove { directory, name, is_directory: false }),
            Record::Remove(Remove { directory, name, is_directory: true }),
            Record::Link(Link { directory, object, name }),
            rename(RenameKind::Replace),
            rename(RenameKind::Exchange),
            rename(RenameKind::Whiteout(Create { directory, name, ..create(Made::Plain, 0o020_000) })),
            Record::Write(WriteRecord { object, offset: 3, end: 10, source: Source::Record(b"1234567") }),
            Record::Write(WriteRecord { object, offset: 1 << 14, end: (1 << 14) + 5, source: Source::Block(block()) }),
            Record::Extend { object, end: 12_345 },
            Record::Truncate { object, offset: 1 << 40, length: 0 },
            Record::Truncate { object, offset: 5, length: 1 << 40 },
            Record::SetAttributes(SetAttributes { mode: Some(0o104_711), ..plain }),
            Record::SetAttributes(SetAttributes { uid: Some(1), gid: Some(2), ..plain }),
            Record::SetAttributes(SetAttributes { size: Some(0), ..plain }),
            Record::SetAttributes(SetAttributes { uid: Some(1), size: Some(1 << 50), ..plain }),
            Record::SetAttributes(SetAttributes { atime: Some((-1, 5)), mtime: Some(CRTIME), ..plain }),
            Record::SetAttributes(SetAttributes { attributes: Some(given), ..plain }),
            Record::SetXattr { object, name, value: b"" },
            Record::SetXattr { object, name, value: &[9; 32768] },
        ]
    }

    fn decode(bytes: &[u8]) -> Record<'_> {
        let common = LrCommon::decode(bytes).expect("a header");
        assert_eq!((common.lrc_reclen, bytes.len() % 8), (bytes.len() as u64, 0), "the length is that of the record");
        Record::decode(&common, bytes, ORDER).expect("a record")
    }

    /// If this fails, what a program made durable is another operation after a crash, or ends its log.
    #[test]
    fn records_say_what_they_were_made_of() {
        for name in NAMES {
            for made in all(name) {
                let bytes = made.encode();
                assert_eq!(decode(&bytes), made);
                assert!(bytes.capacity() < bytes.len() + 96, "no more memory than the record needs");
            }
        }
    }

    /// If this fails, OpenZFS replays something else, or refuses the log.
    #[test]
    fn records_are_laid_out_as_openzfs_lays_them_out() {
        let (object, directory) = (ObjectId(7), ObjectId(34));
        let same = |made: Record<'_>, kind, bytes: Vec<u8>| {
            let mut wanted = bytes;
            // The txg and the number are filled in by whoever writes the record.
            wanted[16..32].fill(0);
            assert_eq!((made.encode(), LrCommon::decode(&wanted).map(|common| TxType(common.lrc_txtype))), (wanted, Ok(kind)));
        };
        let fixed = LrRemove { lr_doid: 34, ..LrRemove::default() };
        let made = Record::Remove(Remove { directory, name: b"gone", is_directory: true });
        same(made, TxType::RMDIR, record(TxType::RMDIR, (5, 6), &fixed, b"gone\0", ORDER));
        let fixed = LrRename { lr_sdoid: 34, lr_tdoid: 7, ..LrRename::default() };
        let left = create(Made::Plain, 0o020_000);
        let whiteout = left.left_by(fixed);
        assert_eq!(whiteout.lr_wfoid, 31 << 56 | 0xFFFF_FFFF_FFFF);
        let made = Record::Rename(Rename { from: (directory, b"a"), to: (object, b"b"), kind: RenameKind::Whiteout(left) });
        same(made, TxType::RENAME_WHITEOUT, record(TxType::RENAME_WHITEOUT, (5, 6), &whiteout, b"a\0b\0", ORDER));
        // Linux's bits, not FreeBSD's.
        let set = SetAttributes {
            object,
            mode: Some(0o100_600),
            uid: None,
            gid: Some(3),
            size: None,
            atime: None,
            mtime: None,
            attributes: None,
        };
        let fixed = LrSetattr { lr_foid: 7, lr_mask: 0x45, lr_mode: 0o100_600, lr_gid: 3, ..LrSetattr::default() };
        same(Record::SetAttributes(set), TxType::SETATTR, record(TxType::SETATTR, (5, 6), &fixed, &[], ORDER));
        let given = NewAttributes { mask: 0x40, set: 0x40, crtime: None, project: None };
        let fixed = LrSetattr { lr_foid: 7, lr_mask: 1 << 31 | 0x40, ..LrSetattr::default() };
        let optional = [vec![3, 0, 0, 0, 0x40, 0, 0, 0], vec![0; 8], vec![0x40, 0, 0, 0, 0, 0, 0, 0], vec![0; 48]].concat();
        let set = SetAttributes { mode: None, gid: None, attributes: Some(given), ..set };
        same(Record::SetAttributes(set), TxType::SETATTR, record(TxType::SETATTR, (5, 6), &fixed, &optional, ORDER));
    }

    /// If this fails, a write that was made durable has other bytes, or none, after a crash.
    #[test]
    fn the_header_of_a_write_takes_its_bytes() {
        let mut bytes = write_header(ObjectId(7), 100, 5);
        assert_eq!(bytes.len(), LrWrite::SIZE, "OpenZFS takes a record of just this length for one of a block");
        bytes.extend_from_slice(b"12345\0\0\0");
        let common = LrCommon { lrc_reclen: bytes.len() as u64, ..LrCommon::decode(&bytes).expect("a header") };
        let wanted = WriteRecord { object: ObjectId(7), offset: 100, end: 105, source: Source::Record(b"12345") };
        assert_eq!(Record::decode(&common, &bytes, ORDER), Ok(Record::Write(wanted)));
    }
}
