//! Labels: four copies on each leaf of the configuration and of the ring of uberblocks (OpenZFS: `vdev_label.c`).
//!
//! Invariant of a config change (OpenZFS: `vdev_config_sync`): labels 0 and 2, then the uberblocks, then labels 1 and 3, with
//! flushes between, so that at any cut one pair of labels agrees with the newest uberblock.

pub(crate) mod commit;

use crate::PoolError;
use abd::Abd;
use device::{BlockDevice, DeviceError, DeviceIo, DeviceOp};
use exec::{Exec, completion};
use kernels::checksum::{EMBEDDED_CHECKSUM_BYTES, LabelSum, Verifier, embed, verify_embedded};
use nvlist::{Encoding, NvList};
use ondisk::label::ZioEck;
use ondisk::label::{
    CONFIG_BYTES, CONFIG_NVLIST_BYTES, CONFIG_OFFSET, LABEL_BYTES, LABELS, RING_BYTES, RING_OFFSET, RING_SLOT_SHIFT_MAX,
    RING_SLOT_SHIFT_MIN, label_offset, ring_slot_bytes, ring_slot_offset, ring_slots,
};
use ondisk::{Checksum, Guid, Txg, Uberblock};
use std::sync::Arc;

/// Offset in bytes of the magic number in an uberblock …
const UB_MAGIC_AT: usize = 0;
/// … and of its txg.
const UB_TXG_AT: usize = 16;

/// A device as labels see it.
pub(crate) type Device = Arc<dyn BlockDevice>;

/// Contents of the labels of one device.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceLabels {
    /// The valid configurations, newest txg first.
    pub configs: Vec<NvList>,
    /// The valid uberblocks, best first.
    pub uberblocks: Vec<Uberblock>,
    /// Labels without a valid configuration.
    pub damaged: usize,
    /// Slots of the rings that hold something, but no valid uberblock.
    pub damaged_uberblocks: usize,
}

impl DeviceLabels {
    /// The newest configuration that is not newer than `txg`, else the newest of all.
    pub fn config(&self, txg: Txg) -> Option<&NvList> {
        let not_newer = |config: &&NvList| config.get_u64("txg").is_some_and(|written| written <= txg.0);
        self.configs.iter().find(not_newer).or_else(|| self.configs.first())
    }
}

/// True when some label says that its device is this leaf of this pool. A crash can leave labels of two minds: a leaf that was about to
/// take its parent's place has its guid in those that were written before, and they outlive later txgs while the leaf is out of use
/// (OpenZFS: `vdev_validate`, which allows for it until the next txg).
pub(crate) fn any_names(configs: &[NvList], pool: Guid, leaf: Guid) -> bool {
    configs.iter().any(|config| config.get_u64("guid") == Some(leaf.0) && config.get_u64("pool_guid") == Some(pool.0))
}

/// A label's configuration; most devices have four copies of one, which are summed and decoded once.
struct KnownConfig {
    label: Abd,
    sum: LabelSum,
    config: NvList,
}

/// The rings of the device that was read before, and which of their uberblocks verified: most devices of a pool have the same ones at the
/// same places, and the same bytes need no second sum.
#[derive(Default)]
pub(crate) struct KnownRings(Vec<KnownRing>);

struct KnownRing {
    /// Offset in bytes of the label on the device.
    start: u64,
    label: Abd,
    /// Offsets in the label and lengths of the slots of verified uberblocks, in bytes, ascending.
    sound: Vec<(usize, usize)>,
}

impl KnownRings {
    /// True when the label at `start` had these bytes at `at`, and they verified.
    fn has(&self, start: u64, at: usize, slot: &[u8]) -> bool {
        let same = |ring: &KnownRing| {
            ring.sound.binary_search(&(at, slot.len())).is_ok()
                && ring.label.as_contiguous().and_then(|label| label.get(at..at + slot.len())) == Some(slot)
        };
        self.0.iter().any(|ring| ring.start == start && same(ring))
    }
}

/// Lets go of what this host remembers of the labels of a device: another host may have written them since.
pub(crate) fn forget_labels(device: &Device) {
    let labels = 2 * LABEL_BYTES as u64;
    device.forget_cached(0, labels);
    // The last two end at a multiple of their size.
    let from = device.size_bytes().saturating_sub(labels + LABEL_BYTES as u64);
    device.forget_cached(from, labels + LABEL_BYTES as u64);
}

