//! Operations that are slower on a provider than on the processors of the machine: not offered, said so, with numbers.

use crate::common::{features, options};
use dpusm::{Device, Fault, Feature, Graph, OpError, OpKind, RegisterOptions, Registry, Tally, WorthPolicy};
use exec::{Exec, Inline, Pool};
use ondisk::{ByteOrder, Checksum, Compression};
use provider_faulty::{Faulty, Harm, When};
use provider_software::{Software, SoftwareOptions};
use std::sync::Arc;

const MS: u64 = 1_000_000;
const LZ4: Feature = Feature::Compress { kind: Compression::LZ4, level_min: 0, level_max: 0 };
const FLETCHER: Feature = Feature::Checksum { kind: Checksum::FLETCHER_4, order: ByteOrder::Little };

/// Speed of a machine of a hundred megabytes each second, at whatever.
fn even(_: &Feature, _: usize) -> u64 {
    100_000_000
}

/// Speed of a machine that is quick with small blocks only.
fn quick_with_small_blocks(_: &Feature, bytes: usize) -> u64 {
    if bytes < 128 << 10 { u64::MAX } else { 100_000_000 }
}

fn policy() -> WorthPolicy {
    WorthPolicy { host: Some(even), budget_ns: 600_000 * MS, ..WorthPolicy::default() }
}

fn compared(policy: WorthPolicy) -> RegisterOptions {
    RegisterOptions { worth: Some(policy), ..options() }
}

/// Registers a provider that takes no (virtual) time, but for the operations of a kind, which each take `delay_ns`, however many there are at a time.
fn registered(exec: &Exec, kind: OpKind, delay_ns: u64, options: &RegisterOptions) -> Device {
    let inner = Software::new(exec, SoftwareOptions { features: features(), ..SoftwareOptions::default() });
    let faulty = Faulty::new(exec, "slow", inner);
    faulty.inject(Some(provider_faulty::Fault { harm: Harm::Slow(delay_ns), when: When::Kind { kind, skip: 0 } }));
    Registry::new(exec).register(faulty, options).unwrap()
}

fn disabled(device: &Device) -> Vec<Feature> {
    device.disabled().iter().map(|one| one.capability.feature).collect()
}

/// A pool that gives work to a device that takes longer for it than the host is slower with its accelerator than without.
#[test]
fn what_is_slower_than_the_processors_is_not_offered() {
    let raid =
        |parity| [Feature::RaidGenerate { parity, data_columns_max: 255 }, Feature::RaidReconstruct { parity, data_columns_max: 255 }];
    let cases = [
        (OpKind::Compress, vec![LZ4]),
        (OpKind::Decompress, vec![Feature::Decompress { kind: Compression::LZ4 }]),
        (OpKind::Checksum, vec![FLETCHER]),
        (OpKind::RaidGenerate, vec![raid(1)[0], raid(2)[0]]),
        (OpKind::RaidReconstruct, vec![raid(1)[1], raid(2)[1]]),
        // The way in belongs to all of them.
        (
            OpKind::CopyIn,
            [vec![LZ4, Feature::Decompress { kind: Compression::LZ4 }, FLETCHER], raid(1).to_vec(), raid(2).to_vec()].concat(),
        ),
        // These are worth nothing by themselves, and nobody asks what they cost.
        (OpKind::ZeroTest, vec![]),
        (OpKind::Store, vec![]),
    ];
    for (kind, slow) in cases {
        let exec: Exec = Arc::new(Inline::new(1));
        // A block of 1 MiB in 300 ms is 3.5 MB/s, and more blocks are not tried when one took so long.
        let device = registered(&exec, kind, 300 * MS, &compared(policy()));
        assert_eq!(disabled(&device), slow, "{kind:?}");
        for one in device.disabled() {
            let Fault::TooSlow(speeds) = one.fault else { panic!("{kind:?}: {}", one.fault) };
            let speeds = speeds.0.map(|speed| speed.unwrap());
            assert!(speeds.iter().all(|speed| speed.provider < speed.host && speed.host == 100_000_000), "{kind:?} {speeds:?}");
            assert!(one.fault.to_string().contains("(processors 100.0)"), "{}", one.fault);
            assert!(!device.has(&one.capability.feature));
        }
        // By it copies are proven, also where it is slow.
        assert!(device.can_use(&FLETCHER), "{kind:?}");
        assert!(slow.iter().all(|feature| *feature == FLETCHER || !device.can_use(feature)), "{kind:?}");
        assert_eq!(device.measured().len() + slow.len(), 7);
        assert_eq!(device.stats().total(Tally::TooSlow), slow.len() as u64);
        assert_eq!(device.stats().get(OpKind::Checksum, Tally::MeasuredBytes), (16 << 10) + (128 << 10) + (1 << 20));
        // Who rehearses wants it all the same.
        let device = registered(&exec, kind, 300 * MS, &options());
        assert_eq!((disabled(&device), device.measured()), (vec![], &[][..]), "{kind:?}");
    }
}

