//! Forms of what comes as it is stored: blocks as they are stored, dnodes of which nobody here can read the bonus, and what an object set keeps for them.

use crate::BlockWrite;
use abd::{Abd, AbdPart};
use crypt::{Guard, KEY_VERSION, Seal};
use exec::Mutex;
use ondisk::{BlockId, BlockPtr, Checksum, Compression, ObjectType, SECTOR_BYTES, Txg};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

/// Most copies of a block that is encrypted: its third address has its salt.
const ENCRYPTED_COPIES_MAX: u8 = 2;

/// Marks of a block that was encrypted or signed elsewhere; of what is only signed, salt and vector do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Salt of the block's key.
    pub salt: [u8; 8],
    /// Initialization vector.
    pub iv: [u8; 12],
    /// Message authentication code.
    pub mac: [u8; 16],
}

/// Form of a block whose bytes are those that are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub lsize: usize,
    pub compression: Compression,
    /// Marks of what is encrypted or signed; None of what is only compressed.
    pub marks: Option<Marks>,
}

impl Form {
    /// Protection of a block of this type, as the store is to write it.
    pub(crate) fn seal(&self, kind: ObjectType) -> Seal {
        let guard = |Marks { salt, iv, mac }| Guard::new(Some(mac), kind.is_encrypted().then_some((salt, iv)));
        Seal::Stored { lsize: self.lsize, guard: self.marks.map(guard) }
    }

    /// Logical bytes of what is only compressed; None of what is encrypted, and where there are none.
    pub(super) fn open(&self, stored: &Abd) -> Option<Abd> {
        if self.marks.is_some() {
            return None;
        }
        let mut whole = AbdPart::scratch(self.lsize);
        let stored = stored.to_contiguous();
        kernels::decompress(self.compression, stored.as_contiguous()?, &mut whole).ok()?;
        Some(whole.freeze())
    }
}

/// A block as it is stored.
#[derive(Clone, Debug)]
pub struct StoredBlock {
    /// Bytes that the devices get: compressed first, then perhaps encrypted.
    pub data: Abd,
    /// Bytes of the block once it is decrypted and decompressed.
    pub lsize: usize,
    /// Compression of the bytes, before they were encrypted.
    pub compression: Compression,
    /// Marks for the block's pointer; None of what is only compressed.
    pub marks: Option<Marks>,
}

impl StoredBlock {
    pub(super) fn form(&self) -> Form {
        Form { lsize: self.lsize, compression: self.compression, marks: self.marks }
    }

    /// True for what can lie in a pool: whole sectors, no more than the block has, and, where that can be told, those of a block.
    pub(super) fn is_possible(&self, most: usize) -> bool {
        let is_whole = |bytes: usize| bytes > 0 && bytes.is_multiple_of(SECTOR_BYTES);
        is_whole(self.data.len())
            && is_whole(self.lsize)
            && self.data.len() <= self.lsize
            && self.lsize <= most
            && (self.marks.is_some() || self.form().open(&self.data).is_some())
    }
}

/// Facts of an object that comes raw.
#[derive(Clone, Debug)]
pub struct SealedObject {
    /// Levels of its tree, also where fewer would reach its blocks.
    pub levels: u8,
    /// Largest block, also where it is a hole.
    pub max_block: BlockId,
    /// The object's own checksum.
    pub checksum: Checksum,
    /// The object's own compression.
    pub compression: Compression,
    /// Bytes of the bonus as they are stored, to the end of its room; empty without one.
    pub bonus: Vec<u8>,
    /// Number of these that count once they are decrypted.
    pub bonus_len: usize,
}

/// Facts of an object set that comes raw.
#[derive(Default)]
pub(crate) struct Sealed {
    is_sealed: AtomicBool,
    noted: Mutex<Noted>,
}

/// Marks of blocks of dnodes, from when they come until the block is on disk with all that comes for it: its pointer has them then. Streams go forward, so
/// that this is so once the txg is through in which the next block began.
#[derive(Default)]
struct Noted {
    marks: BTreeMap<u64, Marks>,
    /// Blocks that a txg writes, be it for their marks alone.
    touched: BTreeMap<Txg, BTreeSet<u64>>,
    /// Block whose marks came last: its objects come now.
    last: Option<u64>,
    /// Blocks behind which another one began, by the txg in which that was.
    left: BTreeMap<Txg, BTreeSet<u64>>,
}

impl Noted {
    fn note(&mut self, block: u64, marks: Marks, txg: Txg) {
        // It comes once more.
        for left in self.left.values_mut() {
            left.remove(&block);
        }
        if let Some(last) = self.last.replace(block).filter(|last| *last != block) {
            self.left.entry(txg).or_default().insert(last);
        }
        self.marks.insert(block, marks);
        self.touched.entry(txg).or_default().insert(block);
    }

    /// Begins a txg: all before it are through. Gives the blocks that it writes.
    fn begin(&mut self, txg: Txg) -> Vec<u64> {
        let later = self.left.split_off(&txg);
        for block in std::mem::replace(&mut self.left, later).into_values().flatten() {
            self.marks.remove(&block);
        }
        self.touched.get(&txg).into_iter().flatten().copied().collect()
    }
}