/// Reads the labels of `device`. Unreadable and invalid parts are skipped. `known` is of the device before, and then of this one.
pub(crate) fn read_labels(exec: &Exec, device: &Device, known: &mut KnownRings) -> DeviceLabels {
    let mut labels = DeviceLabels::default();
    let Copies { valid, damaged } = read_configs_into(exec, device, (0, LABEL_BYTES), &mut labels);
    let ashift = labels.configs.first().and_then(|config| config.get_nvlist("vdev_tree")?.get_u64("ashift"));
    let mut seen = Vec::new();
    for (start, label) in valid {
        let label = label.to_contiguous();
        let sound = uberblocks_of(&label, (start, ashift), known, &mut labels);
        seen.push(KnownRing { start, label, sound });
    }
    if !labels.configs.is_empty() {
        add_beside_damaged(damaged, ashift, known, &mut labels);
    }
    if !seen.is_empty() {
        known.0 = seen;
    }
    labels.uberblocks.sort_by_key(|ub| std::cmp::Reverse(ub.preference()));
    labels.uberblocks.dedup();
    labels
}

/// Adds the uberblocks of rings whose label lost its configuration: power that goes off while configurations are written may damage those
/// of L0 and L2, and the newest uberblock may be beside them only, when it was written as the power went off once before. OpenZFS looks at
/// every ring (`vdev_uberblock_load`). Without a configuration nobody says whose the ring is: taken are those with the vdevs of an uberblock
/// in a valid label.
fn add_beside_damaged(rings: Vec<(u64, Abd)>, ashift: Option<u64>, known: &KnownRings, labels: &mut DeviceLabels) {
    let mut beside = DeviceLabels::default();
    for (start, label) in rings {
        uberblocks_of(&label.to_contiguous(), (start, ashift), known, &mut beside);
    }
    beside.uberblocks.retain(|ub| labels.uberblocks.iter().any(|sound| sound.ub_guid_sum == ub.ub_guid_sum));
    labels.uberblocks.append(&mut beside.uberblocks);
}

/// Copies of the label of one device: where each begins, in bytes, and what was read of it.
#[derive(Default)]
pub(crate) struct Copies {
    /// Copies with a valid configuration.
    pub valid: Vec<(u64, Abd)>,
    /// Copies that could be read, but have no valid configuration.
    pub damaged: Vec<(u64, Abd)>,
}

/// The valid configurations of `device`, newest txg first, without a look at its uberblocks.
pub(crate) fn read_configs(exec: &Exec, device: &Device) -> Vec<NvList> {
    let mut labels = DeviceLabels::default();
    read_configs_into(exec, device, (CONFIG_OFFSET, CONFIG_BYTES), &mut labels);
    labels.configs
}

/// Reads `length` bytes from `from` of each label, with the configuration in them.
pub(crate) fn read_configs_into(exec: &Exec, device: &Device, (from, length): (usize, usize), labels: &mut DeviceLabels) -> Copies {
    let (size, mut known, mut found) = (device.size_bytes(), None, Copies::default());
    if size < (LABELS * LABEL_BYTES) as u64 {
        return found;
    }
    let place = CONFIG_OFFSET - from..CONFIG_OFFSET - from + CONFIG_BYTES;
    for start in (0..LABELS).map(|index| label_offset(size, index)) {
        let label = device.read_at(exec, start + from as u64, length).ok();
        let config = label.as_ref().and_then(|label| config_of(&label.slice(place.clone()), start, &mut known));
        labels.damaged += usize::from(config.is_none());
        let copies = if config.is_some() { &mut found.valid } else { &mut found.damaged };
        copies.extend(label.map(|label| (start, label)));
        labels.configs.extend(config);
    }
    labels.configs.sort_by_key(|config| std::cmp::Reverse(config.get_u64("txg")));
    found
}

