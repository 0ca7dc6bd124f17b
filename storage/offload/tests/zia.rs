//! Stages of writes and reads on a provider: whatever it does, the pool has the bytes that software gives it.
//!
//! Every operation of a hundred records, each stage by itself, is what `torture zia` goes through.

/// The small pool of the pipeline's own tests.
#[path = "../../zio/tests/it/common/mod.rs"]
mod common;
mod scene;

use abd::Abd;
use common::*;
use device::DeviceError;
use dpusm::{BreakerState, FallbackReason, OpError, OpKind, Tally};
use kernels::checksum::Salt;
use offload::{ZiaMode, ZiaPolicy};
use ondisk::{BlockPtr, Checksum, Compression, Level, ObjectType, ObjsetId, VdevId};
use provider_faulty::{Fault, Harm, When};
use scene::*;
use std::ops::Range;
use std::sync::Arc;
use vdev::{LeafState, TopKind, VdevTree};
use zio::{PoolView, ReadFlags, ReadRequest, WriteRequest};

/// Every subset of stages, in both modes, on every layout: what lies on the devices is what software puts there, bit by bit.
#[test]
fn any_set_of_stages_gives_the_same_bytes() {
    for (name, layout) in layouts() {
        let wanted = reference(&layout, 28);
        for set in 0..16u32 {
            for mode in [ZiaMode::Offload, ZiaMode::PerOp] {
                let bit = |index: u32| set >> index & 1 == 1;
                let policy =
                    ZiaPolicy { compress: bit(0), checksum: bit(1), raidz_gen: [bit(2); 3], decompress: bit(3), mode, ..everything() };
                let world = world(&layout, policy, 1);
                let what = format!("{name}, stages {set:04b}, {mode:?}");
                assert!(run(&world.rig, 28, &what) == wanted.0, "{what}: other pointers");
                assert!(world.rig.holds(&wanted.1), "{what}: other bytes on the devices");
                drain(&world);
                assert_eq!(world.device.live_handles(), 0, "{what}");
                assert_eq!(world.faulty.operations() > 0, set & 0b1011 != 0 || (bit(2) && name.starts_with("raidz")), "{what}");
            }
        }
    }
}

/// A provider that fails, lies, gives less, hangs, is late or dies, at any operation of any stage: every record around it reads back, what is on the
/// devices can be scrubbed without a repair, and nothing leaks.
#[test]
fn no_fault_at_any_operation_costs_data() {
    let layout = [(TopKind::Raidz(2), 5)];
    for mode in [ZiaMode::Offload, ZiaMode::PerOp] {
        let mut world = world(&layout, ZiaPolicy { mode, ..everything() }, u32::MAX);
        let count = 14;
        let starts = starts_of_writes(&world, count);
        let operations = starts[count as usize];
        assert!(operations > 6 * count, "{operations}");
        for harm in HARMS {
            for at in 0..operations {
                let what = format!("{harm:?} at {at}, {mode:?}");
                let (records, at) = part(&starts, at, PLAYED);
                trust_again(&mut world);
                world.faulty.inject(Some(Fault { harm, when: When::At(at) }));
                let pointers = run_part(&world.rig, records, &what);
                assert_eq!(world.faulty.struck(), 1, "{what} struck nothing");
                for bp in pointers.iter().filter(|bp| !bp.is_hole() && !bp.is_embedded()) {
                    assert!(world.rig.scrub(bp).is_ok(), "{what}: a scrub");
                    give_back(&world, bp);
                }
                assert!((0..5).all(|leaf| world.rig.checksum_errors(leaf) == 0), "{what}: a device has wrong bytes");
                drain(&world);
                assert_eq!(world.device.live_handles(), 0, "{what} leaked");
            }
        }
    }
}

/// Numbers of operations before each of so many records that are written and read, and of all.
fn starts_of_writes(world: &World, count: u64) -> Vec<u64> {
    starts(world, count, |records| run_part(&world.rig, records, "no fault").iter().for_each(|bp| give_back(world, bp)))
}