/// An accelerator that takes long for one block and no longer for a hundred is fast: judged by one block it would never be used.
#[test]
fn many_blocks_are_in_flight() {
    let exec: Exec = Arc::new(Inline::new(2));
    // A block of 1 MiB in 30 ms is 35 MB/s, one of 16 KiB half a megabyte; 256 of these are 140.
    let device = registered(&exec, OpKind::Compress, 30 * MS, &compared(policy()));
    assert_eq!(disabled(&device), []);
    let measured = device.measured().iter().find(|one| one.feature == LZ4).unwrap();
    assert!(measured.speeds.0[0].unwrap().provider > 110_000_000);
}

/// A size at which it loses is not given to it, the others are.
#[test]
fn an_operation_is_offered_for_the_sizes_that_it_wins() {
    let exec: Exec = Arc::new(Inline::new(3));
    let device = registered(&exec, OpKind::Compress, MS, &compared(WorthPolicy { host: Some(quick_with_small_blocks), ..policy() }));
    let offered = device.capabilities();
    assert!(offered.compresses(Compression::LZ4, 0) && offered.serves_block(&FLETCHER, 128 << 10));
    for (bytes, is_offered) in [(16 << 10, false), (64 << 10, false), (128 << 10, true), (1 << 20, true), (16 << 20, true)] {
        assert_eq!(offered.compresses_block(Compression::LZ4, 0, bytes), is_offered, "{bytes}");
        let (source, target) = (device.alloc(bytes).unwrap().whole(), device.alloc(bytes).unwrap().whole());
        let mut graph = Graph::new();
        graph.compress(&source, &target, crate::common::how(bytes));
        let refused = device.run(graph, 1_000 * MS).map(drop).map_err(|refused| refused.error);
        assert_eq!(refused, if is_offered { Ok(()) } else { Err(OpError::NotSupported) }, "{bytes}");
    }
    assert!(disabled(&device).contains(&LZ4), "what is left out is said");
}

/// A device that takes for ever over each block would hold up whoever loads it, block by block and operation by operation.
#[test]
fn the_time_for_all_of_it_is_bounded() {
    let exec: Exec = Arc::new(Inline::new(4));
    registered(&exec, OpKind::CopyIn, 9_000 * MS, &options());
    let tests_only = exec.now_ns();
    let budget_ns = 20_000 * MS;
    let device = registered(&exec, OpKind::CopyIn, 9_000 * MS, &compared(WorthPolicy { budget_ns, ..policy() }));
    let spent = exec.now_ns() - 2 * tests_only;
    assert!((budget_ns..budget_ns + 10_000 * MS).contains(&spent), "{spent}");
    assert_eq!(device.measured(), []);
    let faults: Vec<Fault> = device.disabled().iter().map(|one| one.fault).collect();
    assert!(matches!(faults[0], Fault::TooSlow(_)) && faults[1..].contains(&Fault::Unmeasured), "{faults:?}");
}

/// On a machine as it is, with its own clock and its own processors: a device that is slower than they are is not used.
#[test]
fn a_slow_device_is_not_used_on_this_machine() {
    let exec: Exec = Arc::new(Pool::new(2));
    let few = RegisterOptions { worth: Some(WorthPolicy::default()), test_bytes_max: 512, ..options() };
    let device = registered(&exec, OpKind::Checksum, 400 * MS, &few);
    let fault = device.disabled().iter().find(|one| one.capability.feature == FLETCHER).unwrap().fault;
    let Fault::TooSlow(speeds) = fault else { panic!("{fault}") };
    for speed in speeds.0.into_iter().flatten() {
        assert!(speed.provider > 0 && speed.host > 0 && speed.provider < speed.host, "{fault}");
    }
    // Whatever is offered was found to be faster.
    for one in device.measured() {
        assert!(one.speeds.0.iter().flatten().any(|speed| speed.provider >= speed.host / 100 * 110), "{}: {}", one.feature, one.speeds);
    }
}
