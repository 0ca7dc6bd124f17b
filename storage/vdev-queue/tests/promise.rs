//! The latency promise on models of devices in virtual time: what somebody who uses the pool during a scrub and a rebuild sees.
//! `cargo test -p zirconia-vdev-queue --test promise -- --nocapture` prints the tables.

mod world;

use vdev_queue::{Class, LatencyTarget, Tunables};
use world::{Hdd, Load, MS, Model, Nvme, Outcome, US, run};

#[derive(Clone, Copy, PartialEq)]
enum Throttle {
    None,
    Credit,
    Promise,
}

fn tunables(throttle: Throttle, background_max: Option<u32>) -> Tunables {
    let mut tunables = Tunables::default();
    if background_max.is_some() {
        for class in [Class::SyncRead, Class::SyncWrite] {
            tunables.active[class as usize] = vdev_queue::ActiveLimits { min: 64, max: 64 };
        }
    }
    tunables.latency_target = if throttle == Throttle::Promise { LatencyTarget::Auto } else { LatencyTarget::Off };
    for class in [Class::Scrub, Class::Rebuild] {
        let limits = &mut tunables.active[class as usize];
        limits.max = background_max.unwrap_or(limits.max);
        if throttle == Throttle::None {
            limits.min = limits.max;
        }
    }
    if throttle == Throttle::None {
        tunables.nia_credit = 1_000_000;
        tunables.nia_delay = 0;
    }
    tunables
}

struct Table {
    idle: Outcome,
    solo: Outcome,
    rows: Vec<(Throttle, Outcome)>,
}

fn ms(ns: u64) -> f64 {
    ns as f64 / MS as f64
}

fn table(name: &str, device: fn() -> Box<dyn Model>, load: &Load, background_max: Option<u32>) -> Table {
    let go = |throttle, load: &Load| run(device().as_mut(), &tunables(throttle, background_max), load);
    let idle = go(Throttle::Promise, &Load { background: Vec::new(), ..load.clone() });
    let solo = go(Throttle::Promise, &Load { interactive: 0.0, ..load.clone() });
    let rows = [Throttle::None, Throttle::Credit, Throttle::Promise].map(|throttle| (throttle, go(throttle, load))).to_vec();
    println!("{name}");
    println!("  {:<28} {:>9} {:>9} {:>9} {:>9} {:>10} {:>7}", "", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "MiB/s", "of solo");
    let line = |name: &str, outcome: &Outcome| {
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| ms(outcome.quantile(share)));
        let share = outcome.background_mib_s / solo.background_mib_s * 100.0;
        let max = ms(outcome.max());
        println!("  {name:<28} {p50:>9.3} {p99:>9.3} {p999:>9.3} {max:>9.3} {:>10.1} {share:>5.1} %", outcome.background_mib_s);
    };
    line("interactive alone", &idle);
    line("background alone", &solo);
    for (throttle, outcome) in &rows {
        let name = match throttle {
            Throttle::None => "both, throttle off",
            Throttle::Credit => "both, credit (OpenZFS)",
            Throttle::Promise => "both, promise",
        };
        line(name, outcome);
    }
    Table { idle, solo, rows }
}

fn nvme_load(interactive: f64, bytes: u64, seed: u64) -> Load {
    Load {
        interactive,
        interactive_bytes: 4096,
        write_percent: 10,
        background_bytes: bytes,
        background: vec![Class::Scrub, Class::Rebuild],
        seconds: 2.0,
        seed,
    }
}

fn hdd_load(per_second: f64) -> Load {
    Load {
        interactive: per_second,
        interactive_bytes: 16 << 10,
        write_percent: 0,
        background_bytes: 128 << 10,
        background: vec![Class::Scrub, Class::Rebuild],
        seconds: 120.0,
        seed: 1,
    }
}

/// Interactive latency within twice that of the idle device, for the last of a hundred and the last of a thousand.
fn assert_promise(table: &Table) {
    let promised = &table.rows[2].1;
    for share in [0.99, 0.999] {
        let (idle, both) = (table.idle.quantile(share), promised.quantile(share));
        assert!(both <= 2 * idle, "{share}: {:.3} ms beside background work, {:.3} ms without", ms(both), ms(idle));
    }
}