/// A provider that writes the devices by itself puts there what the host would; devices that are gone are noted as ever.
#[test]
fn blocks_that_the_provider_writes_are_the_same() {
    for (name, layout) in layouts() {
        let wanted = reference(&layout, 28);
        let world = world(&layout, all_the_way(), 1);
        world.rig.zio.open_stores();
        assert!(run(&world.rig, 28, name) == wanted.0, "{name}: other pointers");
        assert!(world.rig.holds(&wanted.1), "{name}: other bytes on the devices");
        let stats = world.device.stats();
        assert!(stats.get(OpKind::Store, Tally::Blocks) > 0, "{name}: it wrote nothing");
        assert_eq!(stats.get(OpKind::Compress, Tally::Restarts), 0, "{name}");
        world.rig.zio.set_stage(None);
        drain(&world);
        assert_eq!(world.device.live_handles(), 0, "{name}");
    }
}

/// Blocks of a provider take the pipeline's way: one that has to be a gang comes back and becomes one. If it did not, the pool would say that it is full,
/// or the provider's blocks would be placed by other rules than the host's.
#[test]
fn gangs_are_made_of_what_the_provider_compressed() {
    let layout = [(TopKind::Raidz(1), 3)];
    for mode in [ZiaMode::Offload, ZiaMode::PerOp] {
        let world = world(&layout, ZiaPolicy { mode, ..everything() }, 1);
        let compressed = || world.device.stats().get(OpKind::Compress, Tally::Blocks);
        let before = compressed();
        world.rig.zio.set_forced_ganging(2048, 100);
        let data = text(5, 32 << 10);
        let bp = world.rig.write(WriteRequest { compression: Compression::LZ4, ..request(data.clone(), 5) }).expect("written");
        assert!(bp.is_gang() && bp.compression() == Compression::LZ4, "{mode:?}: {bp:?}");
        assert!(compressed() > before, "{mode:?}");
        assert!(world.rig.read(&bp).expect("it reads") == data, "{mode:?}");
        drain(&world);
        assert_eq!(world.device.live_handles(), 0, "{mode:?}");
    }
}

/// What does not compress must not take the way to the provider's engine and back; what does must.
#[test]
fn what_does_not_compress_is_not_sent_to_be_compressed() {
    let layout = [(TopKind::Raidz(2), 5)];
    let world = world(&layout, everything(), 1);
    let compressed = || world.device.stats().get(OpKind::Compress, Tally::Blocks);
    let spared = || world.device.stats().get(OpKind::Compress, Tally::Fallback(FallbackReason::Incompressible));
    for compression in [Compression::GZIP_6, Compression::ZSTD] {
        let (compressed_before, spared_before) = (compressed(), spared());
        let write = |data: Abd| {
            let zstd_level = if compression == Compression::ZSTD { 3 } else { 0 };
            let bp = world.rig.write(WriteRequest { compression, zstd_level, ..request(data.clone(), 1) }).expect("written");
            assert!(world.rig.read(&bp).expect("it reads") == data);
            bp
        };
        let as_it_is = write(noise(1, 32 << 10));
        assert_eq!((as_it_is.compression(), compressed(), spared()), (Compression::OFF, compressed_before, spared_before + 1));
        let packed = write(text(1, 32 << 10));
        assert_eq!((packed.compression(), compressed(), spared()), (compression, compressed_before + 1, spared_before + 1));
    }
    assert!(world.device.stats().get(OpKind::Checksum, Tally::Blocks) >= 4, "the other stages are");
}

/// A provider that says "written" of a block whose vdev lost more devices than it has parity would lose it: the host judges those.
#[test]
fn what_the_vdev_cannot_hold_is_not_taken_for_written() {
    let layout = [(TopKind::Raidz(1), 3)];
    let world = world(&layout, all_the_way(), u32::MAX);
    world.rig.zio.open_stores();
    let stored = || world.device.stats().get(OpKind::Store, Tally::Blocks);
    for gone in 0..3 {
        let mut view = world.rig.zio.view();
        let mut tree = VdevTree::clone(&view.tree);
        for leaf in 0..gone {
            tree.leaves[leaf].state = LeafState::Missing;
            view.devices[leaf] = None;
        }
        view.tree = Arc::new(tree);
        world.rig.zio.set_view(view);
        let before = stored();
        let outcome = world.rig.write(record(0));
        assert_eq!(outcome.is_ok(), gone < 2, "{gone} devices gone: {outcome:?}");
        assert_eq!(stored() > before, gone < 2, "{gone} devices gone: what the provider wrote");
        if let Ok(bp) = outcome {
            assert!(world.rig.read(&bp).expect("it reads") == record(0).data);
        }
    }
}

