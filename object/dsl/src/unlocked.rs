//! The blocks of an encrypted dataset whose key is there: decrypted and authenticated on their way from the store, and handed to it with the key.
//!
//! The store keeps what is encrypted as it lies on the devices, so that no plaintext outlives the key there. Only pools of our own byte order are read.
//! Blocks of the intent log have salt and vector from when they are allocated. Nothing is shared or deduplicated.

use abd::{Abd, AbdPart};
use crypt::{CryptError, DataKey, LogKey, Protection, Seal, indirect_is_right, protection};
use dmu::{BlockError, BlockIo, BlockWrite, Keep, Landed, LandedDone, LogDone, LogIo, LogOwner, LogRoom, StoredDone, WriteDone};
use exec::Exec;
use kstat::IoStats;
use ondisk::{BlockPtr, Bookmark, Compression, Level, ObjectType, Txg};
use std::sync::Arc;

/// Most copies of a block that is encrypted.
const ENCRYPTED_COPIES_MAX: u8 = 2;

/// Level that the root of an object set is read at.
const ROOT: Level = Level(u8::MAX);

/// Store of one dataset's blocks.
pub(crate) struct UnlockedIo {
    io: Arc<dyn BlockIo>,
    key: Arc<DataKey>,
}

impl UnlockedIo {
    /// The store `io` with this key.
    pub(crate) fn new(io: Arc<dyn BlockIo>, key: Arc<DataKey>) -> UnlockedIo {
        UnlockedIo { io, key }
    }

    fn opened(&self, bp: &BlockPtr, bookmark: &Bookmark, stored: &Abd) -> Result<Abd, BlockError> {
        opened_of(&*self.io, &self.key, (bp, bookmark), stored)
    }

    /// A write as the store is to do it (OpenZFS: `dmu_write_policy`): the third address of what is encrypted has its salt, dnodes and roots are never
    /// compressed.
    fn sealed(&self, write: BlockWrite) -> BlockWrite {
        let is_plain = write.level == 0 && matches!(write.object_type, ObjectType::DNODE | ObjectType::OBJSET);
        let compression = if is_plain { Compression::EMPTY } else { write.compression };
        let copies = if write.object_type.is_encrypted() { write.copies.min(ENCRYPTED_COPIES_MAX) } else { write.copies };
        BlockWrite { compression, copies, seal: Some(Seal::Key(self.key.clone())), ..write }
    }
}

/// Error of bytes whose checksum is right: to whoever reads they are as wrong as if it were not.
fn block_error(error: CryptError) -> BlockError {
    match error {
        CryptError::Authentication => BlockError::Checksum,
        CryptError::Form => BlockError::Corrupt,
        CryptError::Key | CryptError::Size | CryptError::Random => BlockError::Unsupported,
    }
}

/// Protection of a block of an encrypted dataset. All that it stores has some, and its root, which authenticates the rest, that of roots: what has not was put
/// there by somebody who has no key (OpenZFS: `dbuf_read_impl`).
fn protection_of(bp: &BlockPtr, bookmark: &Bookmark) -> Result<Protection, BlockError> {
    match protection(bp) {
        own if bookmark.level == ROOT && own != Protection::Objset => Err(BlockError::Checksum),
        Protection::None if !bp.is_hole() => Err(BlockError::Checksum),
        own => Ok(own),
    }
}

fn with_bytes<T>(block: &Abd, look: impl FnOnce(&[u8]) -> Result<T, BlockError>) -> Result<T, BlockError> {
    let whole = block.to_contiguous();
    look(whole.as_contiguous().ok_or(BlockError::Corrupt)?)
}

/// The logical bytes of a block that is stored so.
fn opened(key: &DataKey, bp: &BlockPtr, stored: &Abd) -> Result<Abd, BlockError> {
    let plain = with_bytes(stored, |bytes| {
        if protection(bp) != Protection::Encrypted {
            return key.authenticate(bp, bytes).map(|()| stored.clone()).map_err(block_error);
        }
        let mut plain = AbdPart::scratch(bytes.len());
        key.open(bp, bytes, &mut plain).map_err(block_error)?;
        Ok(plain.freeze())
    })?;
    if bp.compression() == Compression::OFF {
        return if plain.len() == bp.lsize() { Ok(plain) } else { Err(BlockError::Corrupt) };
    }
    with_bytes(&plain, |bytes| {
        let mut logical = AbdPart::scratch(bp.lsize());
        kernels::decompress(bp.compression(), bytes, &mut logical).map_err(|_| BlockError::Corrupt)?;
        Ok(logical.freeze())
    })
}

