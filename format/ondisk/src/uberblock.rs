//! The uberblock (OpenZFS: `uberblock_t`, `uberblock_impl.h`): the root of a pool as of one txg, kept in the rings of the labels.
//!
//! A reader tells the byte order from the magic number; the embedded checksum of the slot is the caller's to verify first.

use crate::label::ZioEck;
use crate::record::{ByteOrder, Field, ShortRecord, record};
use crate::{BlockPtr, Txg};

record! {
    /// The root of a pool's state (OpenZFS: `uberblock_t`). Pools from before MMP have zeros past `ub_software_version`.
    Uberblock = "uberblock_t", 216 {
        /// [`Uberblock::MAGIC`] in the writer's byte order.
        0 => ub_magic: u64,
        /// Pool version.
        8 => ub_version: u64,
        /// Txg of this state.
        16 => ub_txg: u64,
        /// Sum of all vdevs' guids.
        24 => ub_guid_sum: u64,
        /// Time in seconds since 1970.
        32 => ub_timestamp: u64,
        /// The MOS's object set block.
        40 => ub_rootbp: BlockPtr,
        /// Highest pool version that the writer supports.
        168 => ub_software_version: u64,
        /// [`Uberblock::MMP_MAGIC`] when the MMP fields are meant.
        176 => ub_mmp_magic: u64,
        /// Nanoseconds since the last MMP write; 0 when multihost is off.
        184 => ub_mmp_delay: u64,
        /// Interval, sequence and fail count of multihost with their valid bits.
        192 => ub_mmp_config: u64,
        /// Txg that the uberblock had, in that of a checkpoint.
        200 => ub_checkpoint_txg: u64,
        /// State and offset of a RAID-Z expansion.
        208 => ub_raidz_reflow_info: u64,
    }
}

/// States of a RAID-Z expansion's scratch area (OpenZFS: `raidz_reflow_scratch_state_t`).
#[allow(missing_docs, reason = "the standard's names")]
pub mod reflow_state {
    pub const SCRATCH_NOT_IN_USE: u16 = 0;
    pub const SCRATCH_VALID: u16 = 1;
    pub const SCRATCH_INVALID_SYNCED: u16 = 2;
    pub const SCRATCH_INVALID_SYNCED_ON_IMPORT: u16 = 3;
    pub const SCRATCH_INVALID_SYNCED_REFLOW: u16 = 4;
}

impl Uberblock {
    /// Magic of an uberblock: "oo-ba-bloc!"
    pub const MAGIC: u64 = 0x00ba_b10c;
    /// Marks the MMP fields as meant.
    pub const MMP_MAGIC: u64 = 0xa11c_ea11;

    /// Decodes a slot of the ring in the byte order that its magic shows; `Ok(None)` when the slot holds no uberblock.
    pub fn decode_slot(slot: &[u8]) -> Result<Option<(Uberblock, ByteOrder)>, ShortRecord> {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let ub = Uberblock::decode_order(slot, order)?;
            if ub.ub_magic == Uberblock::MAGIC {
                return Ok(Some((ub, order)));
            }
        }
        Ok(None)
    }
    /// The slot's bytes, zero-filled, without the embedded checksum: that covers the whole slot and depends on its offset.
    pub fn encode_slot(&self, slot_bytes: usize) -> Vec<u8> {
        let mut out = vec![0; slot_bytes.max(Uberblock::SIZE + ZioEck::SIZE)];
        self.put(&mut out, ByteOrder::Little);
        out
    }
    /// Txg of this state.
    pub fn txg(&self) -> Txg {
        Txg(self.ub_txg)
    }
    /// The order in which the best uberblock is chosen: txg, then time, then MMP sequence (OpenZFS: `vdev_uberblock_compare`).
    pub fn preference(&self) -> (u64, u64, u64) {
        (self.ub_txg, self.ub_timestamp, self.mmp_sequence().unwrap_or(0))
    }
    /// True when the MMP fields are meant.
    pub fn mmp_valid(&self) -> bool {
        self.ub_magic == Uberblock::MAGIC && self.ub_mmp_magic == Uberblock::MMP_MAGIC
    }
    /// Multihost write interval in milliseconds.
    pub fn mmp_interval_ms(&self) -> Option<u64> {
        (self.mmp_valid() && self.ub_mmp_config & 1 != 0).then_some(self.ub_mmp_config >> 8 & 0x00FF_FFFF)
    }
    /// Sequence number within the second of `ub_timestamp`.
    pub fn mmp_sequence(&self) -> Option<u64> {
        (self.mmp_valid() && self.ub_mmp_config & 2 != 0).then_some(self.ub_mmp_config >> 32 & 0xFFFF)
    }
    /// Failed intervals after which a pool with multihost suspends.
    pub fn mmp_fail_intervals(&self) -> Option<u64> {
        (self.mmp_valid() && self.ub_mmp_config & 4 != 0).then_some(self.ub_mmp_config >> 48)
    }
    /// Word of [`Uberblock::ub_mmp_config`] with all three parts valid: milliseconds between heartbeats (24 bits of them), number of the heartbeat in
    /// its second, and failed intervals (OpenZFS: `MMP_INTERVAL_SET`, `MMP_SEQ_SET`, `MMP_FAIL_INT_SET`).
    pub fn mmp_config_of(interval_ms: u64, sequence: u16, fail_intervals: u16) -> u64 {
        let valid_bits = 0b111;
        ((interval_ms & 0x00FF_FFFF) << 8) | (u64::from(sequence) << 32) | (u64::from(fail_intervals) << 48) | valid_bits
    }
    /// Sets state and offset, in bytes, of a RAID-Z expansion (OpenZFS: `RAIDZ_REFLOW_SET`).
    pub fn set_raidz_reflow(&mut self, state: u16, offset: u64) {
        self.ub_raidz_reflow_info = (u64::from(state) << 55) | ((offset >> 9) & ((1 << 55) - 1));
    }
    /// Offset of a RAID-Z expansion's reflow, in bytes.
    pub fn raidz_reflow_offset(&self) -> u64 {
        (self.ub_raidz_reflow_info & ((1 << 55) - 1)) << 9
    }
    /// State of a RAID-Z expansion's scratch area (OpenZFS: `raidz_reflow_scratch_state_t`).
    pub fn raidz_reflow_state(&self) -> u16 {
        (self.ub_raidz_reflow_info >> 55) as u16
    }
}
