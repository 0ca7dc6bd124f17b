//! Small objects of the MOS that the pool itself keeps: packed configuration, vdev ZAPs, the list of deferred frees.

use super::features::{ALLOCATION_CLASSES, DIRECTORY, Features, create_linked_zap};
use crate::PoolError;
use dmu::{BlockIo, Dnode, NewObject, Objset, Tx};
use nvlist::{Encoding, NvList};
use ondisk::names::{spa_version, top_zap};
use ondisk::{BPOBJ_BYTES, BlockPtr, BpobjPhys, Compression, ObjectId, ObjectType};
use std::ops::Range;
use std::sync::Arc;
use vdev::{Bias, NodeKind, TopVdev, VdevTree};
use zap::{Value, Zap, ZapError};

/// Block size of the configuration object (OpenZFS: `SPA_CONFIG_BLOCKSIZE`).
const CONFIG_BLOCK_BYTES: usize = 1 << 14;
/// Longest packed configuration that a reader accepts.
const CONFIG_BYTES_MAX: u64 = 64 << 20;
/// Block size of the list of deferred frees.
const FREES_BLOCK_BYTES: usize = 1 << 14;
/// Entry of the directory that leads to the list of the ZAPs of vdevs (OpenZFS: `DMU_POOL_VDEV_ZAP_MAP`).
const ZAP_MAP: &str = "com.delphix:vdev_zap_map";
const AVZ_V2: &str = "com.klarasystems:vdev_zaps_v2";

/// Refuses a length from a header that the object can't have: a damaged one would otherwise keep a reader busy for years.
pub(crate) fn check_length(dnode: &Dnode, bytes: u64) -> Result<(), PoolError> {
    let info = dnode.info()?;
    let most = info.max_block.0.saturating_add(1).saturating_mul(info.block_size as u64);
    if bytes <= most { Ok(()) } else { Err(PoolError::Object(dnode.object(), "a header that says more than there is")) }
}

/// Objects of the space maps of these metaslabs, as the array of their vdev has them; 0 for a metaslab that has none, since it was never used.
pub(crate) fn space_map_objects(array: &Dnode, metaslabs: Range<u32>) -> Result<Vec<ObjectId>, PoolError> {
    let mut raw = vec![0; metaslabs.len() * 8];
    array.read(u64::from(metaslabs.start) * 8, &mut raw)?;
    let (words, _) = raw.as_chunks::<8>();
    Ok(words.iter().map(|word| ObjectId(u64::from_le_bytes(*word))).collect())
}

/// Makes the object that holds a packed list.
pub(crate) fn create_packed(mos: &Arc<Objset>, tx: &Tx) -> Result<ObjectId, PoolError> {
    let new = NewObject {
        block_size: CONFIG_BLOCK_BYTES,
        bonus_type: ObjectType::PACKED_NVLIST_SIZE,
        bonus_len: 8,
        ..NewObject::new(ObjectType::PACKED_NVLIST)
    };
    Ok(mos.allocate_object(new, tx)?.object())
}

/// Writes a list into its object (OpenZFS: `spa_sync_nvlist`).
pub(crate) fn write_packed(mos: &Arc<Objset>, object: ObjectId, list: &NvList, tx: &Tx) -> Result<(), PoolError> {
    let dnode = mos.hold(object)?;
    let mut packed = list.encode(Encoding::Xdr);
    let length = packed.len() as u64;
    packed.resize(packed.len().next_multiple_of(CONFIG_BLOCK_BYTES), 0);
    dnode.write(0, &packed, tx)?;
    dnode.set_bonus(&length.to_le_bytes(), tx)?;
    Ok(())
}