/// As [`opened`]; of a block that is not authentic the store is told.
fn opened_of(io: &dyn BlockIo, key: &DataKey, (bp, bookmark): (&BlockPtr, &Bookmark), stored: &Abd) -> Result<Abd, BlockError> {
    if io.fails_to_decrypt(bp, bookmark) {
        return told(io, bookmark, Err(BlockError::Checksum));
    }
    told(io, bookmark, opened(key, bp, stored))
}

/// The outcome, of which the store is told where a block is not authentic.
fn told<T>(io: &dyn BlockIo, bookmark: &Bookmark, outcome: Result<T, BlockError>) -> Result<T, BlockError> {
    if matches!(outcome, Err(BlockError::Checksum)) {
        io.not_authentic(bookmark);
    }
    outcome
}

/// A block of pointers, if its hash says that it is the right one.
fn right_pointers(bp: &BlockPtr, block: Abd) -> Result<Abd, BlockError> {
    let is_right = with_bytes(&block, |bytes| Ok(indirect_is_right(bp, bytes)))?;
    if is_right { Ok(block) } else { Err(BlockError::Checksum) }
}

/// The logical bytes of a block that takes no key, when `look` finds them.
fn in_memory(bp: &BlockPtr, look: impl FnOnce() -> Option<Abd>) -> Option<Abd> {
    match protection(bp) {
        Protection::None if bp.is_hole() => look(),
        Protection::Pointers if bp.is_little_endian() => right_pointers(bp, look()?).ok(),
        _ => None,
    }
}

