//! Registration, replacement and death of providers, and what sessions and handles see of it.

use crate::common::{Disk, Place, blocks, features, options, software, write_record};
use abd::Abd;
use dpusm::{
    BreakerPolicy, BreakerState, Capabilities, DeviceHandle, DeviceState, Fault as TestFault, Feature, Graph, OpError, OpKind, Program,
    Provider, RegisterOptions, Registry, RegistryError, Shapes, Sizes, Tally, random_shapes,
};
use exec::{Exec, Inline, Lockstep, Pool, completion};
use ondisk::{ByteOrder, Checksum, Compression};
use provider_faulty::{Fault, Faulty, Harm, When};
use provider_software::{Software, SoftwareOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn small(exec: &Exec) -> Arc<Software> {
    Software::new(exec, SoftwareOptions { features: features(), ..SoftwareOptions::default() })
}

fn inline() -> Exec {
    Arc::new(Inline::new(1))
}

/// All that software offers must stand its own tests, or nothing would be offloaded anywhere.
#[test]
fn software_stands_every_test() {
    let exec: Exec = Arc::new(Pool::new(2));
    let registry = Registry::new(&exec);
    let whole = RegisterOptions { scratch: Some(std::env::temp_dir()), ..RegisterOptions::default() };
    let device = registry.register(Software::new(&exec, SoftwareOptions::default()), &whole).unwrap();
    assert_eq!(device.disabled(), []);
    assert_eq!(device.capabilities().list.len(), provider_software::features().len());
    assert!(device.capabilities().compresses(Compression::GZIP_6, 0) && device.capabilities().compresses(Compression::ZSTD, 103));
    assert!(!device.capabilities().compresses(Compression::ZSTD, 50));
    assert_eq!(device.live_handles(), 0);
}

/// A list in which an entry stands again and again, as one that was never filled in: each was tested, and whoever loaded it waited for a minute.
#[test]
fn a_capability_that_is_there_again_and_again_counts_once() {
    let exec = inline();
    let again: Vec<Feature> = features().into_iter().chain(std::iter::repeat_n(Feature::CopyIn { scatter: false }, 1000)).collect();
    let software = Software::new(&exec, SoftwareOptions { features: again, ..SoftwareOptions::default() });
    let device = Registry::new(&exec).register(software, &options()).unwrap();
    assert_eq!(device.capabilities().list.len(), features().len() + 1);
    assert_eq!(device.disabled(), []);
}

/// A capability that lies must never see a user's block; the others stay.
#[test]
fn liars_are_refused_by_name() {
    let lz4 = Compression::LZ4;
    let cases: [(OpKind, Vec<Feature>); 7] = [
        (OpKind::ZeroFill, vec![Feature::ZeroFill]),
        (OpKind::ZeroTest, vec![Feature::ZeroTest]),
        (OpKind::Compare, vec![Feature::Compare]),
        (OpKind::Compress, vec![Feature::Compress { kind: lz4, level_min: 0, level_max: 0 }]),
        (OpKind::Decompress, vec![Feature::Decompress { kind: lz4 }]),
        (OpKind::Checksum, vec![Feature::Checksum { kind: Checksum::FLETCHER_4, order: ByteOrder::Little }]),
        (OpKind::RaidGenerate, (1..=2).map(|parity| Feature::RaidGenerate { parity, data_columns_max: 255 }).collect()),
    ];
    for (kind, lost) in cases {
        for harm in [Harm::Lie, Harm::Short, Harm::Fail(OpError::Failed), Harm::Stall, Harm::Slow(60_000_000_000)] {
            let exec = inline();
            let faulty = Faulty::new(&exec, "liar", small(&exec));
            faulty.inject(Some(Fault { harm, when: When::Kind { kind, skip: 2 } }));
            let device = Registry::new(&exec).register(faulty.clone(), &options()).unwrap();
            let disabled: Vec<Feature> = device.disabled().iter().map(|one| one.capability.feature).collect();
            assert_eq!(disabled, lost, "{kind:?} {harm:?}");
            assert_eq!(device.capabilities().list.len() + lost.len(), features().len());
            if harm == Harm::Lie {
                assert_eq!(device.disabled()[0].fault, TestFault::WrongAnswer, "{kind:?}");
            }
            faulty.release_stalled();
        }
    }
}

/// A provider that changes what it was only to read would pass: its answers are right, and what is written after them is not.
#[test]
fn who_changes_what_it_only_reads_is_found_out() {
    let kinds = [OpKind::ZeroTest, OpKind::Compare, OpKind::Compress, OpKind::Decompress, OpKind::Checksum];
    for kind in kinds.into_iter().chain([OpKind::RaidGenerate, OpKind::RaidReconstruct, OpKind::Store]) {
        let exec = inline();
        let spoil = Some(Fault { harm: Harm::Spoil, when: When::Kind { kind, skip: 0 } });
        let faulty = || Faulty::new(&exec, "spoiler", small(&exec));
        let tested = faulty();
        tested.inject(spoil);
        let device = Registry::new(&exec).register(tested, &options()).unwrap();
        let faults: Vec<TestFault> = device.disabled().iter().map(|one| one.fault).collect();
        assert!(!faults.is_empty() && faults.iter().all(|fault| *fault == TestFault::ChangedSource), "{kind:?}: {faults:?}");
        // Random shapes have no write to a disk, and sum up what they read afterwards.
        if matches!(kind, OpKind::Store | OpKind::Checksum) {
            continue;
        }
        let later = faulty();
        let device = Registry::new(&exec).register(later.clone(), &options()).unwrap();
        later.inject(spoil);
        let found = random_shapes(&device, &Shapes { count: 400, bytes_max: 8192, ..Shapes::default() }).unwrap_err();
        assert_eq!(found.fault, TestFault::ChangedSource, "{kind:?}: {found}");
    }
}

/// A provider that does not give back the bytes that it got is none.
#[test]
fn a_provider_that_cannot_copy_is_refused() {
    for kind in [OpKind::CopyIn, OpKind::CopyOut] {
        for harm in [Harm::Lie, Harm::Fail(OpError::Failed), Harm::Stall, Harm::Die] {
            let exec = inline();
            let faulty = Faulty::new(&exec, "liar", small(&exec));
            faulty.inject(Some(Fault { harm, when: When::Kind { kind, skip: 2 } }));
            let registry = Registry::new(&exec);
            let refused = registry.register(faulty.clone(), &options());
            assert!(matches!(refused, Err(RegistryError::CannotCopy(_))), "{kind:?} {harm:?}: {refused:?}");
            assert!(registry.list().is_empty());
            faulty.release_stalled();
        }
    }
    let exec = inline();
    let mute = SoftwareOptions { features: vec![Feature::CopyIn { scatter: true }], ..SoftwareOptions::default() };
    let refused = Registry::new(&exec).register(Software::new(&exec, mute), &options());
    assert_eq!(refused.map(|_| ()), Err(RegistryError::CannotCopy(TestFault::Error(OpError::NotImplemented))));
}

/// Software with narrower limits.
struct Narrow {
    inner: Arc<Software>,
    sizes: Sizes,
}

impl Provider for Narrow {
    fn name(&self) -> &str {
        "narrow"
    }

    fn version(&self) -> &str {
        "1"
    }

    fn capabilities(&self) -> Capabilities {
        let mut own = self.inner.capabilities();
        let checksums = own.list.iter_mut().filter(|capability| matches!(capability.feature, Feature::Checksum { .. }));
        checksums.for_each(|capability| capability.sizes = self.sizes);
        own
    }

    fn alloc(&self, bytes: usize) -> Result<DeviceHandle, OpError> {
        self.inner.alloc(bytes)
    }

    fn free(&self, handle: DeviceHandle) {
        self.inner.free(handle);
    }

    fn submit(&self, programs: Vec<Program>) -> Result<(), Vec<Program>> {
        self.inner.submit(programs)
    }
}

/// A device must not be given what it said that it cannot take; what nobody can test, nobody may use.
#[test]
fn limits_of_size_and_place_are_kept() {
    let exec = inline();
    let register = |sizes| {
        let provider = Arc::new(Narrow { inner: small(&exec), sizes });
        Registry::new(&exec).register(provider, &RegisterOptions { scratch: None, ..options() }).unwrap()
    };
    let device = register(Sizes { min_bytes: 1024, max_bytes: 8192, align_bytes: 1024 });
    let disabled: Vec<String> = device.disabled().iter().map(|one| format!("{}: {}", one.capability.feature, one.fault)).collect();
    assert_eq!(disabled, ["disk write: it cannot be tested here"]);
    let buffer = device.alloc(32 << 10).unwrap();
    let sum = |range: std::ops::Range<usize>| {
        let mut graph = Graph::new();
        let node = graph.checksum(buffer.view(range).unwrap(), Checksum::FLETCHER_4, ByteOrder::Little);
        device.run(graph, u64::MAX).map_err(|refused| refused.error).and_then(|report| report.status(node))
    };
    let refused = Err(OpError::NotSupported);
    assert_eq!(
        [sum(0..1024), sum(2048..10_240), sum(0..512), sum(512..1536), sum(0..1536), sum(0..9216)],
        [Ok(()), Ok(()), refused, refused, refused, refused]
    );
    let device = register(Sizes { min_bytes: 1 << 20, max_bytes: 1 << 20, align_bytes: 3 });
    let lost: Vec<TestFault> = device.disabled().iter().map(|one| one.fault).collect();
    assert_eq!(lost, [TestFault::Untestable; 2]);
}

/// Names are looked up by pools; sessions keep a provider from being taken away.
#[test]
fn providers_come_and_go_by_name() {
    let exec = inline();
    let registry = Registry::new(&exec);
    registry.register(small(&exec), &options()).unwrap();
    assert_eq!(registry.register(small(&exec), &options()).map(|_| ()), Err(RegistryError::Exists { name: "software".into() }));
    let bad = Software::new(&exec, SoftwareOptions { name: "a b".into(), ..SoftwareOptions::default() });
    assert_eq!(registry.register(bad, &options()).map(|_| ()), Err(RegistryError::BadName { name: "a b".into() }));
    assert!(matches!(registry.get("athena"), Err(RegistryError::Unknown { .. })));
    let session = registry.get("software").unwrap();
    assert_eq!(registry.list()[0].sessions, 1);
    assert_eq!(registry.unregister("software", false), Err(RegistryError::InUse { sessions: 1 }));
    let buffer = session.device().unwrap().alloc(100).unwrap();
    registry.unregister("software", true).unwrap();
    assert_eq!(session.device().map(|_| ()), Err(OpError::Down));
    let device = buffer.device();
    assert_eq!((device.state(), device.live_handles()), (DeviceState::Down, 1));
    drop(buffer);
    assert_eq!((device.live_handles(), device.lost_handles()), (0, 1));
    assert!(registry.list().is_empty());
    drop(session);
    registry.register(small(&exec), &options()).unwrap();
    registry.unregister("software", false).unwrap();
}

/// A dead provider must answer at once, to what is in flight too, and touch nothing any more.
#[test]
fn an_invalidated_provider_ends_everything_in_flight() {
    let inline = Arc::new(Inline::new(1));
    let exec: Exec = inline.clone();
    let registry = Registry::new(&exec);
    let faulty = Faulty::new(&exec, "mortal", small(&exec));
    let device = registry.register(faulty.clone(), &options()).unwrap();
    let session = registry.get("mortal").unwrap();
    // It goes on for seconds after it was told that it is dead.
    faulty.inject(Some(Fault { harm: Harm::Slow(5_000_000_000), when: When::Kind { kind: OpKind::ZeroTest, skip: 0 } }));
    let buffer = device.alloc(4096).unwrap();
    let mut graph = Graph::new();
    graph.zero_test(buffer.whole());
    let (completer, waiting) = completion();
    let began = exec.now_ns();
    device.submit(graph, u64::MAX, move |report| completer.complete(report.all())).unwrap();
    let registry_too = registry.clone();
    exec.spawn_after(5_000, exec::TaskClass::Background, Box::new(move || registry_too.invalidate("mortal").unwrap()));
    assert_eq!(waiting.wait(&exec), Err(OpError::Down));
    assert!(exec.now_ns() - began < 1_000_000, "the end came at once");
    assert_eq!(device.alloc(1).map(|_| ()), Err(OpError::Down));
    assert_eq!(session.device().map(|_| ()), Err(OpError::Down));
    assert_eq!(registry.list()[0].state, DeviceState::Down);
    drop(buffer);
    assert_eq!((device.live_handles(), device.lost_handles()), (1, 0), "the device has it still");
    exec.sleep_ns(6_000_000_000);
    inline.run_ready();
    assert_eq!((device.live_handles(), device.lost_handles()), (0, 1));
    // It comes back under its name, for the same session.
    registry.replace(Faulty::new(&exec, "mortal", small(&exec)), &options()).unwrap();
    assert!(session.device().unwrap().alloc(1).is_ok());
}

/// Operands of two providers, or of two generations of one, must not meet in one operation.
#[test]
fn handles_of_another_provider_or_generation_are_refused() {
    let exec = inline();
    let registry = Registry::new(&exec);
    let first = registry.register(small(&exec), &options()).unwrap();
    let old = first.alloc(512).unwrap();
    let second = registry.replace(small(&exec), &options()).unwrap();
    assert!(second.generation() > first.generation());
    assert_eq!((first.state(), second.state()), (DeviceState::Replaced, DeviceState::Active));
    let new = second.alloc(512).unwrap();
    for device in [&first, &second] {
        let mut graph = Graph::new();
        graph.compare(&old.whole(), &new.whole());
        let refused = device.run(graph, 1000).unwrap_err();
        assert_eq!((refused.error, refused.node.map(|node| node.0)), (OpError::Mismatch, Some(0)));
    }
    // What is on the replaced one goes on there to its end.
    let mut graph = Graph::new();
    graph.copy_in(&Abd::zeroed(512), &old.whole());
    let test = graph.zero_test(old.whole());
    assert_eq!(first.run(graph, u64::MAX).unwrap().flag(test), Ok(true));
    assert_eq!(dpusm::RaidContext::new(vec![old.whole()], vec![new.whole()]).map(|_| ()), Err(OpError::Mismatch));
}

/// What fails is switched off by operation, and comes back by itself when it is good again.
#[test]
fn a_sick_one_is_switched_off_and_probed() {
    let exec = inline();
    let registry = Registry::new(&exec);
    let policy = BreakerPolicy { failures_max: 3, probes_to_close: 2, ..BreakerPolicy::default() };
    let faulty = Faulty::new(&exec, "sick", small(&exec));
    let device = registry.register(faulty.clone(), &RegisterOptions { breaker: policy, ..options() }).unwrap();
    let buffer = device.alloc(4096).unwrap();
    let test = || {
        let mut graph = Graph::new();
        let node = graph.zero_test(buffer.whole());
        device.run(graph, u64::MAX).map_err(|refused| refused.error).and_then(|report| report.status(node))
    };
    faulty.inject(Some(Fault { harm: Harm::Fail(OpError::Failed), when: When::Kind { kind: OpKind::ZeroTest, skip: 0 } }));
    let answers: Vec<_> = (0..5).map(|_| test()).collect();
    assert_eq!(answers[..3], [Err(OpError::Failed); 3]);
    assert_eq!(answers[3..], [Err(OpError::Tripped); 2]);
    assert!(matches!(device.breaker(OpKind::ZeroTest), (BreakerState::Open { .. }, 1)));
    assert!(!device.would_admit(OpKind::ZeroTest) && device.would_admit(OpKind::Checksum));
    assert_eq!(faulty.operations(), 3, "an open breaker lets nothing through");
    // The first probe fails: twice as long.
    exec.sleep_ns(policy.backoff_ns);
    assert_eq!((test(), test()), (Err(OpError::Failed), Err(OpError::Tripped)));
    faulty.inject(None);
    exec.sleep_ns(policy.backoff_ns);
    assert_eq!(test(), Err(OpError::Tripped));
    exec.sleep_ns(policy.backoff_ns);
    assert_eq!((test(), test()), (Ok(()), Ok(())));
    assert_eq!(device.breaker(OpKind::ZeroTest), (BreakerState::Closed, 2));
    let stats = device.stats();
    assert_eq!(stats.get(OpKind::ZeroTest, Tally::Error(OpError::Failed)), 4);
    assert_eq!(stats.get(OpKind::ZeroTest, Tally::Blocks), 2);
}

/// A provider that answers just in time, each time, would make a resilver take many times as long as without it.
#[test]
fn one_that_is_slow_again_and_again_is_switched_off() {
    const SECOND: u64 = 1_000_000_000;
    let exec = inline();
    let faulty = Faulty::new(&exec, "slow", small(&exec));
    let device = Registry::new(&exec).register(faulty.clone(), &options()).unwrap();
    let buffer = device.alloc(4096).unwrap();
    let test = || {
        let mut graph = Graph::new();
        let node = graph.zero_test(buffer.whole());
        device.run(graph, 5 * SECOND).map_err(|refused| refused.error).and_then(|report| report.status(node))
    };
    let delay = |delay_ns| {
        faulty.inject(Some(Fault { harm: Harm::Slow(delay_ns), when: When::Kind { kind: OpKind::ZeroTest, skip: 0 } }));
    };
    let tripped = Err(OpError::Tripped);
    delay(SECOND / 2);
    assert_eq!([test(), test(), test(), test()], [Ok(()); 4], "that is slow, and no reason");
    delay(3 * SECOND);
    assert_eq!([test(), test()], [Ok(()); 2]);
    // A quick one: the others were chance.
    faulty.inject(None);
    assert_eq!(test(), Ok(()));
    delay(3 * SECOND);
    assert_eq!([test(), test(), test(), test(), test()], [Ok(()), Ok(()), Ok(()), tripped, tripped]);
    assert!(device.would_admit(OpKind::Checksum), "each operation for itself");
    // Its probe is as slow: twice as long.
    exec.sleep_ns(SECOND);
    assert_eq!([test(), test()], [Ok(()), tripped]);
    faulty.inject(None);
    exec.sleep_ns(SECOND);
    assert_eq!(test(), tripped);
    exec.sleep_ns(SECOND);
    assert_eq!([test(), test(), test()], [Ok(()); 3]);
    assert_eq!(device.breaker(OpKind::ZeroTest), (BreakerState::Closed, 2));
}

/// One lie is the end of trust: in every operation, for every session, for what is in flight, over a reconnection and in the next life of the
/// process; somebody who loads the provider again begins anew. If time made it good again, it would go on losing data now and then.
#[test]
fn a_liar_is_switched_off_until_it_is_loaded_again() {
    let exec = inline();
    let registry = Registry::new(&exec);
    let caught = Arc::new(exec::Mutex::new(Vec::new()));
    let heard = caught.clone();
    registry.when_caught(move |name, kind| heard.lock().push(format!("{name} {}", kind.name())));
    let few = RegisterOptions { proofs: 2, ..options() };
    let faulty = Faulty::new(&exec, "liar", small(&exec));
    let device = registry.register(faulty.clone(), &few).unwrap();
    let session = registry.get("liar").unwrap();
    for proven in 0..2 {
        assert!(device.wants_proof(OpKind::Checksum), "after {proven} right results");
        device.note_verified(OpKind::Checksum, true);
    }
    assert!(!device.wants_proof(OpKind::Checksum) && device.wants_proof(OpKind::Compress), "each operation for itself");
    // It comes back by itself: what it has proven counts.
    let device = registry.reconnect(Faulty::new(&exec, "liar", small(&exec)), &few).unwrap();
    assert!(!device.wants_proof(OpKind::Checksum) && !device.is_distrusted());

    let buffer = device.alloc(4096).unwrap();
    let stalls = Faulty::new(&exec, "liar", small(&exec));
    let device = registry.reconnect(stalls.clone(), &few).unwrap();
    stalls.inject(Some(Fault { harm: Harm::Stall, when: When::At(1) }));
    let (completer, in_flight) = completion();
    let held = device.alloc(512).unwrap();
    let mut graph = Graph::new();
    let node = graph.copy_in(&Abd::zeroed(512), &held.whole());
    device.submit(graph, u64::MAX, move |report| completer.complete(report.status(node))).unwrap();
    device.note_verified(OpKind::Compress, false);
    device.note_verified(OpKind::Checksum, false);
    assert_eq!(in_flight.wait(&exec), Err(OpError::Down), "what is in flight is not listened to");
    assert_eq!(*caught.lock(), ["liar compress"], "told once");
    assert_eq!((device.state(), device.is_distrusted()), (DeviceState::Distrusted, true));
    assert_eq!(device.alloc(512).map(drop), Err(OpError::Down), "whatever the operation");
    assert_eq!(session.device().map(drop), Err(OpError::Down));
    exec.sleep_ns(1 << 50);
    assert_eq!(session.device().map(drop), Err(OpError::Down), "time does not make it good again");
    assert_eq!(session.lie(), Some(OpKind::Compress));
    drop(buffer);
    let again = registry.reconnect(Faulty::new(&exec, "liar", small(&exec)), &few);
    assert!(matches!(again, Err(RegistryError::Distrusted { operation: OpKind::Compress, .. })), "{again:?}");
    let info = registry.list();
    assert_eq!((info[0].state, info[0].lie), (DeviceState::Distrusted, Some(OpKind::Compress)));

    let device = registry.replace(Faulty::new(&exec, "liar", small(&exec)), &few).unwrap();
    assert_eq!((session.device().as_ref(), session.lie(), registry.lie("liar")), (Ok(&device), None, None));
    assert!(device.wants_proof(OpKind::Checksum), "it begins anew");

    // The next life of the process.
    let registry = Registry::new(&exec);
    registry.distrust("liar", OpKind::Compress);
    let session = registry.get("liar").unwrap();
    assert_eq!((session.device().map(drop), session.lie()), (Err(OpError::Down), Some(OpKind::Compress)));
    let again = registry.reconnect(Faulty::new(&exec, "liar", small(&exec)), &few);
    assert!(matches!(again, Err(RegistryError::Distrusted { .. })), "{again:?}");
    registry.replace(Faulty::new(&exec, "liar", small(&exec)), &few).unwrap();
    assert!(session.device().is_ok());
}

/// A provider with few tests: under lockstep every switch of threads is one of the system's.
fn quick(exec: &Exec) -> Arc<Faulty> {
    let kept = |feature: &Feature| !matches!(feature, Feature::RaidReconstruct { .. } | Feature::RaidGenerate { parity: 1, .. });
    let features = features().into_iter().filter(kept).collect();
    Faulty::new(exec, "p", Software::new(exec, SoftwareOptions { features, ..SoftwareOptions::default() }))
}

/// Providers that are replaced and die while records are written on them: every record is right, and no handle is left.
#[test]
fn replacement_in_the_middle_of_writes_loses_nothing() {
    for seed in 0..16 {
        Lockstep::run(seed, |exec| {
            let registry = Registry::new(exec);
            registry.register(quick(exec), &options()).unwrap();
            let session = Arc::new(registry.get("p").unwrap());
            let devices = Arc::new(exec::Mutex::new(Vec::new()));
            let ended = Arc::new(AtomicBool::new(false));
            let writers: Vec<_> = (0..2)
                .map(|writer| {
                    let (session, devices, exec_too) = (session.clone(), devices.clone(), exec.clone());
                    exec.spawn_operation(
                        "writer",
                        Box::new(move || {
                            let disks: Vec<Arc<Disk>> = (0..crate::common::PARITY + crate::common::DATA).map(|_| Arc::default()).collect();
                            for (number, block) in blocks(4, 4096 * (1 + writer)).iter().enumerate() {
                                let place = Place { disks: &disks, offset: number << 16 };
                                let wanted = software(block);
                                if let Ok(device) = session.device() {
                                    assert!(write_record(&device, block, &place) == wanted, "seed {seed}");
                                    assert!(
                                        place.columns(wanted.stored.len())[crate::common::PARITY..].concat() == wanted.stored,
                                        "seed {seed}"
                                    );
                                    devices.lock().push(device);
                                }
                                exec_too.sleep_ns(20_000);
                            }
                        }),
                    )
                })
                .collect();
            let (registry_too, exec_too, flag) = (registry.clone(), exec.clone(), ended.clone());
            let inner = exec.clone();
            let replacer = exec.spawn_operation(
                "replacer",
                Box::new(move || {
                    for round in 0..3 {
                        exec_too.sleep_ns(30_000);
                        if round == 1 {
                            registry_too.invalidate("p").unwrap();
                        }
                        registry_too.replace(quick(&inner), &options()).unwrap();
                    }
                    flag.store(true, Ordering::Relaxed);
                }),
            );
            writers.into_iter().for_each(exec::OperationHandle::join);
            replacer.join();
            assert!(ended.load(Ordering::Relaxed));
            let devices = devices.lock();
            assert!(devices.iter().all(|device| device.live_handles() == 0 && device.graphs_in_flight() == 0), "seed {seed}");
        });
    }
}
