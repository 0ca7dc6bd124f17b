//! A pool whose stages run on a provider, by its properties: followed at once, kept over an import, never a condition for reading it.

use crate::common::{BLOCKS, check, devices, exec, host, leaf, new_object, opened, write};
use device::MemDevice;
use dpusm::{FallbackReason, OpKind, RegisterOptions, Registry, Tally};
use dsl::CreateDataset;
use exec::Exec;
use ondisk::ObjsetType;
use pool::{Awaited, ImportOptions, Pool, PoolError, PoolSpec, Providers, Runtime, TopSpec};
use provider_faulty::{Fault, Faulty, Harm, When};
use provider_software::{Software, SoftwareOptions};
use std::sync::Arc;
use vdev::{DraidConfig, TopKind};

fn registry(exec: &Exec) -> Registry {
    let registry = Registry::new(exec);
    let provider = Software::new(exec, SoftwareOptions::default());
    let options = RegisterOptions { test_bytes_max: 4096, ..RegisterOptions::default() };
    registry.register(provider, &options).expect("software behaves");
    registry
}

fn runtime(registry: &Registry) -> Runtime {
    let registry = registry.clone();
    Runtime { providers: Some(Providers::new(move |name| registry.get(name))), ..Runtime::new() }
}

fn create(exec: &Exec, devices: &[Arc<MemDevice>], runtime: &Runtime) -> Pool {
    let properties = vec![("compression".to_string(), "gzip".to_string()), ("checksum".to_string(), "sha256".to_string())];
    let dataset = CreateDataset { kind: ObjsetType::OTHER, properties, init: Box::new(|_, _| Ok(())) };
    let tops = vec![TopSpec { kind: TopKind::Raidz(2), leaves: devices.iter().map(leaf).collect() }];
    Pool::create(exec, PoolSpec { host: host(), ..PoolSpec::new("tank", tops, dataset) }, runtime).expect("created")
}

fn import(exec: &Exec, devices: &[Arc<MemDevice>], runtime: &Runtime) -> Pool {
    Pool::import(exec, opened(devices), &ImportOptions { host: host(), ..ImportOptions::default() }, runtime).expect("imported")
}

fn blocks(registry: &Registry, kind: OpKind) -> u64 {
    registry.get("software").expect("it is there").stats().get(kind, Tally::Blocks)
}

/// Blocks that were to be compressed there; most of those of these tests do not compress, and are not sent.
fn compressions(registry: &Registry) -> u64 {
    let session = registry.get("software").expect("it is there");
    let stats = session.stats();
    stats.get(OpKind::Compress, Tally::Blocks) + stats.get(OpKind::Compress, Tally::Fallback(FallbackReason::Incompressible))
}

fn prop(pool: &Pool, name: &str) -> String {
    pool.props().expect("readable").into_iter().find(|prop| prop.name == name).expect("a property").value
}