impl BlockIo for UnlockedIo {
    fn exec(&self) -> &Exec {
        self.io.exec()
    }
    fn read(&self, bp: &BlockPtr, bookmark: &Bookmark) -> Result<Abd, BlockError> {
        self.read_kept(bp, bookmark, Keep::Kept)
    }
    fn read_kept(&self, bp: &BlockPtr, bookmark: &Bookmark, keep: Keep) -> Result<Abd, BlockError> {
        let read = || self.io.read_kept(bp, bookmark, keep);
        match protection_of(bp, bookmark)? {
            Protection::None => read(),
            _ if !bp.is_little_endian() => Err(BlockError::Unsupported),
            Protection::Pointers => told(&*self.io, bookmark, right_pointers(bp, read()?)),
            Protection::Objset => {
                let block = read()?;
                let own = with_bytes(&block, |bytes| self.key.authenticate_objset(bytes, true).map_err(block_error));
                told(&*self.io, bookmark, own).map(|()| block)
            }
            // Dnodes are delivered as they are stored.
            Protection::Encrypted if bp.object_type() == ObjectType::DNODE => self.opened(bp, bookmark, &read()?),
            Protection::Encrypted | Protection::Authenticated => self.opened(bp, bookmark, &self.io.read_stored_now(bp, bookmark)?),
            Protection::Log => Err(BlockError::Unsupported),
        }
    }
    /// Blocks of the log are decrypted; those that nobody encrypted are not the dataset's. Other blocks, which the log names, are delivered as they are stored.
    fn read_log(&self, bp: &BlockPtr, bookmark: &Bookmark) -> Result<Abd, BlockError> {
        let stored = self.io.read_log(bp, bookmark)?;
        if bp.object_type() != ObjectType::INTENT_LOG {
            return Ok(stored);
        }
        if protection(bp) != Protection::Log {
            return Err(BlockError::Checksum);
        }
        with_bytes(&stored, |bytes| Ok(Abd::from_slice(&LogKey(&self.key).open(bp, bytes).map_err(block_error)?)))
    }
    fn cached(&self, bp: &BlockPtr) -> Option<Abd> {
        in_memory(bp, || self.io.cached(bp))
    }
    fn at_hand(&self, bp: &BlockPtr) -> Option<Abd> {
        in_memory(bp, || self.io.at_hand(bp))
    }
    fn read_direct(&self, bp: &BlockPtr, bookmark: &Bookmark, target: Vec<AbdPart>, done: LandedDone) {
        let protection = match protection_of(bp, bookmark) {
            Ok(Protection::None) => return self.io.read_direct(bp, bookmark, target, done),
            Ok(protection) => protection,
            Err(error) => return done(Err(error)),
        };
        drop(target);
        if protection != Protection::Encrypted || !bp.is_little_endian() {
            return done(Err(BlockError::Unsupported));
        }
        let (io, key, own, at) = (self.io.clone(), self.key.clone(), *bp, *bookmark);
        let open = move |stored: Abd| opened_of(&*io, &key, (&own, &at), &stored);
        let then = move |stored: Result<Abd, BlockError>| done(stored.and_then(open).map(Landed::Elsewhere));
        self.io.read_stored(bp, bookmark, Box::new(then));
    }
    fn read_stored(&self, bp: &BlockPtr, bookmark: &Bookmark, done: StoredDone) {
        self.io.read_stored(bp, bookmark, done);
    }
    fn read_stored_now(&self, bp: &BlockPtr, bookmark: &Bookmark) -> Result<Abd, BlockError> {
        self.io.read_stored_now(bp, bookmark)
    }
    fn lost(&self, bp: &BlockPtr, bookmark: &Bookmark, error: BlockError) {
        self.io.lost(bp, bookmark, error);
    }
    fn forget(&self, bp: &BlockPtr) {
        self.io.forget(bp);
    }
    fn prefetch(&self, bp: &BlockPtr, bookmark: &Bookmark) {
        self.io.prefetch(bp, bookmark);
    }
    fn prefetch_kept(&self, bp: &BlockPtr, bookmark: &Bookmark, keep: Keep) {
        self.io.prefetch_kept(bp, bookmark, keep);
    }
    fn plugged(&self, work: &mut dyn FnMut()) {
        self.io.plugged(work);
    }
    fn iostats(&self) -> Option<&IoStats> {
        self.io.iostats()
    }
    fn write(&self, write: BlockWrite, done: WriteDone) {
        self.io.write(self.sealed(write), done);
    }
    fn write_together(&self, writes: Vec<(BlockWrite, WriteDone)>) {
        self.io.write_together(writes.into_iter().map(|(write, done)| (self.sealed(write), done)).collect());
    }
    fn write_direct(&self, write: BlockWrite, done: WriteDone) {
        self.io.write_direct(self.sealed(write), done);
    }
    fn free(&self, txg: Txg, bp: &BlockPtr) {
        self.io.free(txg, bp);
    }
    fn log(&self) -> Option<&dyn LogIo> {
        self.io.log().map(|_| self as &dyn LogIo)
    }
    fn dsize(&self, bp: &BlockPtr) -> u64 {
        self.io.dsize(bp)
    }
}

