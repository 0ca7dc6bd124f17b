//! Raw streams: what is encrypted goes as it is stored, with what a receiver that has no key needs to store it so again (OpenZFS:
//! `dsl_crypto_populate_key_nvlist`, `dump_object_range`).

use crate::SendError;
use dsl::{DslError, RawKeys};
use nvlist::NvList;
use ondisk::{BlockPtr, DNODE_CORE_BYTES, DNODE_SLOT_BYTES, DnodePhys, ObjsetPhys};
use stream::write_flags;

/// Name of the list of keys in the list in front of a stream.
const KEYS: &str = "crypt_keydata";

/// Salt, initialization vector and MAC of a block.
pub(crate) type Marks = ([u8; 8], [u8; 12], [u8; 16]);

/// Marks of a block, and the flag of one in the other byte order; of what is only authenticated, salt and vector are zeros.
pub(crate) fn marks_of(bp: &BlockPtr) -> (Marks, u8) {
    let (salt, iv) = if bp.is_encrypted() { (bp.salt(), bp.iv()) } else { ([0; 8], [0; 12]) };
    ((salt, iv, bp.mac()), if bp.is_little_endian() { 0 } else { write_flags::RAW_BYTESWAP })
}

/// Bonus of a dnode as it lies in its slots, to the end of its room: all of it is encrypted; empty without one (OpenZFS: `DN_MAX_BONUS_LEN`).
pub(crate) fn bonus_of(dnode: &DnodePhys, slots: &[u8]) -> Vec<u8> {
    let spill = if dnode.spill.is_some() { BlockPtr::BYTES } else { 0 };
    let start = DNODE_CORE_BYTES + dnode.ptrs().len() * BlockPtr::BYTES;
    let end = (dnode.slots() * DNODE_SLOT_BYTES).saturating_sub(spill);
    if dnode.bonus.is_empty() { Vec::new() } else { slots.get(start..end).unwrap_or_default().to_vec() }
}

/// List in front of a raw stream of an object set with this root block; `from` is the base's set of IVs, 0 without one.
pub(crate) fn list_of(keys: &RawKeys, root: &[u8], from: u64) -> Result<NvList, SendError> {
    let damaged = || DslError::Corrupt { object: ondisk::ObjectId(0), what: "the root block of an object set is not valid" };
    let phys = ObjsetPhys::decode(root).map_err(|_| damaged())?;
    let (meta, wrapped) = (&phys.meta_dnode, &keys.wrapped);
    let keys = NvList::new()
        .with("DSL_CRYPTO_SUITE", wrapped.suite.number())
        .with("DSL_CRYPTO_GUID", wrapped.guid)
        .with("DSL_CRYPTO_VERSION", wrapped.version)
        .with("DSL_CRYPTO_MASTER_KEY_1", wrapped.master.to_vec())
        .with("DSL_CRYPTO_HMAC_KEY_1", wrapped.hmac.to_vec())
        .with("DSL_CRYPTO_IV", wrapped.iv.to_vec())
        .with("DSL_CRYPTO_MAC", wrapped.mac.to_vec())
        .with("portable_mac", phys.portable_mac.to_vec())
        .with("keyformat", keys.format)
        .with("pbkdf2iters", keys.iterations)
        .with("pbkdf2salt", keys.salt)
        .with("mdn_checksum", u64::from(meta.checksum.0))
        .with("mdn_compress", u64::from(meta.compression.0))
        .with("mdn_nlevels", u64::from(meta.levels))
        .with("mdn_blksz", meta.data_block_bytes() as u64)
        .with("mdn_indblkshift", u64::from(meta.indirect_shift))
        .with("mdn_nblkptr", u64::from(meta.block_ptr_count))
        .with("mdn_maxblkid", meta.max_block.0)
        .with("to_ivset_guid", keys.ivs)
        .with("from_ivset_guid", from);
    Ok(NvList::new().with(KEYS, keys))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ondisk::ObjectType;

    /// If this fails, a receiver stores half of an encrypted bonus: nobody can decrypt the block of dnodes any more.
    #[test]
    fn a_bonus_goes_to_the_end_of_its_room() {
        let slots: Vec<u8> = (0..1024u32).map(|index| index as u8).collect();
        let dnode = |extra_slots, block_ptr_count, spill, bonus| DnodePhys {
            extra_slots,
            block_ptr_count,
            spill,
            bonus,
            bonus_type: ObjectType::SA,
            ..empty()
        };
        assert_eq!(bonus_of(&dnode(0, 1, None, vec![1; 8]), &slots).len(), 512 - 64 - 128);
        assert_eq!(bonus_of(&dnode(0, 1, Some(BlockPtr::HOLE), vec![1; 8]), &slots).len(), 512 - 64 - 256);
        assert_eq!(bonus_of(&dnode(1, 3, None, vec![1; 8]), &slots), slots[64 + 384..1024]);
        assert_eq!(bonus_of(&dnode(0, 1, None, Vec::new()), &slots), Vec::<u8>::new());
    }

    fn empty() -> DnodePhys {
        DnodePhys {
            object_type: ObjectType::PLAIN_FILE_CONTENTS,
            indirect_shift: 17,
            levels: 1,
            bonus_type: ObjectType::NONE,
            checksum: ondisk::Checksum::INHERIT,
            compression: ondisk::Compression::INHERIT,
            flags: 0,
            data_block_sectors: 8,
            extra_slots: 0,
            max_block: ondisk::BlockId(0),
            used: 0,
            block_ptrs: [BlockPtr::HOLE; 3],
            block_ptr_count: 1,
            bonus: Vec::new(),
            spill: None,
        }
    }
}
