//! The identity of a cached block: where its first copy lies and when it was written there.
//!
//! Address and physical birth are unique for the life of a pool, except for blocks rewritten in place while their txg
//! syncs; for those the checksum tells versions apart (see [`Key::tag`]).

use crate::ports::{BlockName, BlockPlace};
use ondisk::{BlockPtr, Dva, Txg, VdevId};
use std::hash::{BuildHasherDefault, Hasher};

/// Identity of a block within one pool (OpenZFS: `b_dva` and `b_birth` of `arc_buf_hdr_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    vdev: u64,
    offset: u64,
    birth: u64,
}

impl Key {
    /// The key of a block that has an address; None for holes and embedded data, which need no cache.
    pub(crate) fn of(bp: &BlockPtr) -> Option<Key> {
        if bp.is_embedded() || bp.is_hole() {
            return None;
        }
        let dva = bp.dva(0);
        Some(Key { vdev: u64::from(dva.vdev.0), offset: dva.offset, birth: bp.physical_birth().0 })
    }

    /// The name under which a second level knows the block.
    pub(crate) fn name(&self, tag: u64) -> BlockName {
        BlockName { place: BlockPlace { vdev: self.vdev, offset: self.offset, birth: self.birth }, version: tag }
    }

    /// Address of the first copy, which takes so many bytes, and the birth.
    pub(crate) fn address(&self, asize: u64) -> (Dva, Txg) {
        (Dva { vdev: VdevId(self.vdev as u32), asize, offset: self.offset, gang: false }, Txg(self.birth))
    }

    /// Tells two versions of one key apart: a block rewritten in place keeps address and birth but not its checksum.
    pub(crate) fn tag(bp: &BlockPtr) -> u64 {
        let sum = bp.checksum();
        sum[0] ^ sum[1].rotate_left(16) ^ sum[2].rotate_left(32) ^ sum[3].rotate_left(48) ^ bp.0[6].rotate_left(7)
    }

    /// A well-mixed hash (the finalizer of splitmix64 over the three words).
    pub(crate) fn hash64(&self) -> u64 {
        let mut z = (self.offset >> 9) ^ self.vdev.rotate_left(48) ^ self.birth.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A made-up key for tests.
    #[cfg(test)]
    pub(crate) fn test(n: u64) -> Key {
        Key { vdev: 0, offset: n << 12, birth: 5 }
    }
}

/// Hasher for maps by [`Key`]: cheap, and fixed so that runs repeat exactly.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        let z = (self.0 ^ (self.0 >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z ^ (z >> 32)
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// A map by [`Key`].
pub(crate) type KeyMap<V> = std::collections::HashMap<Key, V, BuildHasherDefault<KeyHasher>>;