/// As above with faults at every operation, verified and not. What is not verified is believed to be parity and to be written; a lie there is found when
/// it is read.
#[test]
fn no_fault_of_a_provider_that_writes_costs_data() {
    let layout = [(TopKind::Raidz(2), 5)];
    for policy in [all_the_way(), ZiaPolicy { verify_percent: 100.0, ..all_the_way() }] {
        writes_are_whole(&layout, &policy);
    }
}

fn writes_are_whole(layout: &[(TopKind, usize)], policy: &ZiaPolicy) {
    let mut world = world(layout, policy.clone(), u32::MAX);
    world.rig.zio.open_stores();
    let starts = starts_of_writes(&world, 7);
    let operations = starts[7];
    let can_lie = policy.verify_percent > 0.0;
    for harm in HARMS.into_iter().filter(|harm| can_lie || !matches!(harm, Harm::Lie | Harm::Short)) {
        for at in 0..operations {
            let what = format!("{harm:?} at {at}, {} % verified", policy.verify_percent);
            let (records, at) = part(&starts, at, PLAYED);
            trust_again(&mut world);
            world.faulty.inject(Some(Fault { harm, when: When::At(at) }));
            let pointers = run_part(&world.rig, records, &what);
            assert_eq!(world.faulty.struck(), 1, "{what} struck nothing");
            drain(&world);
            for bp in pointers.iter().filter(|bp| !bp.is_hole() && !bp.is_embedded()) {
                assert!(world.rig.scrub(bp).is_ok(), "{what}: a scrub");
                give_back(&world, bp);
            }
            assert!((0..5).all(|leaf| world.rig.checksum_errors(leaf) == 0), "{what}: a device has wrong bytes");
        }
    }
}

/// Columns of lost devices are computed there, and whatever it does, every block reads as it was written.
#[test]
fn lost_devices_are_read_through_whatever_the_provider_does() {
    let layout = [(TopKind::Raidz(2), 5)];
    let mut world = world(&layout, everything(), u32::MAX);
    let count = 14;
    let pointers = run(&world.rig, count, "whole");
    world.rig.kill(&[1, 2], DeviceError::Io);
    let read = |world: &World, records: Range<u64>, what: &str| {
        for (number, bp) in records.map(|number| (number, &pointers[number as usize])).filter(|(_, bp)| !bp.is_hole()) {
            let back = world.rig.read(bp).unwrap_or_else(|error| panic!("{what}: record {number}: {error}"));
            assert!(back == record(number).data, "{what}: record {number} reads as something else");
        }
    };
    let starts = starts(&world, count, |records| read(&world, records, "degraded"));
    assert!(world.device.stats().get(OpKind::RaidReconstruct, Tally::Blocks) > 0, "nothing went to the provider");
    for harm in HARMS {
        for at in 0..starts[count as usize] {
            let what = format!("{harm:?} at {at}");
            let (records, at) = part(&starts, at, PLAYED);
            trust_again(&mut world);
            world.faulty.inject(Some(Fault { harm, when: When::At(at) }));
            read(&world, records, &what);
            assert_eq!(world.faulty.struck(), 1, "{what} struck nothing");
            drain(&world);
            assert_eq!(world.device.live_handles(), 0, "{what} leaked");
        }
    }
    assert!(world.rig.checksum_errors(0) + world.rig.checksum_errors(3) + world.rig.checksum_errors(4) == 0, "a device was blamed");
}

