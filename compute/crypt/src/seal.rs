//! Ways in which blocks of encrypted datasets are written: with the dataset's key, or as somebody else protected them.

use crate::{DataKey, Guard, indirect_mac};
use std::sync::Arc;

/// Protection of a block of an encrypted dataset that is about to be written.
#[derive(Clone, Debug)]
pub enum Seal {
    /// The dataset's key: what is stored is encrypted or signed with it, each time anew.
    Key(Arc<DataKey>),
    /// Hash of a block of pointers, as keys of this version want it; it takes no key.
    Pointers {
        /// Version of the dataset's keys.
        version: u64,
    },
    /// MACs that the root of an object set has in itself already.
    Root,
    /// Marks of bytes that are stored as they are given: compressed elsewhere, and perhaps encrypted or signed (OpenZFS: `ZIO_FLAG_RAW_COMPRESS`,
    /// `ZIO_FLAG_RAW_ENCRYPT`).
    Stored {
        /// Logical bytes of the block.
        lsize: usize,
        /// Marks for the block's pointer; None of what is only compressed.
        guard: Option<Guard>,
    },
}

impl Seal {
    /// Logical bytes of a block of which so many bytes are given.
    pub fn logical_bytes(&self, given: usize) -> usize {
        if let Seal::Stored { lsize, .. } = self { *lsize } else { given }
    }

    /// True for bytes that are stored as they are given.
    pub fn is_stored(&self) -> bool {
        matches!(self, Seal::Stored { .. })
    }

    /// Key that the bytes of a block of this level are encrypted or signed with; None where they stay as they are, and [`Seal::marks`] has all.
    pub fn key_for(&self, level: u8) -> Option<&DataKey> {
        match self {
            Seal::Key(key) if level == 0 => Some(key),
            _ => None,
        }
    }

    /// Marks of a block whose bytes stay as they are, None where it has none; `block` has the logical ones, little-endian.
    pub fn marks(&self, block: &[u8]) -> Option<Guard> {
        match self {
            Seal::Key(key) => Some(key.guard_pointers(block)),
            Seal::Pointers { version } => Some(Guard::new(Some(indirect_mac(block, true, *version)), None)),
            Seal::Root => Some(Guard::new(None, None)),
            Seal::Stored { guard, .. } => guard.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Suite, indirect_is_right};
    use ondisk::{BlockPtr, ObjectType};

    /// If this fails, what is received raw is taken for forged by whoever has its key.
    #[test]
    fn pointers_have_one_hash_with_and_without_the_key() {
        let key = Arc::new(DataKey::generate(Suite::Aes256Gcm).expect("random bytes"));
        let mut bp = BlockPtr::HOLE;
        bp.set_lsize(4096);
        bp.set_object_type(ObjectType::PLAIN_FILE_CONTENTS);
        let block = bp.encode();
        let (with, without) = (Seal::Key(key), Seal::Pointers { version: 1 });
        assert_eq!((with.key_for(1).is_none(), with.key_for(0).is_some(), without.key_for(0).is_none()), (true, true, true));
        assert_eq!(with.marks(&block), without.marks(&block));
        let mut above = BlockPtr::HOLE;
        without.marks(&block).expect("a hash").put(&mut above, [1, 2]);
        assert!(indirect_is_right(&above, &block) && above.uses_crypt());
        let stored = Seal::Stored { lsize: 8192, guard: Some(Guard::new(Some([7; 16]), Some(([1; 8], [2; 12])))) };
        assert_eq!((stored.logical_bytes(512), with.logical_bytes(512)), (8192, 512));
        stored.marks(&[]).expect("those that came").put(&mut above, [1, 2]);
        assert_eq!((above.mac(), above.salt(), above.iv()), ([7; 16], [1; 8], [2; 12]));
    }
}
