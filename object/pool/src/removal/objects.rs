//! Objects of the MOS that tell where the contents of a vdev went: new places, how much of them nobody needs any more, and when they were copied (OpenZFS:
//! `vdev_indirect_mapping.c`, `vdev_indirect_births.c`).

use crate::PoolError;
use crate::spa::features::Features;
use crate::spa::mos_objects::check_length;
use dmu::{Dnode, NewObject, Objset, Tx};
use ondisk::{Dva, IndirectBirthEntry, IndirectBirthPhys, IndirectMappingEntry, IndirectMappingPhys, ObjectId, ObjectType, Txg};
use std::sync::Arc;
use vdev::{MappedRange, Mapping, RemovalObjects};

/// Feature that counts removed vdevs, and the one that is being removed.
pub(crate) const DEVICE_REMOVAL: &str = "com.delphix:device_removal";
/// Feature that counts what tells how much of mappings nobody needs any more.
pub(crate) const OBSOLETE_COUNTS: &str = "com.delphix:obsolete_counts";
/// Block size of the objects (OpenZFS: `SPA_OLD_MAXBLOCKSIZE`).
const BLOCK_BYTES: usize = 1 << 17;
/// Bytes of the bonus of a mapping without counts (OpenZFS: `VDEV_INDIRECT_MAPPING_SIZE_V0`).
const BONUS_BYTES_V0: usize = 24;
/// log2 of the unit of offsets in a mapping.
const SECTOR_SHIFT: u32 = 9;
/// Bit of a source that is a mark, and says nothing.
const MARK: u64 = 1 << 63;

/// The object with the new places of a vdev's contents.
pub(crate) struct MappingObject {
    mos: Arc<Objset>,
    object: Arc<Dnode>,
    phys: IndirectMappingPhys,
    /// The bytes of each range that nobody needs.
    counts: Option<Arc<Dnode>>,
}

/// A range of a mapping, and the bytes of it that nobody needs.
pub(crate) type CountedRange = (MappedRange, u32);

impl MappingObject {
    /// Opens the object.
    pub fn open(mos: &Arc<Objset>, object: ObjectId) -> Result<MappingObject, PoolError> {
        let damaged = || PoolError::Object(object, "the mapping of a removed vdev");
        let dnode = mos.hold(object)?;
        let bonus = dnode.bonus()?;
        if bonus.len() < BONUS_BYTES_V0 {
            return Err(damaged());
        }
        let mut raw = [0; IndirectMappingPhys::SIZE];
        let known = bonus.len().min(raw.len());
        raw[..known].copy_from_slice(&bonus[..known]);
        let phys = IndirectMappingPhys::decode(&raw).map_err(|_| damaged())?;
        check_length(&dnode, phys.vimp_num_entries.saturating_mul(IndirectMappingEntry::SIZE as u64))?;
        let counts = match phys.vimp_counts_object {
            0 => None,
            counts => Some(mos.hold(ObjectId(counts))?),
        };
        Ok(MappingObject { mos: mos.clone(), object: dnode, phys, counts })
    }

    /// Makes an empty mapping, with counts where the pool has the feature.
    pub fn create(mos: &Arc<Objset>, features: &Features, tx: &Tx) -> Result<MappingObject, PoolError> {
        let has_counts = features.is_enabled(OBSOLETE_COUNTS);
        let new = NewObject {
            block_size: BLOCK_BYTES,
            bonus_type: ObjectType::OTN_UINT64_METADATA,
            bonus_len: if has_counts { IndirectMappingPhys::SIZE } else { BONUS_BYTES_V0 },
            ..NewObject::new(ObjectType::OTN_UINT64_METADATA)
        };
        let object = mos.allocate_object(new, tx)?;
        let counts = if has_counts {
            features.add(OBSOLETE_COUNTS, 1, tx)?;
            let new = NewObject { block_size: BLOCK_BYTES, ..NewObject::new(ObjectType::OTN_UINT32_METADATA) };
            Some(mos.allocate_object(new, tx)?)
        } else {
            None
        };
        let vimp_counts_object = counts.as_ref().map_or(0, |counts| counts.object().0);
        let mapping = MappingObject {
            mos: mos.clone(),
            object,
            phys: IndirectMappingPhys { vimp_counts_object, ..IndirectMappingPhys::default() },
            counts,
        };
        mapping.write_header(tx)?;
        Ok(mapping)
    }

    /// Number of the object.
    pub fn object(&self) -> ObjectId {
        self.object.object()
    }

    /// Bytes that the ranges have together.
    pub fn bytes_mapped(&self) -> u64 {
        self.phys.vimp_bytes_mapped
    }

    /// The ranges, in their order.
    pub fn ranges(&self) -> Result<Vec<MappedRange>, PoolError> {
        let mut raw = vec![0; self.phys.vimp_num_entries as usize * IndirectMappingEntry::SIZE];
        self.object.prefetch(0, raw.len() as u64);
        self.object.read(0, &mut raw)?;
        let range = |bytes: &[u8]| -> Result<MappedRange, PoolError> {
            let entry = IndirectMappingEntry::decode(bytes).map_err(|_| PoolError::Object(self.object(), "a range of a mapping"))?;
            let target = Dva { gang: false, ..Dva::from_words(entry.vimep_dst) };
            Ok(MappedRange { source: (entry.vimep_src & !MARK) << SECTOR_SHIFT, target })
        };
        raw.chunks_exact(IndirectMappingEntry::SIZE).map(range).collect()
    }

