//! The disk as bytes: labels and blocks read and written past the engine, with their checksums made right.

use crate::machine::DEVICE_BYTES;
use kernels::checksum::{ByteOrder, Verifier, checksum, embed};
use ondisk::label::{
    CONFIG_BYTES, CONFIG_OFFSET, LABEL_END_BYTES, LABEL_START_BYTES, LABELS, RING_OFFSET, label_offset, ring_slot_bytes, ring_slot_offset,
    ring_slots,
};
use ondisk::{BlockPtr, Checksum, Compression, Dva, Uberblock, VdevId};
use sim::Image;

/// log2 of the sectors of the pools here, in bytes.
const ASHIFT: u32 = 9;
/// Bytes of the largest block that is followed.
const BLOCK_BYTES_MAX: usize = 1 << 20;

/// Offset in bytes of a slot of the ring in a label.
pub fn slot_offset(label: usize, slot: usize) -> usize {
    label_offset(DEVICE_BYTES as u64, label) as usize + ring_slot_offset(ASHIFT, slot)
}

/// Bytes of a slot.
pub fn slot_bytes() -> usize {
    ring_slot_bytes(ASHIFT)
}

/// Uberblocks of the first label, all of them, best first, with their slots.
pub fn uberblocks(image: &Image) -> Vec<(usize, Uberblock)> {
    let mut found = Vec::new();
    for slot in 0..ring_slots(ASHIFT) {
        let mut bytes = vec![0; slot_bytes()];
        image.read(slot_offset(0, slot), &mut bytes);
        if let Ok(Some((ub, _))) = Uberblock::decode_slot(&bytes) {
            found.push((slot, ub));
        }
    }
    found.sort_by_key(|(_, ub)| std::cmp::Reverse(ub.preference()));
    found
}

/// Writes `bytes`, with the checksum that belongs there, to the same place of every label. `start` lies inside a label.
fn write_sealed(image: &mut Image, start: usize, bytes: &[u8]) {
    for label in 0..LABELS {
        let offset = label_offset(DEVICE_BYTES as u64, label) as usize + start;
        let mut block = bytes.to_vec();
        if embed(Checksum::LABEL, &mut block, Verifier::label(offset as u64)).is_ok() {
            image.write(offset, &block);
        }
    }
}

/// Replaces a slot of the ring in all labels.
pub fn write_slot(image: &mut Image, slot: usize, bytes: &[u8]) {
    write_sealed(image, ring_slot_offset(ASHIFT, slot), bytes);
}

/// Bytes of the configuration block of the first label.
pub fn config(image: &Image) -> Vec<u8> {
    let mut bytes = vec![0; CONFIG_BYTES];
    image.read(label_offset(DEVICE_BYTES as u64, 0) as usize + CONFIG_OFFSET, &mut bytes);
    bytes
}

/// Replaces the configuration of all labels.
pub fn write_config(image: &mut Image, bytes: &[u8]) {
    write_sealed(image, CONFIG_OFFSET, bytes);
}

/// Offset in bytes of the first byte of the ring in a label.
pub fn ring_offset(label: usize) -> usize {
    label_offset(DEVICE_BYTES as u64, label) as usize + RING_OFFSET
}

/// Bytes of a block of a pool of one device, unpacked.
pub fn read_block(image: &Image, bp: &BlockPtr) -> Option<Vec<u8>> {
    if bp.is_hole() || bp.is_embedded() || bp.is_gang() || bp.lsize() > BLOCK_BYTES_MAX {
        return None;
    }
    let offset = (bp.dva(0).offset + LABEL_START_BYTES) as usize;
    if offset + bp.psize() > image.size_bytes() {
        return None;
    }
    let mut raw = vec![0; bp.psize()];
    image.read(offset, &mut raw);
    if bp.compression() == Compression::OFF {
        return Some(raw);
    }
    let mut plain = vec![0; bp.lsize()];
    kernels::compress::decompress(bp.compression(), &raw, &mut plain).ok()?;
    Some(plain)
}

/// Forger that writes changed blocks to space that nobody uses, from the end of the device down.
pub struct Forger {
    next: u64,
}

impl Forger {
    /// Makes a forger that starts at the end of the space of a device.
    pub fn new() -> Forger {
        Forger { next: (DEVICE_BYTES as u64 - LABEL_START_BYTES - LABEL_END_BYTES) & !0xF_FFFF }
    }

    /// Writes `plain` in place of what `bp` points at; returns the pointer to it, with the right checksum.
    pub fn write(&mut self, image: &mut Image, bp: &BlockPtr, plain: &[u8]) -> Option<BlockPtr> {
        let size = plain.len().next_multiple_of(512) as u64;
        self.next = self.next.checked_sub(size)?;
        let mut forged = *bp;
        for copy in 0..3 {
            forged.set_dva(copy, Dva { vdev: VdevId(0), offset: 0, asize: 0, gang: false });
        }
        forged.set_dva(0, Dva { vdev: VdevId(0), offset: self.next, asize: size, gang: false });
        forged.set_compression(Compression::OFF);
        forged.set_psize(plain.len());
        forged.set_checksum_kind(Checksum::FLETCHER_4);
        forged.set_checksum(checksum(Checksum::FLETCHER_4, &[plain], ByteOrder::Little).ok()?);
        image.write((self.next + LABEL_START_BYTES) as usize, plain);
        Some(forged)
    }
}