/// The cache hands a file's bytes to its reader wrong if this fails, or asks a provider on and on that was caught lying.
#[test]
fn blocks_read_raw_are_unpacked_to_what_was_written_whatever_the_provider_does() {
    let mut world = world(&[(TopKind::Raidz(1), 3)], everything(), u32::MAX);
    let pointers = run(&world.rig, 14, "written");
    let packed: Vec<(u64, &BlockPtr)> =
        (0u64..).zip(&pointers).filter(|(_, bp)| !bp.is_hole() && !bp.is_embedded() && bp.compression() != Compression::OFF).collect();
    let unpack_all = |world: &World, what: &str| {
        for &(number, bp) in &packed {
            let mut request = ReadRequest::new(*bp, bookmark(number));
            request.flags.raw = true;
            let physical = world.rig.zio.read_wait(request).expect("it reads");
            assert_eq!(physical.len(), bp.psize());
            let (done, waiter) = exec::completion();
            world.rig.zio.unpack(bp, bookmark(number), physical, move |result| done.complete(result));
            let logical = waiter.wait(&world.rig.exec).unwrap_or_else(|error| panic!("{what}: record {number}: {error}"));
            assert!(logical == record(number).data, "{what}: record {number} is something else");
        }
    };
    world.faulty.inject(None);
    unpack_all(&world, "no fault");
    let operations = world.faulty.operations();
    assert!(operations >= packed.len() as u64, "{operations} operations for {} blocks", packed.len());
    // Lies first: after a failure the device is left alone for a while.
    for kind in [OpKind::CopyIn, OpKind::Decompress, OpKind::Checksum, OpKind::CopyOut] {
        for skip in 0..packed.len() as u64 {
            trust_again(&mut world);
            world.faulty.inject(Some(Fault { harm: Harm::Lie, when: When::KindAt { kind, skip } }));
            unpack_all(&world, "a lie");
            assert_eq!(world.faulty.struck(), 1, "{kind:?}, {skip}: struck nothing");
            assert!(world.device.is_distrusted(), "{kind:?}, {skip}: it lied, and is used on");
        }
    }
    for harm in HARMS {
        for at in 0..operations {
            let what = format!("{harm:?} at {at}");
            trust_again(&mut world);
            world.faulty.inject(Some(Fault { harm, when: When::At(at) }));
            unpack_all(&world, &what);
            drain(&world);
            assert_eq!(world.device.live_handles(), 0, "{what} leaked");
        }
    }
}

/// Damage that is done to the devices.
type Damage<'a> = &'a dyn Fn(&Rig);