    /// Bytes of each range that nobody needed when it was written (OpenZFS: `vdev_indirect_mapping_load_obsolete_counts`).
    pub fn counts(&self) -> Result<Vec<u32>, PoolError> {
        let mut raw = vec![0; self.phys.vimp_num_entries as usize * size_of::<u32>()];
        if let Some(counts) = &self.counts {
            counts.read(0, &mut raw)?;
        }
        Ok(raw.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect())
    }

    /// Appends ranges, behind those that there are (OpenZFS: `vdev_indirect_mapping_add_entries`).
    pub fn append(&mut self, ranges: &[CountedRange], tx: &Tx) -> Result<(), PoolError> {
        if ranges.is_empty() {
            return Ok(());
        }
        let (mut entries, mut counts) = (Vec::new(), Vec::new());
        for (range, count) in ranges {
            let entry = IndirectMappingEntry { vimep_src: range.source >> SECTOR_SHIFT, vimep_dst: range.target.to_words() };
            entries.extend_from_slice(&entry.encode());
            counts.extend_from_slice(&count.to_le_bytes());
            self.phys.vimp_bytes_mapped += range.target.asize;
            self.phys.vimp_max_offset = range.end();
        }
        let first = self.phys.vimp_num_entries;
        self.object.write(first * IndirectMappingEntry::SIZE as u64, &entries, tx)?;
        if let Some(object) = &self.counts {
            object.write(first * size_of::<u32>() as u64, &counts, tx)?;
        }
        self.phys.vimp_num_entries += ranges.len() as u64;
        self.write_header(tx)
    }

    fn write_header(&self, tx: &Tx) -> Result<(), PoolError> {
        let length = if self.counts.is_some() { IndirectMappingPhys::SIZE } else { BONUS_BYTES_V0 };
        Ok(self.object.set_bonus(&self.phys.encode()[..length], tx)?)
    }

    /// Frees the objects.
    pub fn destroy(self, features: &Features, tx: &Tx) -> Result<(), PoolError> {
        if let Some(counts) = &self.counts {
            self.mos.free_object(counts.object(), tx)?;
            features.add(OBSOLETE_COUNTS, -1, tx)?;
        }
        Ok(self.mos.free_object(self.object(), tx)?)
    }
}

/// Makes the object with the txgs of a copying; there are none yet.
pub(crate) fn create_births(mos: &Arc<Objset>, tx: &Tx) -> Result<ObjectId, PoolError> {
    let new = NewObject {
        block_size: BLOCK_BYTES,
        bonus_type: ObjectType::OTN_UINT64_METADATA,
        bonus_len: IndirectBirthPhys::SIZE,
        ..NewObject::new(ObjectType::OTN_UINT64_METADATA)
    };
    Ok(mos.allocate_object(new, tx)?.object())
}

fn births_header(dnode: &Dnode) -> Result<IndirectBirthPhys, PoolError> {
    let phys = IndirectBirthPhys::decode(&dnode.bonus()?).map_err(|_| PoolError::Object(dnode.object(), "the births of a mapping"))?;
    check_length(dnode, phys.vib_count.saturating_mul(IndirectBirthEntry::SIZE as u64))?;
    Ok(phys)
}

/// Notes that everything up to an offset was copied by this txg (OpenZFS: `vdev_indirect_births_add_entry`).
pub(crate) fn append_birth(mos: &Arc<Objset>, births: ObjectId, end: u64, tx: &Tx) -> Result<(), PoolError> {
    let dnode = mos.hold(births)?;
    let mut phys = births_header(&dnode)?;
    let entry = IndirectBirthEntry { vibe_offset: end, vibe_phys_birth_txg: tx.txg().0 };
    dnode.write(phys.vib_count * IndirectBirthEntry::SIZE as u64, &entry.encode(), tx)?;
    phys.vib_count += 1;
    Ok(dnode.set_bonus(&phys.encode(), tx)?)
}

/// Offsets, in bytes, up to which everything was copied in the txg beside them.
fn read_births(mos: &Arc<Objset>, births: ObjectId) -> Result<Vec<(u64, Txg)>, PoolError> {
    let dnode = mos.hold(births)?;
    let mut raw = vec![0; births_header(&dnode)?.vib_count as usize * IndirectBirthEntry::SIZE];
    dnode.read(0, &mut raw)?;
    let entry = |bytes: &[u8]| -> Result<(u64, Txg), PoolError> {
        let entry = IndirectBirthEntry::decode(bytes).map_err(|_| PoolError::Object(births, "an entry of births"))?;
        Ok((entry.vibe_offset, Txg(entry.vibe_phys_birth_txg)))
    };
    raw.chunks_exact(IndirectBirthEntry::SIZE).map(entry).collect()
}

/// The mapping that a vdev's objects hold.
pub(crate) fn read_mapping(mos: &Arc<Objset>, objects: &RemovalObjects) -> Result<Arc<Mapping>, PoolError> {
    let ranges = MappingObject::open(mos, objects.mapping)?.ranges()?;
    let mapping = Mapping::new(ranges, read_births(mos, objects.births)?);
    mapping.map(Arc::new).ok_or(PoolError::Object(objects.mapping, "ranges of a mapping that contradict each other"))
}