/// Set, the stages go there at once; set still after an import; and without that provider the pool reads and writes as ever.
#[test]
fn properties_are_followed_and_kept() {
    let devices = devices(5);
    let ages = vec![1; BLOCKS as usize];
    let object = {
        let exec = exec(7);
        let registry = registry(&exec);
        let pool = create(&exec, &devices, &runtime(&registry));
        let object = new_object(&pool);
        write(&pool, object, 0..BLOCKS, 3);
        assert_eq!(compressions(&registry), 0, "nothing was asked for");
        assert!(matches!(pool.set_prop("zia_provider", "nobody"), Err(PoolError::NoProvider { name }) if name == "nobody"));
        for (name, value) in
            [("zia_provider", "software"), ("zia_compress", "on"), ("zia_checksum", "on"), ("zia_raidz2_gen", "on"), ("zia_verify", "100")]
        {
            pool.set_prop(name, value).expect("set");
        }
        for (name, value) in
            [("zia_compress", "yes"), ("zia_verify", "101"), ("zia_verify", "-1"), ("zia_mode", "qat"), ("zia_disk_write", "maybe")]
        {
            assert!(matches!(pool.set_prop(name, value), Err(PoolError::BadValue)), "{name}={value}");
        }
        write(&pool, object, 0..BLOCKS, 1);
        pool.sync().expect("synced");
        assert!(compressions(&registry) >= BLOCKS, "compression did not go to the provider");
        for kind in [OpKind::Checksum, OpKind::RaidGenerate] {
            assert!(blocks(&registry, kind) >= BLOCKS, "{kind:?} did not go to the provider");
        }
        check(&pool, object, &ages, "written with the provider");
        pool.export().expect("exported");
        object
    };
    {
        let exec = exec(8);
        let registry = registry(&exec);
        let pool = import(&exec, &devices, &runtime(&registry));
        assert_eq!((prop(&pool, "zia_provider"), prop(&pool, "zia_verify")), ("software".to_string(), "100".to_string()));
        check(&pool, object, &ages, "imported with the provider");
        write(&pool, object, 0..BLOCKS, 2);
        pool.sync().expect("synced");
        assert!(blocks(&registry, OpKind::RaidGenerate) >= BLOCKS, "the property was forgotten");
        pool.set_prop("zia_provider", "off").expect("set");
        assert_eq!(prop(&pool, "zia_provider"), "off");
        pool.sync().expect("synced");
        let before = compressions(&registry);
        write(&pool, object, 0..BLOCKS, 4);
        pool.sync().expect("synced");
        assert_eq!(compressions(&registry), before, "it was let go");
        pool.set_prop("zia_provider", "software").expect("set");
        pool.export().expect("exported");
    }
    let pool = crate::common::import(&devices, false).expect("a pool needs no provider");
    check(&pool, object, &[4; BLOCKS as usize], "imported without the provider");
    write(&pool, object, 0..BLOCKS, 5);
    assert!(pool.verify_space().expect("readable").is_clean());
}

/// A target that does not answer just now: who names it would be told that it does not exist, and the pool would do without it for good.
#[test]
fn a_provider_that_is_not_there_yet_can_be_named_and_is_followed_when_it_is() {
    let (exec, devices) = (exec(12), devices(5));
    let registry = Registry::new(&exec);
    let (sessions, known) = (registry.clone(), registry.clone());
    let starting = || Awaited { state: "starting", why: None };
    let look = move |name: &str| (name == "software" && known.get(name).is_err()).then(starting);
    let providers = Providers::new(move |name| sessions.get(name)).awaiting(look);
    let pool = create(&exec, &devices, &Runtime { providers: Some(providers), ..Runtime::new() });
    let object = new_object(&pool);
    assert_eq!(pool.awaited_provider(), None, "nothing was asked for");
    assert!(matches!(pool.set_prop("zia_provider", "nobody"), Err(PoolError::NoProvider { .. })));
    let properties =
        [("zia_provider", "software"), ("zia_compress", "on"), ("zia_checksum", "on"), ("zia_raidz2_gen", "on"), ("zia_verify", "100")];
    for (name, value) in properties {
        pool.set_prop(name, value).expect("set");
    }
    assert_eq!((pool.provider().as_deref(), pool.awaited_provider()), (Some("software"), Some(starting())));
    write(&pool, object, 0..BLOCKS, 1);
    pool.sync().expect("synced");
    let options = RegisterOptions { test_bytes_max: 4096, ..RegisterOptions::default() };
    registry.register(Software::new(&exec, SoftwareOptions::default()), &options).expect("software behaves");
    pool.follow_providers().expect("followed");
    assert_eq!(pool.awaited_provider(), None);
    let before = blocks(&registry, OpKind::RaidGenerate);
    write(&pool, object, 0..BLOCKS, 2);
    pool.sync().expect("synced");
    assert!(blocks(&registry, OpKind::RaidGenerate) >= before + BLOCKS, "it was not followed");
    check(&pool, object, &[2; BLOCKS as usize], "after all");
}