/// The configuration in a label's block, if it is valid there.
fn config_of(block: &Abd, start: u64, known: &mut Option<KnownConfig>) -> Option<NvList> {
    let block = block.to_contiguous();
    let bytes = block.as_contiguous()?;
    let (head, trailer) = bytes.split_at_checked(CONFIG_BYTES - EMBEDDED_CHECKSUM_BYTES)?;
    let verifier = Verifier::label(start + CONFIG_OFFSET as u64);
    let is_copy = |known: &KnownConfig| known.label.as_contiguous().is_some_and(|other| other[..head.len()] == *head);
    if let Some(known) = known.as_ref().filter(|known| is_copy(known)) {
        return (known.sum.trailer(verifier)[..] == *trailer).then(|| known.config.clone());
    }
    // What was never a label needs no sum, and another machine's byte order is for the slow way.
    if trailer.iter().all(|byte| *byte == 0) {
        return None;
    }
    let sum = LabelSum::of(bytes)?;
    let is_ours = sum.trailer(verifier)[..] == *trailer;
    if !is_ours {
        verify_embedded(Checksum::LABEL, bytes, verifier).ok()?;
    }
    let config = NvList::decode(&bytes[..CONFIG_NVLIST_BYTES]).ok()?;
    *known = is_ours.then(|| KnownConfig { label: block.clone(), sum, config: config.clone() });
    Some(config)
}

/// Finds the uberblocks in the ring of the label that begins at `start`; gives where in the label those that verify
/// begin, and how long their slots are.
fn uberblocks_of(label: &Abd, (start, ashift): (u64, Option<u64>), known: &KnownRings, out: &mut DeviceLabels) -> Vec<(usize, usize)> {
    let mut sound = Vec::new();
    let Some(ring) = label.as_contiguous().and_then(|label| label.get(RING_OFFSET..RING_OFFSET + RING_BYTES)) else { return sound };
    let shifts = match ashift.and_then(|ashift| u32::try_from(ashift).ok()) {
        Some(ashift) => ondisk::label::ring_slot_shift(ashift)..=ondisk::label::ring_slot_shift(ashift),
        None => RING_SLOT_SHIFT_MIN..=RING_SLOT_SHIFT_MAX,
    };
    for shift in shifts {
        for (index, slot) in ring.chunks_exact(1 << shift).enumerate().filter(|(_, slot)| !abd::slice_is_zero(slot)) {
            let decoded = Uberblock::decode_slot(slot).ok().flatten().map(|(ub, _)| ub);
            let at = RING_OFFSET + (index << shift);
            let verifies =
                || known.has(start, at, slot) || verify_embedded(Checksum::LABEL, slot, Verifier::label(start + at as u64)).is_ok();
            match decoded {
                Some(ub) if verifies() => {
                    out.uberblocks.push(ub);
                    sound.push((at, slot.len()));
                }
                // OpenZFS starts a ring with an uberblock of txg 0 and a checksum of the whole ring in its last slot. In a young pool
                // that uberblock has no magic number yet; old systems put one into every slot.
                Some(ub) if ub.ub_txg == 0 => {}
                None if abd::slice_is_zero(&slot[..slot.len() - ZioEck::SIZE]) => {}
                None if [UB_MAGIC_AT, UB_TXG_AT].iter().all(|at| abd::slice_is_zero(&slot[*at..*at + 8])) => {}
                _ => out.damaged_uberblocks += usize::from(ashift.is_some()),
            }
        }
    }
    sound.sort_unstable();
    sound
}

/// One write of a batch.
#[derive(Clone)]
pub(crate) struct LabelWrite {
    pub device: Device,
    pub offset: u64,
    pub data: Abd,
}

impl LabelWrite {
    /// Offset in bytes of the write from the start of its label.
    pub(crate) fn offset_in_label(&self) -> u64 {
        let starts = (0..LABELS).map(|index| label_offset(self.device.size_bytes(), index));
        starts.filter(|start| *start <= self.offset).max().map_or(0, |start| self.offset - start)
    }
}

/// Does everything at once, through `submit`, and waits; results in order.
pub(crate) fn do_all(
    exec: &Exec,
    ios: impl Iterator<Item = (Device, u64, DeviceOp)>,
    submit: &dyn Fn(&Device, DeviceIo),
) -> Vec<Result<(), DeviceError>> {
    let begin = |(device, offset, op)| {
        let (done, wait) = completion();
        submit(&device, DeviceIo::new(op, offset, move |reply| done.complete(reply.outcome)));
        wait
    };
    let waits: Vec<_> = ios.map(begin).collect();
    waits.into_iter().map(|wait| wait.wait(exec)).collect()
}