fn background_share(table: &Table) -> f64 {
    table.rows[2].1.background_mib_s / table.solo.background_mib_s
}

/// 20 % of the device's random reads. Users of a busy NVMe pool would see its scrub, or the scrub would never end.
#[test]
fn nvme_keeps_the_promise_and_background_work_its_speed() {
    for (name, bytes, most, seed) in [("3", 128 << 10, 3, 1), ("10, 1 MiB", 1 << 20, 10, 2), ("32, 1 MiB", 1 << 20, 32, 3)] {
        let load = nvme_load(138_000.0, bytes, seed);
        let table = table(&format!("NVMe, 138 000/s, background max_active {name}"), || Box::new(Nvme::default()), &load, Some(most));
        assert_promise(&table);
        assert!(background_share(&table) >= 0.8, "background work has {:.2} of its solo speed", background_share(&table));
    }
}

/// Few requests are the hard case: between them the device looks idle.
#[test]
fn nvme_keeps_the_promise_to_few_requests() {
    for seed in [4, 5] {
        let load = nvme_load(10_000.0, 1 << 20, seed);
        let table = table("NVMe, 10 000/s, background max_active 32, 1 MiB", || Box::new(Nvme::default()), &load, Some(32));
        assert_promise(&table);
    }
}

/// iXsystems saw random reads wait for 4 s beside a scrub.
#[test]
fn an_hdd_lets_nobody_wait_for_a_quarter_of_a_second() {
    for rate in [0.5, 4.0, 8.0, 16.0, 40.0] {
        let table = table(&format!("HDD, {rate}/s"), || Box::new(Hdd::default()), &hdd_load(rate), None);
        let (off, promised) = (&table.rows[0].1, &table.rows[2].1);
        assert!(off.max() >= 4000 * MS, "the model shows the fault: {:.0} ms", ms(off.max()));
        assert!(promised.max() <= 250 * MS, "{:.0} ms", ms(promised.max()));
        assert!(promised.by_class.values().all(|bytes| *bytes > 0), "{:?}", promised.by_class);
    }
}

/// Whoever says how long reads may take on a disk gets the scrub done sooner: one excursion of the head serves several of them.
#[test]
fn an_hdd_uses_the_time_that_a_target_leaves() {
    let load = hdd_load(16.0);
    let go =
        |target, load: &Load| run(&mut Hdd::default(), &Tunables { latency_target: target, ..tunables(Throttle::Promise, None) }, load);
    let solo = go(LatencyTarget::Auto, &Load { interactive: 0.0, ..load.clone() }).background_mib_s;
    let shares = [LatencyTarget::Auto, LatencyTarget::P99(250 * MS)].map(|target| {
        let both = go(target, &load);
        let share = both.background_mib_s / solo;
        println!(
            "HDD, 16/s, {target:?}: p99 {:.0} ms, max {:.0} ms, {:.1} % of solo",
            ms(both.quantile(0.99)),
            ms(both.max()),
            share * 100.0
        );
        assert!(both.max() <= 250 * MS, "{target:?}: {:.0} ms", ms(both.max()));
        share
    });
    assert!(shares[0] >= 0.6 && shares[1] >= 0.7, "{shares:?} of the solo speed");
}

/// A target that somebody set is kept where the device can; one that it cannot keep even alone does not stop background work for ever.
#[test]
fn a_target_is_kept_or_twice_the_idle_value() {
    let load = Load { seconds: 1.0, ..nvme_load(138_000.0, 1 << 20, 5) };
    let idle = run(&mut Nvme::default(), &tunables(Throttle::Promise, Some(32)), &Load { background: Vec::new(), ..load.clone() });
    for (target, bound) in [(MS, MS), (10 * US, 2 * idle.quantile(0.99))] {
        let tunables = Tunables { latency_target: LatencyTarget::P99(target), ..tunables(Throttle::Promise, Some(32)) };
        let both = run(&mut Nvme::default(), &tunables, &load);
        let p99 = both.quantile(0.99);
        println!("NVMe, target p99={:.3} ms: {:.3} ms, {:.0} MiB/s", ms(target), ms(p99), both.background_mib_s);
        assert!(p99 <= bound, "{:.3} ms", ms(p99));
        assert!(both.background_mib_s > 1000.0, "{:.0} MiB/s", both.background_mib_s);
    }
}