/// Does `damage`, and reads all blocks such that they are repaired.
fn repair(world: &World, pointers: &[BlockPtr], damage: Damage<'_>, flags: ReadFlags, what: &str) {
    damage(&world.rig);
    for bp in pointers.iter().filter(|bp| !bp.is_hole() && !bp.is_embedded()) {
        let mut request = ReadRequest::new(*bp, bookmark(0));
        request.flags = flags;
        world.rig.zio.read_wait(request).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

/// As above for every fault of the provider at every operation.
fn repairs_are_right(world: &mut World, pointers: &[BlockPtr], damage: Damage<'_>, flags: ReadFlags, name: &str) {
    let (wanted, handles) = (world.rig.contents(), world.device.live_handles());
    world.faulty.inject(None);
    repair(world, pointers, damage, flags, name);
    assert!(world.rig.holds(&wanted), "{name}: not as it was");
    let operations = world.faulty.operations();
    assert!(operations > 0, "{name}: nothing went to the provider");
    for harm in HARMS {
        for at in 0..operations {
            let what = format!("{name}, {harm:?} at {at}");
            trust_again(world);
            world.faulty.inject(Some(Fault { harm, when: When::At(at) }));
            repair(world, pointers, damage, flags, &what);
            assert!(world.rig.holds(&wanted), "{what}: not as it was");
            assert_eq!(world.faulty.struck(), 1, "{what} struck nothing");
            drain(world);
            assert_eq!(world.device.live_handles(), handles, "{what} leaked");
        }
    }
}

/// A resilver gives a device wrong data or wrong parity, which no checksum covers, if this fails: with the next lost device the block is gone.
#[test]
fn a_device_gets_the_right_data_and_parity_whatever_the_provider_does() {
    for (kind, count) in [(TopKind::Raidz(1), 3), (TopKind::Raidz(2), 5)] {
        let mut world = world(&[(kind, count)], everything(), u32::MAX);
        let pointers = run(&world.rig, 14, "whole");
        let whole = world.rig.zio.view();
        let reconstructed = |world: &World| world.device.stats().get(OpKind::RaidReconstruct, Tally::Blocks);
        let flags = ReadFlags { resilver: true, ..ReadFlags::default() };
        for leaf in 0..count {
            lacks(&world, &whole, leaf);
            let empty = |rig: &Rig| rig.devices[leaf].mem.tamper(|bytes| bytes[HEAD].fill(0));
            // The first block has a column on every device: on some of them parity.
            let before = reconstructed(&world);
            world.faulty.inject(None);
            repair(&world, &pointers[..1], &|_| (), flags, "one block");
            assert!(reconstructed(&world) > before, "{kind:?}, device {leaf}: the provider had no part in it");
            repairs_are_right(&mut world, &pointers, &empty, flags, &format!("{kind:?}, device {leaf}"));
        }
    }
}

/// The devices of a target's own are written by it in a resilver, and not a byte of a block comes to the host: slow over a network, if this fails, or
/// wrong on the device that was to be made whole.
#[test]
fn a_device_is_made_whole_beside_the_others_whatever_the_provider_does() {
    for (kind, count) in [(TopKind::Raidz(1), 3), (TopKind::Raidz(2), 5)] {
        let mut world = world(&[(kind, count)], ZiaPolicy { file_write: true, disk_write: true, ..everything() }, u32::MAX);
        let pointers = run(&world.rig, 14, "whole");
        let whole = world.rig.zio.view();
        let blocks = |world: &World, kind| world.device.stats().get(kind, Tally::Blocks);
        let moved = |world: &World| blocks(world, OpKind::CopyIn) + blocks(world, OpKind::CopyOut);
        let flags = ReadFlags { resilver: true, ..ReadFlags::default() };
        for leaf in 0..count {
            lacks(&world, &whole, leaf);
            let empty = |rig: &Rig| rig.devices[leaf].mem.tamper(|bytes| bytes[HEAD].fill(0));
            world.faulty.inject(None);
            let before = (moved(&world), blocks(&world, OpKind::Load), blocks(&world, OpKind::Store));
            repair(&world, &pointers[..1], &|_| (), flags, "one block");
            let after = (moved(&world), blocks(&world, OpKind::Load), blocks(&world, OpKind::Store));
            assert!(after.1 > before.1 && after.2 > before.2, "{kind:?}, device {leaf}: the provider had no part in it");
            assert_eq!(after.0, before.0, "{kind:?}, device {leaf}: the block went there, or came from there");
            repairs_are_right(&mut world, &pointers, &empty, flags, &format!("{kind:?}, device {leaf}, beside"));
        }
    }
}

/// From now on a device lacks all blocks.
fn lacks(world: &World, whole: &PoolView, leaf: usize) {
    let mut tree = VdevTree::clone(&whole.tree);
    tree.leaves[leaf].missing_txgs = vec![(TXG, TXG)];
    let mut view = world.rig.zio.view();
    view.tree = Arc::new(tree);
    world.rig.zio.set_view(view);
}

/// A copy of a block that lost more devices than it has parity is written again from another copy: with wrong parity it would be lost once more.
#[test]
fn a_copy_that_was_lost_is_written_again_with_the_right_parity() {
    let mut world = world(&[(TopKind::Raidz(2), 5), (TopKind::Raidz(2), 5)], everything(), u32::MAX);
    let two = |number: u64| world.rig.write(WriteRequest { copies: 2, ..record(number) }).expect("written");
    let pointers = [two(0), two(9), two(16)];
    let damage = |rig: &Rig| {
        for leaf in [0, 1, 2] {
            rig.devices[leaf].mem.tamper(|bytes| bytes[HEAD].fill(0));
        }
    };
    let flags = ReadFlags { scrub: true, ..ReadFlags::default() };
    repairs_are_right(&mut world, &pointers, &damage, flags, "three devices of the first vdev");
    let stats = world.device.stats();
    assert!(stats.get(OpKind::RaidReconstruct, Tally::Blocks) >= 3, "no parity came from the provider");
}

/// A provider that dies, and one that takes its place, between any two operations of a block: it ends in software, the next ones go to the
/// new one.
#[test]
fn a_provider_is_replaced_between_the_operations_of_a_block() {
    let layout = [(TopKind::Raidz(1), 3)];
    let operations = {
        let world = world(&layout, everything(), u32::MAX);
        run(&world.rig, 7, "no fault");
        world.faulty.operations()
    };
    for at in (0..operations).step_by(3) {
        let world = world(&layout, everything(), u32::MAX);
        world.faulty.inject(Some(Fault { harm: Harm::Die, when: When::At(at) }));
        run(&world.rig, 7, &format!("death at {at}"));
        world.registry.invalidate("faulty").expect("it is there");
        run(&world.rig, 7, "dead");
        let next = faulty(&world.rig.exec);
        world.registry.replace(next.clone(), &options(u32::MAX)).expect("the new one behaves");
        next.inject(None);
        run(&world.rig, 7, "replaced");
        assert!(next.operations() > 0, "blocks do not go to the new one");
        drain(&world);
        assert_eq!(world.device.live_handles(), 0, "death at {at} leaked");
    }
}

/// Dnodes, indirect blocks, ZAPs, everything of the MOS: one of them wrong, and all that hangs on it is lost. They never go there, whatever the properties
/// say, nor come from there.
#[test]
fn metadata_never_leaves_the_host() {
    let world = world(&[(TopKind::Raidz(2), 5)], everything(), u32::MAX);
    let data = |number: u64| WriteRequest { compression: Compression::GZIP_6, ..request(text(number, 32 << 10), number) };
    let mut of_the_pool = data(1);
    of_the_pool.bookmark.objset = ObjsetId(0);
    let mut indirect = data(2);
    (indirect.level, indirect.bookmark.level) = (1, Level(1));
    let metadata = [
        of_the_pool,
        indirect,
        WriteRequest { object_type: ObjectType::DNODE, ..data(3) },
        WriteRequest { object_type: ObjectType::DIRECTORY_CONTENTS, ..data(4) },
        WriteRequest { object_type: ObjectType::SA, ..data(5) },
    ];
    for write in metadata {
        let (what, wanted, bookmark) = (format!("{:?} level {}", write.object_type, write.level), write.data.clone(), write.bookmark);
        let bp = world.rig.write(write).expect("written");
        let back = |flags| world.rig.zio.read_wait(ReadRequest { flags, ..ReadRequest::new(bp, bookmark) }).expect("it reads");
        assert!(back(ReadFlags::default()) == wanted, "{what}");
        world.rig.kill(&[0, 1], DeviceError::Io);
        assert!(back(ReadFlags::default()) == wanted, "{what}, degraded");
        assert_eq!(world.faulty.operations(), 0, "{what} went to the provider");
        for leaf in [0, 1] {
            *world.rig.devices[leaf].dead.lock() = None;
        }
    }
    world.rig.write(data(6)).expect("written");
    assert!(world.faulty.operations() > 0, "the contents of files do go there");
}

/// If this fails, blocks of pools with these checksums get some that OpenZFS finds wrong, because a provider was asked for what it has no salt for.
#[test]
fn salted_checksums_are_the_hosts() {
    let layout = [(TopKind::Raidz(2), 5)];
    let give_salt = |rig: &Rig| {
        let mut view = rig.zio.view();
        view.facts.salt = Some(Arc::new(Salt::new([7; 32])));
        rig.zio.set_view(view);
    };
    for checksum in [Checksum::SKEIN, Checksum::EDONR, Checksum::BLAKE3] {
        let write = |rig: &Rig| -> Vec<BlockPtr> {
            (0..14).map(|number| rig.write(WriteRequest { checksum, ..record(number) }).expect("it is written")).collect()
        };
        let software = Rig::new(inline(), &layout, 9);
        give_salt(&software);
        let wanted = write(&software);
        for policy in [everything(), ZiaPolicy { mode: ZiaMode::PerOp, ..everything() }, all_the_way()] {
            let world = world(&layout, policy, 1);
            give_salt(&world.rig);
            world.rig.zio.open_stores();
            drain(&world);
            let stores = world.device.live_handles();
            let found = write(&world.rig);
            assert!(found == wanted, "{checksum}: other pointers");
            assert!(world.faulty.operations() > 0, "{checksum}: other stages go there");
            for bp in found.iter().filter(|bp| !bp.is_hole() && !bp.is_embedded()) {
                assert!(bp.checksum_kind() == checksum && world.rig.read(bp).is_ok() && world.rig.scrub(bp).is_ok(), "{checksum}: {bp:?}");
            }
            drain(&world);
            assert_eq!(world.device.live_handles(), stores, "{checksum}");
        }
    }
}

/// With nothing to be verified, and a provider that has proven itself long ago, a wrong checksum or a copy of other bytes must still not be stored, or
/// whatever the block holds is lost.
#[test]
fn checksums_and_copies_are_never_believed() {
    for (checksum, compress, mode) in [
        (true, true, ZiaMode::Offload),
        (true, false, ZiaMode::Offload),
        (false, true, ZiaMode::Offload),
        (false, false, ZiaMode::Offload),
        (true, true, ZiaMode::PerOp),
        (false, true, ZiaMode::PerOp),
    ] {
        for stores in [false, true] {
            for kind in [OpKind::CopyIn, OpKind::CopyOut, OpKind::Checksum] {
                let policy = ZiaPolicy { checksum, compress, mode, file_write: stores, disk_write: stores, ..all_the_way() };
                let mut world = world(&[(TopKind::Raidz(1), 3)], policy, u32::MAX);
                let what = format!("{kind:?}, checksum {checksum}, compress {compress}, {mode:?}, stores {stores}");
                if stores {
                    world.rig.zio.open_stores();
                }
                for skip in [0, 1, 6] {
                    trust_again(&mut world);
                    world.faulty.inject(Some(Fault { harm: Harm::Lie, when: When::Kind { kind, skip } }));
                    let pointers = run(&world.rig, 14, &what);
                    world.rig.zio.set_stage(None);
                    for (number, bp) in pointers.iter().enumerate().filter(|(_, bp)| !bp.is_hole() && !bp.is_embedded()) {
                        assert!(world.rig.read(bp).expect("it reads") == record(number as u64).data, "{what}, {skip}: record {number}");
                        assert!(world.rig.scrub(bp).is_ok(), "{what}, {skip}: record {number}");
                        give_back(&world, bp);
                    }
                    accelerate(&world);
                    assert!((0..3).all(|leaf| world.rig.checksum_errors(leaf) == 0), "{what}, {skip}: a device has wrong bytes");
                    assert!(world.faulty.struck() == 0 || world.device.is_distrusted(), "{what}, {skip}: it lied, and is used on");
                }
            }
        }
    }
}

/// No checksum covers parity: what is wrong with it shows when a device is lost, and with it the data. At the default it is found before it is written,
/// and so it is with nearly nothing verified, while the provider has still to prove itself; by whomever it is written.
#[test]
fn wrong_parity_is_found_before_it_is_written() {
    for verify_percent in [ZiaPolicy::default().verify_percent, 0.001] {
        for stores in [false, true] {
            let policy = ZiaPolicy { verify_percent, file_write: stores, disk_write: stores, ..everything() };
            let mut world = world(&[(TopKind::Raidz(2), 5)], policy, u32::MAX);
            world.rig.zio.open_stores();
            let made = |world: &World| world.device.stats().get(OpKind::RaidGenerate, Tally::Blocks);
            let before = made(&world);
            run(&world.rig, 14, "no fault").iter().for_each(|bp| give_back(&world, bp));
            let rows = made(&world) - before;
            assert!(rows > 4, "{rows}");
            for skip in 0..rows {
                let what = format!("row {skip}, {verify_percent} % verified, stores {stores}");
                trust_again(&mut world);
                world.faulty.inject(Some(Fault { harm: Harm::Lie, when: When::KindAt { kind: OpKind::RaidGenerate, skip } }));
                let pointers = run(&world.rig, 14, &what);
                assert_eq!((world.faulty.struck(), world.device.is_distrusted()), (1, true), "{what}: it lied, and is used on");
                for bp in pointers.iter().filter(|bp| !bp.is_hole() && !bp.is_embedded()) {
                    assert!(world.rig.scrub(bp).is_ok(), "{what}: a scrub");
                    give_back(&world, bp);
                }
                assert!((0..5).all(|leaf| world.rig.checksum_errors(leaf) == 0), "{what}: a device has wrong parity");
            }
        }
    }
}

/// Every store of a few records in turn is so late that nobody waits for it any more, and then puts garbage where it was to write. If this fails, a
/// provider that hangs, and goes on, overwrites what the host has written meanwhile.
#[test]
fn a_store_that_lands_late_lands_on_nobody() {
    for verify_percent in [0.0, 100.0] {
        let world = world(&[(TopKind::Raidz(2), 5)], ZiaPolicy { verify_percent, ..all_the_way() }, u32::MAX);
        world.rig.zio.open_stores();
        let stored = || world.device.stats().get(OpKind::Store, Tally::Blocks);
        // Neither free nor anybody's.
        let aside = || {
            let (allocator, vdev) = (&world.rig.allocator, VdevId(0));
            let free: u64 = (0..allocator.metaslab_count(vdev)).map(|metaslab| allocator.free_bytes(vdev, metaslab)).sum();
            allocator.vdev_space(vdev).capacity - allocator.vdev_space(vdev).allocated - free
        };
        let (before, idle) = (stored(), aside());
        run(&world.rig, 7, "no fault").iter().for_each(|bp| give_back(&world, bp));
        let stores = stored() - before;
        assert!(stores > 5, "{stores}");
        for skip in 0..stores {
            let what = format!("store {skip}, {verify_percent} % verified");
            world.faulty.inject(Some(Fault { harm: Harm::Stray(3 * DEADLINE_NS), when: When::KindAt { kind: OpKind::Store, skip } }));
            let pointers = run(&world.rig, 7, &what);
            assert_eq!(world.faulty.struck(), 1, "{what} struck nothing");
            assert!(aside() > idle, "{what}: somebody may get the place to which it may still write");
            drain(&world);
            assert_eq!(aside(), idle, "{what}: space is lost");
            for (number, bp) in pointers.iter().enumerate().filter(|(_, bp)| !bp.is_hole() && !bp.is_embedded()) {
                assert!(world.rig.scrub(bp).is_ok(), "{what}: a scrub of record {number}");
                assert!(world.rig.read(bp).expect("it reads") == record(number as u64).data, "{what}: record {number}");
                give_back(&world, bp);
            }
            assert!((0..5).all(|leaf| world.rig.checksum_errors(leaf) == 0), "{what}: it landed on somebody's block");
        }
    }
}

/// Whoever is let through to see whether an operation works again is looked at, not believed: the device that failed may have come back as a liar.
#[test]
fn probes_are_verified() {
    let policy = ZiaPolicy { raidz_gen: [false; 3], decompress: false, ..all_the_way() };
    let world = world(&[(TopKind::Raidz(1), 3)], policy, 1);
    let kind = OpKind::Compress;
    world.faulty.inject(Some(Fault { harm: Harm::Fail(OpError::Failed), when: When::Kind { kind, skip: 0 } }));
    run(&world.rig, 7, "it fails");
    assert_ne!(world.device.breaker(kind).0, BreakerState::Closed);
    drain(&world);
    world.faulty.inject(Some(Fault { harm: Harm::Lie, when: When::Kind { kind, skip: 0 } }));
    run(&world.rig, 7, "it is back, and lies");
    assert_eq!(world.faulty.struck(), 1, "one probe");
    assert!(world.device.is_distrusted(), "a probe was believed");
}