fn straight(device: &Device, io: DeviceIo) {
    device.submit(io);
}

/// Writes everything at once and waits; results in order.
pub(crate) fn write_all(exec: &Exec, writes: Vec<LabelWrite>) -> Vec<Result<(), DeviceError>> {
    do_all(exec, writes.into_iter().map(|write| (write.device, write.offset, DeviceOp::Write(write.data))), &straight)
}

/// The results of flushes; devices without a cache to flush count as done.
pub(crate) fn flushed(mut results: Vec<Result<(), DeviceError>>) -> Vec<Result<(), DeviceError>> {
    results.iter_mut().filter(|result| **result == Err(DeviceError::Unsupported)).for_each(|result| *result = Ok(()));
    results
}

/// Flushes the devices and waits. Devices without a cache to flush count as done.
pub(crate) fn flush_all(exec: &Exec, devices: &[Device]) -> Vec<Result<(), DeviceError>> {
    flushed(do_all(exec, devices.iter().map(|device| (device.clone(), 0, DeviceOp::Flush)), &straight))
}

/// Bytes at the end of a label block that each label has for itself: a page, so that what it shares can be written from where it is.
const CONFIG_TAIL_BYTES: usize = 4096;

/// A configuration as labels have it, summed once for the labels of one device.
pub(crate) struct ConfigBlock {
    block: Abd,
    sum: LabelSum,
}

impl ConfigBlock {
    /// Makes the block of a configuration. Errors: [`PoolError::Invalid`] when it is too long.
    pub fn new(config: &NvList) -> Result<ConfigBlock, PoolError> {
        let too_long = PoolError::Invalid("the configuration does not fit into a label");
        let packed = config.encode(Encoding::Xdr);
        if packed.len() > CONFIG_NVLIST_BYTES {
            return Err(too_long);
        }
        let mut block = Abd::zeroed(CONFIG_BYTES);
        let bytes = block.make_mut();
        bytes[..packed.len()].copy_from_slice(&packed);
        let sum = LabelSum::of(bytes).ok_or(too_long)?;
        Ok(ConfigBlock { block, sum })
    }

    /// The writes of it to the labels of the device whose index has the parity of `first` (0: L0 and L2, 1: L1 and L3).
    pub fn writes(&self, device: &Device, first: usize) -> Vec<LabelWrite> {
        let write = |index| {
            let offset = label_offset(device.size_bytes(), index) + CONFIG_OFFSET as u64;
            let (head, tail) = (0..CONFIG_BYTES - CONFIG_TAIL_BYTES, CONFIG_BYTES - CONFIG_TAIL_BYTES..CONFIG_BYTES);
            let mut tail = self.block.slice(tail);
            tail.make_mut()[CONFIG_TAIL_BYTES - EMBEDDED_CHECKSUM_BYTES..].copy_from_slice(&self.sum.trailer(Verifier::label(offset)));
            let data = Abd::gang(&[self.block.slice(head), tail]);
            LabelWrite { device: device.clone(), offset, data }
        };
        (first..LABELS).step_by(2).map(write).collect()
    }
}

/// The writes of `ub` to its slot in all four labels of one device. The last slot of a ring is that of heartbeats in a pool that has them
/// (OpenZFS: `vdev_uberblock_sync`).
pub(crate) fn uberblock_writes(device: &Device, ub: &Uberblock, ashift: u32) -> Vec<LabelWrite> {
    let of_heartbeats = usize::from(ub.ub_mmp_delay != 0);
    let slot = (ub.ub_txg % (ring_slots(ashift) - of_heartbeats) as u64) as usize;
    (0..LABELS).map(|label| slot_write(device, ub, (ashift, slot), label)).collect()
}

/// The write of `ub` as a heartbeat to one label of a device (OpenZFS: `mmp_write_uberblock`).
pub(crate) fn heartbeat_write(device: &Device, ub: &Uberblock, ashift: u32, label: usize) -> LabelWrite {
    slot_write(device, ub, (ashift, ring_slots(ashift) - 1), label)
}