/// Reads a list from its object (OpenZFS: `load_nvlist`).
pub(crate) fn read_packed(mos: &Arc<Objset>, object: ObjectId) -> Result<NvList, PoolError> {
    let damaged = PoolError::Object(object, "a packed list");
    let dnode = mos.hold(object)?;
    let bonus = dnode.bonus()?;
    let length = bonus.first_chunk::<8>().map(|raw| u64::from_le_bytes(*raw)).filter(|length| *length <= CONFIG_BYTES_MAX);
    let mut packed = vec![0; length.ok_or(damaged.clone())? as usize];
    dnode.read(0, &mut packed)?;
    NvList::decode(&packed).map_err(|_| damaged)
}

/// True when the pool lists ZAPs of its vdevs: what older software made does not.
pub(crate) fn has_vdev_zaps(mos: &Arc<Objset>) -> Result<bool, PoolError> {
    Ok(Zap::hold(mos, DIRECTORY)?.contains(ZAP_MAP)?)
}

/// Makes the ZAPs of vdevs that have none and lists them (OpenZFS: `vdev_construct_zaps`).
pub(crate) fn create_vdev_zaps(mos: &Arc<Objset>, features: &Features, tree: &mut VdevTree, tx: &Tx) -> Result<(), PoolError> {
    let list = match Zap::hold(mos, DIRECTORY)?.try_lookup_u64(ZAP_MAP)? {
        Some(list) => ObjectId(list),
        None => create_linked_zap(mos, ZAP_MAP, ObjectType::OTN_ZAP_METADATA, tx)?,
    };
    let list = Zap::hold(mos, list)?;
    let create = || -> Result<ObjectId, PoolError> {
        let object = zap::create(mos, ObjectType::OTN_ZAP_METADATA, tx)?;
        list.add_u64(format!("{:x}", object.0), object.0, tx)?;
        Ok(object)
    };
    let create_of_top = |top: &mut TopVdev| -> Result<(), PoolError> {
        if top.zap.0 == 0 {
            top.zap = create()?;
            write_bias(mos, features, top, tx)?;
        }
        Ok(())
    };
    if tree.root_zap.0 == 0 && features.is_enabled(AVZ_V2) {
        if features.refs(AVZ_V2) == 0 {
            features.add(AVZ_V2, 1, tx)?;
        }
        tree.root_zap = create()?;
    }
    for index in 0..tree.tops.len() {
        if !tree.tops[index].is_concrete() {
            continue;
        }
        let is_leaf = matches!(tree.tops[index].node.as_ref().map(|node| node.kind), Some(NodeKind::Leaf(_)));
        let leaves: Vec<_> = tree.tops[index].leaves().collect();
        // OpenZFS makes a leaf's ZAP before the top-level one when both are the same vdev.
        if !is_leaf {
            create_of_top(&mut tree.tops[index])?;
        }
        for leaf in leaves {
            if tree.leaves[leaf.0 as usize].zap.0 == 0 {
                tree.leaves[leaf.0 as usize].zap = create()?;
            }
        }
        create_of_top(&mut tree.tops[index])?;
    }
    Ok(())
}

/// Writes down which blocks a top-level vdev is for that got its ZAP; the feature counts it from then on (OpenZFS: `vdev_zap_allocation_data`).
fn write_bias(mos: &Arc<Objset>, features: &Features, top: &TopVdev, tx: &Tx) -> Result<(), PoolError> {
    let Some(word) = top.bias.word() else { return Ok(()) };
    Zap::hold(mos, top.zap)?.add(top_zap::ALLOCATION_BIAS, &Value::from_str_with_nul(word), tx)?;
    features.add(ALLOCATION_CLASSES, 1, tx)
}

/// Finds out which blocks the top-level vdevs are for (OpenZFS: `vdev_load`). One that does not tell is taken for one of all blocks: what is there can be
/// read.
///
/// # Errors
/// [`PoolError::Bias`] of the first of these: nothing may be allocated, as it would lie anywhere.
pub(crate) fn load_biases(mos: &Arc<Objset>, tree: &mut VdevTree) -> Result<(), PoolError> {
    let mut all_told = Ok(());
    for top in tree.tops.iter_mut().filter(|top| top.is_concrete() && top.zap.0 != 0) {
        match bias_of(mos, top.zap) {
            Ok(bias) => top.bias = bias,
            Err(error) => {
                tracing::warn!("vdev {}: nobody knows which blocks it is for: {error}", top.guid);
                all_told = all_told.and(Err(PoolError::Bias(top.guid, error)));
            }
        }
    }
    all_told
}

