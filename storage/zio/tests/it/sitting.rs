//! Leaves that sit out, in virtual time: what a slow device costs the others, with and without, and whether the bytes are right whatever else fails.

use crate::common::{Rig, bookmark, inline, noise, request};
use abd::Abd;
use device::DeviceError;
use exec::Mutex;
use ondisk::{BlockPtr, Guid};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vdev::{LeafId, TopKind};
use zio::{ReadRequest, Spell, Zio};

/// Nanoseconds that a device takes for an I/O.
const EACH_NS: u64 = 2_000_000;
/// Factor of a slow device.
const SLOW: u64 = 5;
/// Reads in flight.
const AT_ONCE: usize = 32;
/// Times that each block is read.
const ROUNDS: usize = 4;
/// Step from one read block to the next, so that neighbours are not read together; without a factor in common with the numbers of blocks.
const STRIDE: usize = 37;
const SECOND_NS: u64 = 1_000_000_000;

/// A pool with blocks.
struct Bed {
    rig: Rig,
    blocks: Vec<(BlockPtr, Abd)>,
}

/// Reads that go on one after the other.
struct Reads {
    zio: Zio,
    left: Mutex<Vec<(BlockPtr, Abd)>>,
    done: AtomicUsize,
}

fn go_on(reads: &Arc<Reads>) {
    let Some((bp, want)) = reads.left.lock().pop() else { return };
    let own = reads.clone();
    let then = Box::new(move |result: Result<Abd, zio::ZioError>| {
        assert!(result.is_ok_and(|data| data == want), "wrong bytes, or none");
        own.done.fetch_add(1, Ordering::Relaxed);
        go_on(&own);
    });
    reads.zio.read(ReadRequest::new(bp, bookmark(0)), then);
}

impl Bed {
    /// One vdev of so many leaves, and blocks of so many bytes. Each leaf does one I/O after the other.
    fn new((kind, leaves): (TopKind, usize), blocks: u64, bytes: usize) -> Bed {
        let rig = Rig::new(inline(), &[(kind, leaves)], 12);
        let write = |block: u64| {
            let data = noise(block + 1, bytes);
            (rig.write(request(data.clone(), block)).expect("written"), data)
        };
        let blocks = (0..blocks).map(write).collect();
        (0..leaves).for_each(|leaf| rig.set_pace(leaf, EACH_NS));
        Bed { rig, blocks }
    }

    fn guid(&self, leaf: usize) -> Guid {
        self.rig.zio.view().tree.leaf(LeafId(leaf as u32)).guid
    }

    fn sit_out(&self, leaf: usize) -> bool {
        self.rig.zio.sit_out(self.guid(leaf), Spell::Usual)
    }

    /// Reads all blocks, each of them several times, and gives the nanoseconds that it took.
    fn read(&self) -> u64 {
        let (exec, count) = (&self.rig.exec, self.blocks.len());
        let left: Vec<_> = (0..ROUNDS * count).map(|number| self.blocks[number * STRIDE % count].clone()).collect();
        let all = left.len();
        let reads = Arc::new(Reads { zio: self.rig.zio.clone(), left: Mutex::new(left), done: AtomicUsize::new(0) });
        let began_ns = exec.now_ns();
        (0..AT_ONCE).for_each(|_| go_on(&reads));
        exec.wait(&|| reads.done.load(Ordering::Relaxed) == all, &|| {});
        exec.now_ns() - began_ns
    }

    /// Number of reads that the leaf was asked for since the last call.
    fn take_reads(&self, leaf: usize) -> usize {
        std::mem::take(&mut *self.rig.devices[leaf].reads.lock()).len()
    }

    /// Times that reading takes with all devices alike, with a slow one, and with that sitting out.
    fn times(&self, slow: usize) -> [u64; 3] {
        let alike = self.read();
        self.rig.set_pace(slow, SLOW * EACH_NS);
        let waiting = self.read();
        self.take_reads(slow);
        assert!(self.sit_out(slow));
        let sitting = self.read();
        assert_eq!(self.take_reads(slow), 0, "nothing is asked of what sits out");
        [alike, waiting, sitting]
    }
}

/// If this fails, a whole RAID-Z goes at the pace of its slowest device, although `autosit` found which one that is.
#[test]
fn a_slow_device_that_sits_out_costs_its_own_part_and_no_more() {
    // 6 and 23 columns of data of a sector.
    for (leaves, blocks) in [(8, 96), (25, 100)] {
        let bed = Bed::new((TopKind::Raidz(2), leaves), blocks, (leaves - 2) << 12);
        for slow in [1, leaves - 1] {
            (0..leaves).for_each(|leaf| bed.rig.set_pace(leaf, EACH_NS));
            let [alike, waiting, sitting] = bed.times(slow);
            let what = format!("raidz2 of {leaves}, leaf {slow}: {alike}, {waiting}, {sitting} ns");
            assert!(waiting > 3 * alike, "{what}");
            // A device's part of what the others do, and a thirtieth for how blocks happen to lie.
            let own = sitting / (leaves as u64 - 1);
            assert!(sitting.saturating_sub(alike) <= own + sitting / 30, "{what}");
            bed.rig.zio.leaf_stats(LeafId(slow as u32)).end_sitting_out();
        }
    }
}