impl LogIo for UnlockedIo {
    fn allocate(&self, txg: Txg, bytes: usize, log: LogOwner) -> Result<LogRoom, BlockError> {
        let salt_and_iv = Some(LogKey(&self.key).salt_and_iv().map_err(block_error)?);
        let room = self.io.log().ok_or(BlockError::Unsupported)?.allocate(txg, bytes, log)?;
        Ok(LogRoom { salt_and_iv, ..room })
    }
    fn seal(&self, bp: &BlockPtr, block: &mut [u8]) -> Result<(), BlockError> {
        LogKey(&self.key).seal(bp, block).map_err(block_error)
    }
    fn write(&self, bp: &BlockPtr, block: Vec<u8>, used: usize, done: LogDone) -> usize {
        let Some(log) = self.io.log() else {
            done(Err(BlockError::Unsupported));
            return 0;
        };
        log.write(bp, block, used, done)
    }
    fn write_durably(&self, bp: &BlockPtr, block: &mut [u8], used: usize) -> Option<(usize, Result<(), BlockError>)> {
        self.io.log()?.write_durably(bp, block, used)
    }
    fn flush(&self, blocks: &[BlockPtr], done: LogDone) {
        match self.io.log() {
            Some(log) => log.flush(blocks, done),
            None => done(Err(BlockError::Unsupported)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypt::{KEY_VERSION, Secret, Suite};
    use ondisk::{BlockId, ObjectId, ObjsetId};

    fn key() -> DataKey {
        let keys =
            Secret::new(DataKey::bytes_of(Suite::Aes256Gcm), |bytes| bytes.iter_mut().zip(1..).for_each(|(byte, next)| *byte = next));
        DataKey::new(Suite::Aes256Gcm, 7, KEY_VERSION, keys).expect("as many bytes as it takes")
    }

    /// If this fails, somebody who can write to the devices, and has no key, puts contents of his own in the place of an encrypted dataset's.
    #[test]
    fn what_no_key_authenticates_is_not_taken_for_a_block_of_the_dataset() {
        let of = |bp: &BlockPtr, level| {
            let bookmark = Bookmark { objset: ObjsetId(7), object: ObjectId(0), level: Level(level), block: BlockId(0) };
            protection_of(bp, &bookmark)
        };
        let forged = Err(BlockError::Checksum);
        assert_eq!((of(&BlockPtr::HOLE, 0), of(&BlockPtr::HOLE, u8::MAX)), (Ok(Protection::None), forged));
        let mut bp = BlockPtr::HOLE;
        bp.set_dva(0, ondisk::Dva { asize: 4096, offset: 1 << 20, ..ondisk::Dva::default() });
        bp.set_object_type(ObjectType::OBJSET);
        assert_eq!((of(&bp, 0), of(&bp, u8::MAX)), (forged, forged), "it is not marked");
        assert!(in_memory(&bp, || Some(Abd::from_slice(&[1; 512]))).is_none());
        let embedded = BlockPtr::embedded(&[1; 8], 512, Compression::LZ4, ObjectType::PLAIN_FILE_CONTENTS, 0, Txg(4));
        assert_eq!(of(&embedded, 0), forged);
        bp.set_uses_crypt(true);
        assert_eq!(of(&bp, u8::MAX), Ok(Protection::Objset));
        bp.set_level(1);
        assert_eq!((of(&bp, 1), of(&bp, u8::MAX)), (Ok(Protection::Pointers), forged), "anybody computes the hash of pointers");
        bp.set_level(0);
        bp.set_object_type(ObjectType::MASTER_NODE);
        assert_eq!((of(&bp, 0), of(&bp, u8::MAX)), (Ok(Protection::Authenticated), forged), "another block's MAC");
    }

    /// If this fails, somebody who can write to the devices, and makes checksums right, decides what is read.
    #[test]
    fn a_bit_changed_in_ciphertext_is_a_wrong_block() {
        let key = key();
        let mut bp = BlockPtr::HOLE;
        bp.set_dva(0, ondisk::Dva { asize: 4096, offset: 1 << 20, ..ondisk::Dva::default() });
        bp.set_lsize(4096);
        bp.set_psize(4096);
        bp.set_compression(Compression::OFF);
        bp.set_object_type(ObjectType::PLAIN_FILE_CONTENTS);
        bp.set_little_endian(true);
        bp.set_uses_crypt(true);
        bp.set_salt_and_iv([1; 8], [2; 12]);
        let mut bytes = vec![9; 4096];
        bp.set_mac(key.seal(bp.object_type(), &bp.salt(), &bp.iv(), &mut bytes).expect("it encrypts"));
        assert_eq!(opened(&key, &bp, &Abd::from_slice(&bytes)).map(|plain| plain.to_vec()), Ok(vec![9; 4096]));
        bytes[4000] ^= 1;
        assert_eq!(opened(&key, &bp, &Abd::from_slice(&bytes)).map(drop), Err(BlockError::Checksum));
        bp.set_object_type(ObjectType::MASTER_NODE);
        bp.set_mac(key.mac_of(&bytes));
        assert_eq!(opened(&key, &bp, &Abd::from_slice(&bytes)).map(|plain| plain.to_vec()), Ok(bytes.clone()), "only authenticated");
        bytes[0] ^= 1;
        assert_eq!(opened(&key, &bp, &Abd::from_slice(&bytes)).map(drop), Err(BlockError::Checksum));
    }
}