impl Sealed {
    /// Notes that bonuses are such as nobody here can read.
    pub(crate) fn begin(&self) {
        self.is_sealed.store(true, Ordering::Release);
    }
    /// True where bonuses are kept to the end of their room.
    pub(crate) fn is_sealed(&self) -> bool {
        self.is_sealed.load(Ordering::Acquire)
    }
    /// Notes the marks of a block of dnodes, which is written in `txg`.
    pub(crate) fn note(&self, block: u64, marks: Marks, txg: Txg) {
        self.noted.lock().note(block, marks, txg);
    }
    /// Form of a block of dnodes in the place of `old`: with the marks that came, else with those that it had. None of one in which no dnode is left,
    /// and of which no marks came: it becomes a hole, as it did where it comes from.
    pub(crate) fn form_of_dnodes(&self, block: u64, data: &Abd, old: &BlockPtr) -> Option<Form> {
        let came = self.noted.lock().marks.get(&block).copied();
        if !self.is_sealed() || came.is_none() && data.is_zero() {
            return None;
        }
        let had = || if old.is_encrypted() { Marks { salt: old.salt(), iv: old.iv(), mac: old.mac() } } else { Marks::default() };
        Some(Form { lsize: data.len(), compression: Compression::OFF, marks: Some(came.unwrap_or_else(had)) })
    }
    /// Puts into a write how its block is protected without a key: of a form as it came, a block of pointers by its hash, a root by what is in it.
    pub(crate) fn protect(&self, write: &mut BlockWrite, form: Option<Form>) {
        match form {
            Some(form) => {
                write.seal = Some(form.seal(write.object_type));
                write.compression = form.compression;
                let most = if form.marks.is_some() && write.object_type.is_encrypted() { ENCRYPTED_COPIES_MAX } else { write.copies };
                write.copies = write.copies.min(most);
            }
            None if !self.is_sealed() => {}
            None if write.level > 0 => write.seal = Some(Seal::Pointers { version: KEY_VERSION }),
            None => {
                write.compression = Compression::EMPTY;
                write.seal = (write.object_type == ObjectType::OBJSET).then_some(Seal::Root);
            }
        }
    }
    /// Blocks that are to be written in `txg`, with which the object set is about to begin.
    pub(crate) fn touched(&self, txg: Txg) -> Vec<u64> {
        self.noted.lock().begin(txg)
    }
    /// The blocks of `txg` are about to be written.
    pub(crate) fn took(&self, txg: Txg) {
        self.noted.lock().touched.remove(&txg);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(byte: u8) -> Marks {
        Marks { salt: [byte; 8], iv: [byte; 12], mac: [byte; 16] }
    }

    /// If the first fails, a long receive takes memory for as long as it lasts; if the second does, blocks of dnodes get marks that are not theirs,
    /// and nobody can read what came.
    #[test]
    fn marks_are_kept_until_their_block_is_on_disk_with_all_that_comes_for_it() {
        // Blocks of each txg, of which the last goes on in the next one; also none, and one that goes on for three.
        let sealed = Sealed::default();
        sealed.begin();
        let (mut next, mut most) = (0_u64, 0);
        for txg in 0..200_u64 {
            let count = [3, 1, 40, 0, 0, 1][(txg % 6) as usize];
            let before = next.checked_sub(1);
            for _ in 0..count {
                sealed.note(next, marks(next as u8), Txg(txg));
                next += 1;
            }
            // The one before is synced meanwhile, and what came in this one is not asked for yet.
            let Some(synced) = txg.checked_sub(1).map(Txg) else { continue };
            let touched = sealed.touched(synced);
            let is_kept = |block: u64| sealed.form_of_dnodes(block, &Abd::zeroed(512), &BlockPtr::HOLE).and_then(|form| form.marks);
            for block in touched.iter().copied().chain(before).chain(next.checked_sub(1)) {
                assert_eq!(is_kept(block), Some(marks(block as u8)), "block {block} in txg {txg}");
            }
            sealed.took(synced);
            most = most.max(sealed.noted.lock().marks.len());
        }
        assert!(next > 1400 && most < 100, "{most} of {next} are kept");
        let noted = sealed.noted.lock();
        assert!(noted.left.len() <= 2 && noted.touched.len() <= 1, "{:?}, {:?}", noted.left, noted.touched);
    }

    /// If this fails, a stream that comes to a block once more has it written with no marks.
    #[test]
    fn marks_that_come_once_more_count_anew() {
        let sealed = Sealed::default();
        sealed.begin();
        for (block, txg) in [(0, 1), (1, 1), (0, 2), (2, 3)] {
            sealed.note(block, marks(block as u8 + txg as u8), Txg(txg));
        }
        let kept = |sealed: &Sealed| sealed.noted.lock().marks.keys().copied().collect::<Vec<u64>>();
        assert_eq!(sealed.touched(Txg(1)), [0, 1]);
        assert_eq!((sealed.touched(Txg(2)), kept(&sealed)), (vec![0], vec![0, 1, 2]));
        assert_eq!((sealed.touched(Txg(3)), kept(&sealed)), (vec![2], vec![0, 2]), "the first goes on until the third begins");
        assert_eq!((sealed.touched(Txg(4)), kept(&sealed)), (vec![], vec![2]));
    }
}