/// If this fails, devices that fail a read in a thousand make a whole RAID-Z slow.
#[test]
fn an_error_in_a_thousand_costs_next_to_nothing() {
    let bed = Bed::new((TopKind::Raidz(2), 25), 100, 23 << 12);
    let alike = bed.read();
    let first = bed.rig.faults.count.load(Ordering::Relaxed);
    bed.rig.faults.fail.lock().extend((first..first + 100_000).step_by(1000));
    let failing = bed.read();
    assert!(failing.saturating_sub(alike) <= failing / 24, "{alike}, {failing} ns");
    let errors = |leaf| bed.rig.zio.leaf_stats(LeafId(leaf)).counts().errors.iter().sum::<u64>();
    assert!((0..25).map(errors).sum::<u64>() >= 5, "they are counted, so that the device can be named");
}

/// If this fails, every third read of a mirror waits for its slow device, or one of the others gets all of these.
#[test]
fn a_slow_device_of_a_mirror_leaves_its_reads_to_all_others() {
    let bed = Bed::new((TopKind::Mirror, 3), 96, 128 << 10);
    let [alike, waiting, sitting] = bed.times(1);
    assert!(waiting > 3 * alike, "{alike}, {waiting} ns");
    assert!(sitting < alike * 7 / 4, "two do the work of three: {alike}, {sitting} ns");
}

/// If this fails, blocks are lost, or wrong, since a device sits out that has them right.
#[test]
fn bytes_are_right_while_others_fail_or_lie() {
    let bed = Bed::new((TopKind::Raidz(2), 8), 32, 6 << 12);
    assert!(bed.sit_out(2) && bed.sit_out(5) && !bed.sit_out(6), "as many as there is parity");
    for others in [vec![0], vec![0, 7]] {
        bed.rig.kill(&others, DeviceError::Io);
        bed.read();
        bed.rig.revive();
        bed.rig.kill(&others, DeviceError::Gone);
        bed.read();
        bed.rig.revive();
        bed.rig.corrupt(&others);
        bed.read();
    }
    assert!(bed.rig.zio.stats().sat_out_reads.get() > 0);
}

/// If this fails, a device that sits out misses what is written meanwhile, and the pool has less redundancy than it shows; or a scrub passes over it.
#[test]
fn what_sits_out_is_written_to_and_scrubbed() {
    let bed = Bed::new((TopKind::Raidz(1), 4), 1, 12 << 10);
    assert!(bed.sit_out(3));
    let data = noise(77, 12 << 10);
    let bp = bed.rig.write(request(data.clone(), 7)).expect("written");
    bed.take_reads(3);
    assert!(bed.rig.scrub(&bp).is_ok());
    assert!(bed.take_reads(3) > 0, "a scrub reads all");
    bed.rig.kill(&[0], DeviceError::Gone);
    assert!(bed.rig.read(&bp).is_ok_and(|read| read == data), "it has what was written");
    assert_eq!(bed.rig.zio.take_missing(), Vec::new());
}

/// If this fails, a device that was slow for a moment is never read again, or `vdev_read_sit_out_secs` does nothing.
#[test]
fn a_spell_ends_after_its_seconds_and_at_once_with_none() {
    let bed = Bed::new((TopKind::Raidz(1), 4), 4, 12 << 10);
    let (zio, exec, leaf) = (&bed.rig.zio, &bed.rig.exec, bed.guid(2));
    zio.set_sit_out_seconds(5);
    assert!(bed.sit_out(2) && !bed.sit_out(1) && zio.sits_out(leaf));
    exec.sleep_ns(4 * SECOND_NS);
    assert!(zio.sits_out(leaf));
    exec.sleep_ns(2 * SECOND_NS);
    assert!(!zio.sits_out(leaf) && bed.sit_out(1), "another one may");
    zio.set_sit_out_seconds(0);
    assert!(!zio.sits_out(bed.guid(1)) && !zio.may_sit_out());
    zio.set_sit_out_seconds(600);
    assert!(zio.sit_out(bed.guid(1), Spell::Endless));
    exec.sleep_ns(10_000 * SECOND_NS);
    assert!(zio.sits_out(bed.guid(1)));
    zio.leaf_stats_of(bed.guid(1)).clear_errors();
    assert!(!zio.sits_out(bed.guid(1)), "zpool clear");
}
