//! Stages of writes and reads on a provider: whatever it does, the pool has the bytes that software gives it.
//!
//! Every operation of a hundred records, each stage by itself, is what `torture zia` goes through.

mod common;
mod offload;

use abd::Abd;
use common::*;
use device::DeviceError;
use dpusm::{FallbackReason, OpKind, Tally};
use offload::*;
use ondisk::{BlockPtr, Compression};
use provider_faulty::{Fault, Harm, When};
use std::sync::Arc;
use vdev::{LeafState, TopKind, VdevTree};
use zio::{ReadFlags, ReadRequest, WriteRequest, ZiaMode, ZiaPolicy};

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
                assert!(world.rig.contents() == wanted.1, "{what}: other bytes on the devices");
                drain(&world);
                assert_eq!(world.device.live_handles(), 0, "{what}");
                assert_eq!(world.faulty.operations() > 0, set & 0b1011 != 0 || (bit(2) && name.starts_with("raidz")), "{what}");
            }
        }
    }
}

/// A provider that fails, lies, gives less, hangs, is late or dies, at any operation of any stage: every record reads back, what is on the
/// devices can be scrubbed without a repair, and nothing leaks.
#[test]
fn no_fault_at_any_operation_costs_data() {
    let layout = [(TopKind::Raidz(2), 5)];
    for mode in [ZiaMode::Offload, ZiaMode::PerOp] {
        let world = world(&layout, ZiaPolicy { mode, ..everything() }, u32::MAX);
        let count = 14;
        run(&world.rig, count, "no fault");
        let operations = world.faulty.operations();
        assert!(operations > 6 * count, "{operations}");
        for harm in HARMS {
            for at in 0..operations {
                let what = format!("{harm:?} at {at}, {mode:?}");
                world.faulty.inject(Some(Fault { harm, when: When::At(at) }));
                let pointers = run(&world.rig, count, &what);
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

/// A provider that writes the devices by itself puts there what the host would; devices that are gone are noted as ever.
#[test]
fn blocks_that_the_provider_writes_are_the_same() {
    for (name, layout) in layouts() {
        let wanted = reference(&layout, 28);
        let world = world(&layout, all_the_way(), 1);
        world.rig.zio.open_stores();
        assert!(run(&world.rig, 28, name) == wanted.0, "{name}: other pointers");
        assert!(world.rig.contents() == wanted.1, "{name}: other bytes on the devices");
        let stats = world.device.stats();
        assert!(stats.get(OpKind::Store, Tally::Blocks) > 0, "{name}: it wrote nothing");
        assert_eq!(stats.get(OpKind::Compress, Tally::Restarts), 0, "{name}");
        drop(world.rig.zio.accelerator());
        world.rig.zio.set_accelerator(None);
        drain(&world);
        assert_eq!(world.device.live_handles(), 0, "{name}");
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

/// As above with faults at every operation, but for lies and short results: those are found by verification, which keeps writes at the host.
#[test]
fn no_fault_of_a_provider_that_writes_costs_data() {
    let layout = [(TopKind::Raidz(2), 5)];
    let world = world(&layout, all_the_way(), u32::MAX);
    world.rig.zio.open_stores();
    let count = 7;
    world.faulty.inject(None);
    run(&world.rig, count, "no fault");
    let operations = world.faulty.operations();
    for harm in HARMS.into_iter().filter(|harm| !matches!(harm, Harm::Lie | Harm::Short)) {
        for at in 0..operations {
            let what = format!("{harm:?} at {at}");
            world.faulty.inject(Some(Fault { harm, when: When::At(at) }));
            let pointers = run(&world.rig, count, &what);
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
    let world = world(&layout, everything(), u32::MAX);
    let count = 14;
    let pointers = run(&world.rig, count, "whole");
    world.rig.kill(&[1, 2], DeviceError::Io);
    let read_all = |what: &str| {
        for (number, bp) in pointers.iter().enumerate().filter(|(_, bp)| !bp.is_hole()) {
            let back = world.rig.read(bp).unwrap_or_else(|error| panic!("{what}: record {number}: {error}"));
            assert!(back == record(number as u64).data, "{what}: record {number} reads as something else");
        }
    };
    world.faulty.inject(None);
    read_all("degraded");
    assert!(world.device.stats().get(OpKind::RaidReconstruct, Tally::Blocks) > 0, "nothing went to the provider");
    let operations = world.faulty.operations();
    for harm in HARMS {
        for at in 0..operations {
            let what = format!("{harm:?} at {at}");
            world.faulty.inject(Some(Fault { harm, when: When::At(at) }));
            read_all(&what);
            assert_eq!(world.faulty.struck(), 1, "{what} struck nothing");
            drain(&world);
            assert_eq!(world.device.live_handles(), 0, "{what} leaked");
        }
    }
    assert!(world.rig.checksum_errors(0) + world.rig.checksum_errors(3) + world.rig.checksum_errors(4) == 0, "a device was blamed");
}

/// The cache hands a file's bytes to its reader wrong if this fails.
#[test]
fn blocks_read_raw_are_unpacked_to_what_was_written_whatever_the_provider_does() {
    let world = world(&[(TopKind::Raidz(1), 3)], everything(), u32::MAX);
    let pointers = run(&world.rig, 14, "written");
    let packed: Vec<(u64, &BlockPtr)> =
        (0u64..).zip(&pointers).filter(|(_, bp)| !bp.is_hole() && !bp.is_embedded() && bp.compression() != Compression::OFF).collect();
    let unpack_all = |what: &str| {
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
    unpack_all("no fault");
    let operations = world.faulty.operations();
    assert!(operations >= packed.len() as u64, "{operations} operations for {} blocks", packed.len());
    for harm in HARMS {
        for at in 0..operations {
            let what = format!("{harm:?} at {at}");
            world.faulty.inject(Some(Fault { harm, when: When::At(at) }));
            unpack_all(&what);
            drain(&world);
            assert_eq!(world.device.live_handles(), 0, "{what} leaked");
        }
    }
}

/// The bytes of every device as they are now, after `damage` and a read of all blocks that repairs.
fn repaired(world: &World, pointers: &[BlockPtr], damage: &dyn Fn(), flags: ReadFlags, what: &str) -> Vec<Vec<u8>> {
    damage();
    for bp in pointers.iter().filter(|bp| !bp.is_hole() && !bp.is_embedded()) {
        let mut request = ReadRequest::new(*bp, bookmark(0));
        request.flags = flags;
        world.rig.zio.read_wait(request).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    world.rig.contents()
}

/// As above for every fault of the provider at every operation.
fn repairs_are_right(world: &World, pointers: &[BlockPtr], damage: &dyn Fn(), flags: ReadFlags, name: &str) {
    let wanted = world.rig.contents();
    world.faulty.inject(None);
    assert!(repaired(world, pointers, damage, flags, name) == wanted, "{name}: not as it was");
    let operations = world.faulty.operations();
    assert!(operations > 0, "{name}: nothing went to the provider");
    for harm in HARMS {
        for at in 0..operations {
            let what = format!("{name}, {harm:?} at {at}");
            // One that was caught lying has to prove itself before it is used as before.
            let is_trusted = (0..2).any(|_| {
                world.faulty.inject(None);
                let is_whole = repaired(world, pointers, damage, flags, &what) == wanted;
                is_whole && world.faulty.operations() == operations
            });
            assert!(is_trusted, "{what}: the provider was not used again");
            world.faulty.inject(Some(Fault { harm, when: When::At(at) }));
            assert!(repaired(world, pointers, damage, flags, &what) == wanted, "{what}: not as it was");
            assert_eq!(world.faulty.struck(), 1, "{what} struck nothing");
            drain(world);
            assert_eq!(world.device.live_handles(), 0, "{what} leaked");
        }
    }
}

/// A resilver gives a device wrong data or wrong parity, which no checksum covers, if this fails: with the next lost device the block is gone.
#[test]
fn a_device_gets_the_right_data_and_parity_whatever_the_provider_does() {
    for (kind, count) in [(TopKind::Raidz(1), 3), (TopKind::Raidz(2), 5)] {
        let world = world(&[(kind, count)], everything(), u32::MAX);
        let pointers = run(&world.rig, 14, "whole");
        let whole = world.rig.zio.view();
        let reconstructed = || world.device.stats().get(OpKind::RaidReconstruct, Tally::Blocks);
        let flags = ReadFlags { resilver: true, ..ReadFlags::default() };
        for leaf in 0..count {
            let mut tree = VdevTree::clone(&whole.tree);
            tree.leaves[leaf].missing_txgs = vec![(TXG, TXG)];
            let mut view = world.rig.zio.view();
            view.tree = Arc::new(tree);
            world.rig.zio.set_view(view);
            let empty = || world.rig.devices[leaf].mem.tamper(|bytes| bytes[HEAD].fill(0));
            // The first block has a column on every device: on some of them parity.
            let before = reconstructed();
            world.faulty.inject(None);
            let one = repaired(&world, &pointers[..1], &|| (), flags, "one block");
            assert!(reconstructed() > before && one.len() == count, "{kind:?}, device {leaf}: the provider had no part in it");
            repairs_are_right(&world, &pointers, &empty, flags, &format!("{kind:?}, device {leaf}"));
        }
    }
}

/// A copy of a block that lost more devices than it has parity is written again from another copy: with wrong parity it would be lost once more.
#[test]
fn a_copy_that_was_lost_is_written_again_with_the_right_parity() {
    let world = world(&[(TopKind::Raidz(2), 5), (TopKind::Raidz(2), 5)], everything(), u32::MAX);
    let two = |number: u64| world.rig.write(WriteRequest { copies: 2, ..record(number) }).expect("written");
    let pointers = [two(0), two(9), two(16)];
    let damage = || {
        for leaf in [0, 1, 2] {
            world.rig.devices[leaf].mem.tamper(|bytes| bytes[HEAD].fill(0));
        }
    };
    let flags = ReadFlags { scrub: true, ..ReadFlags::default() };
    repairs_are_right(&world, &pointers, &damage, flags, "three devices of the first vdev");
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
