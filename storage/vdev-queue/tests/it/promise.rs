//! The latency promise on models of devices in virtual time: what somebody who uses the pool during a scrub and a rebuild sees.
//! `cargo run -p vdev-queue --example latency` prints the tables, of each figure the worst of eight seeds.

use crate::world::table::{Scenario, Throttle, hdd_scans, hdd_scenarios, ms, nvme_scenarios, tunables};
use crate::world::{Hdd, Load, MS, Nvme, US, run};
use vdev_queue::{LatencyTarget, Tunables};

/// The seeds of every disk; NVMe devices, which cost more, have one each.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=8;

fn check(scenario: &Scenario) {
    let table = scenario.table(&[]);
    let broken = table.broken(&scenario.bounds);
    assert!(broken.is_empty(), "{}, seed {}: {broken:?}", scenario.name, scenario.load.seed);
}

/// Users of a busy NVMe pool would see its scrub, or the scrub would never end. Few requests are the hard case: between them the
/// device looks idle.
#[test]
fn nvme_keeps_the_promise_and_background_work_its_speed() {
    for (scenario, seed) in nvme_scenarios().iter().zip(SEEDS) {
        check(&scenario.with_seed(seed));
    }
}

/// iXsystems saw random reads wait for 4 s beside a scrub; a scrub that every read sends across the disk takes days longer.
#[test]
fn an_hdd_lets_nobody_wait_for_a_quarter_of_a_second_and_keeps_its_speed() {
    for scenario in hdd_scenarios() {
        SEEDS.for_each(|seed| check(&scenario.with_seed(seed)));
    }
    let throttle_off = hdd_scenarios()[4].both(Throttle::Off);
    assert!(throttle_off.max() >= 4000 * MS, "the model shows the fault: {:.0} ms", ms(throttle_off.max()));
}

/// A scrub or resilver has much to choose from: what it loses to those who use the pool is what they need, no way back.
#[test]
fn a_scan_that_goes_where_the_head_is_keeps_four_fifths_of_its_speed() {
    for scenario in hdd_scans() {
        SEEDS.for_each(|seed| check(&scenario.with_seed(seed)));
    }
}

/// Whoever wants reads of a disk to be answered sooner gets that, for some of the scrub's speed; and nobody waits without a scrub.
#[test]
fn an_hdd_keeps_a_target_that_somebody_set() {
    let scenario = &hdd_scenarios()[4];
    let go =
        |target, load: &Load| run(&mut Hdd::default(), &Tunables { latency_target: target, ..tunables(Throttle::Promise, None) }, load);
    let mut before = u64::MAX;
    for target_ms in [250, 150, 80] {
        let p99 = go(LatencyTarget::P99(target_ms * MS), &scenario.load).quantile(0.99);
        assert!(p99 <= target_ms * MS && p99 < before, "p99={target_ms}ms: {:.0} ms", ms(p99));
        before = p99;
    }
    let alone = Load { background: Vec::new(), ..scenario.load.clone() };
    assert_eq!(go(LatencyTarget::Auto, &alone).latencies, go(LatencyTarget::Off, &alone).latencies, "an idle disk serves at once");
}

/// Reading one block after the other (`ls -R`, `tar`) brings nobody to wait for: it must not wait for a quarter of a second each time.
#[test]
fn a_program_that_reads_one_block_after_the_other_waits_for_nobody() {
    for scenario in hdd_scenarios().into_iter().chain(hdd_scans()).filter(|scenario| scenario.load.readers > 0) {
        let table = scenario.table(&[]);
        let (idle, both) = (table.idle.latencies.len(), table.promised.latencies.len());
        assert!(table.promised.quantile(0.5) <= 40 * MS, "{}: {:.0} ms", scenario.name, ms(table.promised.quantile(0.5)));
        assert!(both * 3 >= idle, "{both} reads beside background work, {idle} without");
    }
}

/// A target that somebody set is kept where the device can; one that it cannot keep even alone does not stop background work for ever.
#[test]
fn a_target_is_kept_or_twice_the_idle_value() {
    let load = Load { seconds: 1.0, seed: 5, ..nvme_scenarios()[2].load.clone() };
    let idle = run(&mut Nvme::default(), &tunables(Throttle::Promise, Some(32)), &Load { background: Vec::new(), ..load.clone() });
    for (target, bound) in [(MS, MS), (10 * US, 2 * idle.quantile(0.99))] {
        let tunables = Tunables { latency_target: LatencyTarget::P99(target), ..tunables(Throttle::Promise, Some(32)) };
        let both = run(&mut Nvme::default(), &tunables, &load);
        let p99 = both.quantile(0.99);
        assert!(p99 <= bound, "{:.3} ms", ms(p99));
        assert!(both.background_mib_s > 1000.0, "{:.0} MiB/s", both.background_mib_s);
    }
}