/// A device that takes another's place must be written as the others are: if the provider does not know it, every block goes back through the
/// host for ever.
#[test]
fn a_device_that_joins_is_written_by_the_provider_too() {
    let exec = exec(9);
    let registry = Registry::new(&exec);
    let options = RegisterOptions { test_bytes_max: 4096, scratch: Some(std::env::temp_dir()), ..RegisterOptions::default() };
    registry.register(Software::new(&exec, SoftwareOptions::default()), &options).expect("software behaves");
    let all = devices(5);
    let pool = create(&exec, &all[..4], &runtime(&registry));
    for (name, value) in
        [("zia_provider", "software"), ("zia_checksum", "on"), ("zia_raidz2_gen", "on"), ("zia_file_write", "on"), ("zia_verify", "0")]
    {
        pool.set_prop(name, value).expect("set");
    }
    let object = new_object(&pool);
    let written = |seed: u64| {
        let before = blocks(&registry, OpKind::Store);
        write(&pool, object, 0..BLOCKS, seed);
        pool.sync().expect("synced");
        blocks(&registry, OpKind::Store) - before
    };
    let usual = written(1);
    assert!(usual >= BLOCKS, "the provider writes: {usual}");
    let first = pool.tree().leaves[0].guid;
    pool.attach(first, &leaf(&all[4]), vdev::Pairing::Replacing, true).expect("attached");
    assert!(written(2) >= BLOCKS, "while it is replaced");
    pool.scrub_wait().expect("resilvered");
    pool.sync().expect("synced");
    assert!(!pool.tree().is_replacing() && written(3) >= BLOCKS, "in its place");
    check(&pool, object, &[3; BLOCKS as usize], "after all");
    pool.export().expect("exported");
    let pool = crate::common::import(&all[1..], false).expect("imported");
    check(&pool, object, &[3; BLOCKS as usize], "by software");
}

/// A sequential rebuild has no checksums: if what a provider computed were written unseen, a device would be full of garbage until the scrub.
#[test]
fn a_rebuild_on_a_provider_brings_what_software_brings() {
    for (parity, data, children) in [(1, 2, 4), (2, 3, 7)] {
        for is_lying in [false, true] {
            let what = format!("draid{parity}:{data}d:{children}c, lying {is_lying}");
            let exec = exec(11);
            let registry = Registry::new(&exec);
            let faulty = Faulty::new(&exec, "card", Software::new(&exec, SoftwareOptions::default()));
            let options = RegisterOptions { test_bytes_max: 4096, ..RegisterOptions::default() };
            registry.register(faulty.clone(), &options).expect("it behaves so far");
            let all = devices(children + 1);
            let kind = TopKind::Draid(DraidConfig::new(parity, data, 0, children).expect("a shape"));
            let tops = vec![TopSpec { kind, leaves: all[..children].iter().map(leaf).collect() }];
            let spec = PoolSpec { host: host(), ..PoolSpec::new("tank", tops, crate::common::dataset()) };
            let pool = Pool::create(&exec, spec, &runtime(&registry)).expect("created");
            for (name, value) in [("zia_provider", "card"), ("zia_verify", "100"), (&*format!("zia_raidz{parity}_rec"), "on")] {
                pool.set_prop(name, value).expect("set");
            }
            let object = new_object(&pool);
            write(&pool, object, 0..BLOCKS, 1);
            pool.sync().expect("synced");
            let kind = OpKind::RaidReconstruct;
            faulty.inject(is_lying.then_some(Fault { harm: Harm::Lie, when: When::Kind { kind, skip: 0 } }));
            let old = pool.tree().leaves[0].guid;
            pool.attach_sequential(old, &leaf(&all[children]), vdev::Pairing::Replacing, false).expect("attached");
            pool.rebuild_wait().expect("rebuilt");
            pool.sync().expect("synced");
            let session = registry.get("card").expect("it is there");
            let count = |tally| session.stats().get(kind, tally);
            assert!(count(Tally::Blocks) > 0 && count(Tally::Verified) > 0, "{what}: nothing went there");
            assert_eq!(count(Tally::VerifyFailures) > 0, is_lying, "{what}");
            faulty.inject(None);
            pool.scrub_wait().expect("scrubbed");
            let scan = pool.scan_status().expect("the scrub after it");
            assert_eq!((scan.errors, scan.repaired), (0, 0), "{what}: the rebuild left something to repair");
            check(&pool, object, &[1; BLOCKS as usize], &what);
        }
    }
}
