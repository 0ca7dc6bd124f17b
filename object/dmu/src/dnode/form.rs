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

/// Facts of an object set that comes raw: marks of its blocks of dnodes, and those of the blocks that a txg writes for their marks alone.
#[derive(Default)]
pub(crate) struct Sealed {
    is_sealed: AtomicBool,
    marks: Mutex<BTreeMap<u64, Marks>>,
    touched: Mutex<BTreeMap<Txg, BTreeSet<u64>>>,
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
        self.marks.lock().insert(block, marks);
        self.touched.lock().entry(txg).or_default().insert(block);
    }
    /// Form of a block of dnodes in the place of `old`: with the marks that came, else with those that it had. None of one in which no dnode is left,
    /// and of which no marks came: it becomes a hole, as it did where it comes from.
    pub(crate) fn form_of_dnodes(&self, block: u64, data: &Abd, old: &BlockPtr) -> Option<Form> {
        let came = self.marks.lock().get(&block).copied();
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
    /// Blocks that are to be written in `txg`.
    pub(crate) fn touched(&self, txg: Txg) -> Vec<u64> {
        self.touched.lock().get(&txg).into_iter().flatten().copied().collect()
    }
    /// The blocks of `txg` are about to be written.
    pub(crate) fn took(&self, txg: Txg) {
        self.touched.lock().remove(&txg);
    }
}