fn slot_write(device: &Device, ub: &Uberblock, (ashift, slot): (u32, usize), label: usize) -> LabelWrite {
    let offset = label_offset(device.size_bytes(), label) + ring_slot_offset(ashift, slot) as u64;
    let mut block = ub.encode_slot(ring_slot_bytes(ashift));
    seal(&mut block, offset);
    LabelWrite { device: device.clone(), offset, data: Abd::from_slice(&block) }
}

/// The writes that empty the slots of a device's rings whose uberblocks are of txgs that `is_left` picks, whether they verify or not. Rings that
/// cannot be read are left as they are.
pub(crate) fn forgetting_writes(exec: &Exec, device: &Device, ashift: u32, is_left: &dyn Fn(u64) -> bool) -> Vec<LabelWrite> {
    let mut writes = Vec::new();
    for start in (0..LABELS).map(|index| label_offset(device.size_bytes(), index) + RING_OFFSET as u64) {
        let Ok(ring) = device.read_at(exec, start, RING_BYTES) else { continue };
        for (index, slot) in ring.to_vec().chunks_exact(ring_slot_bytes(ashift)).enumerate() {
            if Uberblock::decode_slot(slot).ok().flatten().is_some_and(|(ub, _)| is_left(ub.ub_txg)) {
                let offset = start + (index * slot.len()) as u64;
                writes.push(LabelWrite { device: device.clone(), offset, data: Abd::zeroed(slot.len()) });
            }
        }
    }
    writes
}

/// The write that empties what is behind the last label, where copies of partition tables and the labels of other systems are.
pub(crate) fn tail_write(device: &Device) -> Option<LabelWrite> {
    let offset = device.size_bytes() / LABEL_BYTES as u64 * LABEL_BYTES as u64;
    let sector = u64::from(device.facts().logical_sector_bytes.max(1));
    let length = (device.size_bytes() - offset) / sector * sector;
    (length > 0).then(|| LabelWrite { device: device.clone(), offset, data: Abd::zeroed(length as usize) })
}

/// The writes that make a device's labels those of a new vdev: configuration, empty boot block, empty ring (OpenZFS:
/// `vdev_label_init`). What others had before and behind them is emptied, so that nobody takes the device for theirs (OpenZFS:
/// `zero_label`).
pub(crate) fn init_writes(device: &Device, config: &NvList) -> Result<Vec<LabelWrite>, PoolError> {
    let (block, ring) = (ConfigBlock::new(config)?, Abd::zeroed(RING_BYTES));
    let mut writes = [block.writes(device, 0), block.writes(device, 1)].concat();
    for index in 0..LABELS {
        let start = label_offset(device.size_bytes(), index);
        let boot = ondisk::label::BOOT_BLOCK_OFFSET as u64;
        let mut block = Abd::zeroed(ondisk::label::BOOT_BLOCK_BYTES);
        seal(block.make_mut(), start + boot);
        let blank = Abd::zeroed(ondisk::label::BOOT_BLOCK_OFFSET);
        writes.push(LabelWrite { device: device.clone(), offset: start, data: blank });
        writes.push(LabelWrite { device: device.clone(), offset: start + boot, data: block });
        writes.push(LabelWrite { device: device.clone(), offset: start + RING_OFFSET as u64, data: ring.clone() });
    }
    writes.extend(tail_write(device));
    Ok(writes)
}

/// The writes that begin the rings of a device that left its pool: the pool's uberblock as of then, with a txg of 0 so that nobody takes
/// it for one, under one checksum for the whole ring (OpenZFS: `vdev_label_init`). With it `zhack label repair -u` undoes a detach.
pub(crate) fn retired_ring_writes(device: &Device, ub: &Uberblock) -> Vec<LabelWrite> {
    let retired = Uberblock { ub_txg: 0, ..ub.clone() };
    let write = |index| {
        let offset = label_offset(device.size_bytes(), index) + RING_OFFSET as u64;
        let mut ring = retired.encode_slot(RING_BYTES);
        seal(&mut ring, offset);
        LabelWrite { device: device.clone(), offset, data: Abd::from_slice(&ring) }
    };
    (0..LABELS).map(write).collect()
}

/// Puts the checksum that every label block ends with.
fn seal(block: &mut [u8], offset: u64) {
    // Only a block shorter than its trailer can be refused.
    let done = embed(Checksum::LABEL, block, Verifier::label(offset));
    debug_assert!(done.is_ok(), "label blocks are longer than their trailer");
}
