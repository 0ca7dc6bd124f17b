//! Objects of the MOS that tell where the contents of a vdev went: new places, how much of them nobody needs any more, and when they were copied (OpenZFS:
//! `vdev_indirect_mapping.c`, `vdev_indirect_births.c`).

use crate::PoolError;
use crate::spa::mos_objects::check_length;
use dmu::{Dnode, Objset};
use ondisk::{Dva, IndirectBirthEntry, IndirectBirthPhys, IndirectMappingEntry, IndirectMappingPhys, ObjectId, Txg};
use std::sync::Arc;
use vdev::{MappedRange, Mapping, RemovalObjects};

/// Feature that counts what tells how much of mappings nobody needs any more.
pub(crate) const OBSOLETE_COUNTS: &str = "com.delphix:obsolete_counts";
/// Bytes of the bonus of a mapping without counts (OpenZFS: `VDEV_INDIRECT_MAPPING_SIZE_V0`).
const BONUS_BYTES_V0: usize = 24;
/// log2 of the unit of offsets in a mapping.
const SECTOR_SHIFT: u32 = 9;
/// Bit of a source that is a mark, and says nothing.
const MARK: u64 = 1 << 63;

/// The object with the new places of a vdev's contents.
pub(crate) struct MappingObject {
    object: Arc<Dnode>,
    phys: IndirectMappingPhys,
}

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
        Ok(MappingObject { object: dnode, phys })
    }

    /// The ranges, in their order.
    pub fn ranges(&self) -> Result<Vec<MappedRange>, PoolError> {
        let mut raw = vec![0; self.phys.vimp_num_entries as usize * IndirectMappingEntry::SIZE];
        self.object.prefetch(0, raw.len() as u64);
        self.object.read(0, &mut raw)?;
        let range = |bytes: &[u8]| {
            let entry = IndirectMappingEntry::decode(bytes).map_err(|_| PoolError::Object(self.object.object(), "a range of a mapping"))?;
            let target = Dva { gang: false, ..Dva::from_words(entry.vimep_dst) };
            Ok(MappedRange { source: (entry.vimep_src & !MARK) << SECTOR_SHIFT, target })
        };
        raw.chunks_exact(IndirectMappingEntry::SIZE).map(range).collect()
    }
}

fn births_header(dnode: &Dnode) -> Result<IndirectBirthPhys, PoolError> {
    let phys = IndirectBirthPhys::decode(&dnode.bonus()?).map_err(|_| PoolError::Object(dnode.object(), "the births of a mapping"))?;
    check_length(dnode, phys.vib_count.saturating_mul(IndirectBirthEntry::SIZE as u64))?;
    Ok(phys)
}

/// Offsets, in bytes, up to which everything was copied in the txg beside them.
fn read_births(mos: &Arc<Objset>, births: ObjectId) -> Result<Vec<(u64, Txg)>, PoolError> {
    let dnode = mos.hold(births)?;
    let mut raw = vec![0; births_header(&dnode)?.vib_count as usize * IndirectBirthEntry::SIZE];
    dnode.read(0, &mut raw)?;
    let entry = |bytes: &[u8]| {
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