/// Class of the blocks that the vdev with this ZAP is for.
fn bias_of(mos: &Arc<Objset>, zap: ObjectId) -> Result<Bias, ZapError> {
    match Zap::hold(mos, zap)?.try_lookup(top_zap::ALLOCATION_BIAS)? {
        Some(value) => value.as_text().map(Bias::of_word).ok_or(ZapError::WrongType),
        None => Ok(Bias::None),
    }
}

/// Destroys the ZAP of a leaf that left and takes it off the list (OpenZFS: `vdev_destroy_unlink_zap`).
pub(crate) fn destroy_vdev_zap(mos: &Arc<Objset>, object: ObjectId, tx: &Tx) -> Result<(), PoolError> {
    if object.0 == 0 {
        return Ok(());
    }
    if let Some(list) = Zap::hold(mos, DIRECTORY)?.try_lookup_u64(ZAP_MAP)? {
        Zap::hold(mos, ObjectId(list))?.remove(format!("{:x}", object.0), tx)?;
    }
    Ok(zap::destroy(mos, object, tx)?)
}

/// Makes the list of frees that wait for the next txg. We free at once and leave it empty; OpenZFS needs it.
pub(crate) fn create_deferred_frees(mos: &Arc<Objset>, version: u64, tx: &Tx) -> Result<ObjectId, PoolError> {
    let new = NewObject {
        block_size: FREES_BLOCK_BYTES,
        bonus_type: ObjectType::BPOBJ_HDR,
        bonus_len: BPOBJ_BYTES[usize::from(version >= spa_version::BPOBJ_ACCOUNT) + usize::from(version >= spa_version::DEADLISTS)],
        ..NewObject::new(ObjectType::BPOBJ)
    };
    let dnode = mos.allocate_object(new, tx)?;
    dnode.set_compression(Compression::OFF, tx)?;
    Zap::hold(mos, DIRECTORY)?.add_u64("sync_bplist", dnode.object().0, tx)?;
    Ok(dnode.object())
}

/// Frees what a previous writer deferred and empties the list (OpenZFS: `spa_sync_deferred_frees`).
pub(crate) fn process_deferred_frees(mos: &Arc<Objset>, io: &dyn BlockIo, list: ObjectId, tx: &Tx) -> Result<(), PoolError> {
    let dnode = mos.hold(list)?;
    let damaged = || PoolError::Object(list, "the list of deferred frees");
    let bonus = dnode.bonus()?;
    let mut phys = BpobjPhys::decode_bonus(&bonus).map_err(|_| damaged())?;
    if phys.bpo_num_blkptrs == 0 {
        return Ok(());
    }
    if phys.bpo_num_subobjs != 0 {
        return Err(damaged());
    }
    check_length(&dnode, phys.bpo_num_blkptrs.saturating_mul(BlockPtr::BYTES as u64))?;
    for index in 0..phys.bpo_num_blkptrs {
        io.free(tx.txg(), &read_pointer(&dnode, index)?);
    }
    dnode.free_range(0, u64::MAX, tx)?;
    (phys.bpo_num_blkptrs, phys.bpo_bytes, phys.bpo_comp, phys.bpo_uncomp) = (0, 0, 0, 0);
    let bytes = phys.encode();
    dnode.set_bonus(&bytes[..bonus.len().min(bytes.len())], tx)?;
    Ok(())
}

fn read_pointer(dnode: &Dnode, index: u64) -> Result<BlockPtr, PoolError> {
    let mut raw = [0; BlockPtr::BYTES];
    dnode.read(index * BlockPtr::BYTES as u64, &mut raw)?;
    Ok(BlockPtr::decode(&raw, true))
}
