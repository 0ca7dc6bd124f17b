//! READ CAPACITY and GET LBA STATUS (SBC-3).

use crate::bytes::{be32, be64, put};
use crate::scsi::sense::{Fault, Sense};
use crate::unit::{Extent, Geometry, LogicalUnit, ask};

/// Carries out READ CAPACITY(10): the last block, or all ones when it does not fit.
pub(crate) fn short(geometry: &Geometry) -> Vec<u8> {
    let last = u32::try_from(geometry.blocks.saturating_sub(1)).unwrap_or(u32::MAX);
    [last.to_be_bytes(), geometry.block_bytes.to_be_bytes()].concat()
}

/// Carries out READ CAPACITY(16).
pub(crate) fn long(cdb: &[u8; 16], geometry: &Geometry) -> Vec<u8> {
    let mut bytes = vec![0; 32];
    put(&mut bytes, 0, &geometry.blocks.saturating_sub(1).to_be_bytes());
    put(&mut bytes, 8, &geometry.block_bytes.to_be_bytes());
    bytes[13] = geometry.physical_exponent.min(15);
    // Managed thin (LBPME), and what is not mapped reads as zeros (LBPRZ).
    bytes[14] = if geometry.is_thin { 0xC0 } else { 0 };
    bytes.truncate(be32(cdb, 10) as usize);
    bytes
}

/// Number of descriptors of one GET LBA STATUS, at most.
const DESCRIPTORS_MAX: usize = 1024;

/// Carries out GET LBA STATUS.
pub(crate) async fn status(cdb: &[u8; 16], unit: &dyn LogicalUnit, geometry: &Geometry) -> Result<Vec<u8>, Fault> {
    let first = be64(cdb, 2);
    if first >= geometry.blocks {
        return Err(Sense::OUT_OF_RANGE.into());
    }
    let block = u64::from(geometry.block_bytes);
    let extent = Extent { at: first * block, bytes: (geometry.blocks - first).min(u64::from(u32::MAX)) * block };
    let runs = ask(|done| unit.status(extent, done)).await.map_err(|error| Fault::of_unit(error, geometry.block_bytes))?;
    let mut bytes = vec![0; 8];
    let mut at = first;
    let limit = (be32(cdb, 10) as usize).saturating_sub(8).div_ceil(16).clamp(1, DESCRIPTORS_MAX);
    for run in runs.iter().filter(|run| run.bytes >= block).take(limit) {
        let count = (run.bytes / block).min(u64::from(u32::MAX)).min(geometry.blocks.saturating_sub(at));
        bytes.extend(at.to_be_bytes());
        bytes.extend((count as u32).to_be_bytes());
        bytes.extend([if run.is_mapped { 0 } else { 1 }, 0, 0, 0]);
        at += count;
    }
    let length = bytes.len() as u32 - 4;
    put(&mut bytes, 0, &length.to_be_bytes());
    bytes.truncate(be32(cdb, 10) as usize);
    Ok(bytes)
}
