//! What the promise is worth: one load, without and with background work, and the ways to hold background work back beside each other.
//!
//! **A fifth of the device** means, on a disk, so many interactive I/Os that it would be busy with them for a fifth of the time if it
//! served them one at a time and nothing else (rate × mean service time of the idle disk); on an NVMe device, a fifth of the I/Os a second
//! that it can do.

use super::records::{Row, run_row};
use super::{Hdd, KIB, Layout, Load, MIB, MS, Model, Nvme, Outcome, Stream, excursion_ns, run};
use vdev_queue::{ActiveLimits, Class, IoKind, LatencyTarget, Tunables};

/// Ways to hold background work back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throttle {
    /// Background work is not held back at all.
    Off,
    /// OpenZFS's credit throttle.
    Credit,
    /// The latency promise.
    Promise,
}

/// Bounds that must hold with the promise.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bounds {
    /// p99 and p99.9 are within this many hundredths of their values without background work; 0: they need not be.
    pub times_percent: [u64; 2],
    /// Time that no interactive I/O exceeds, in milliseconds.
    pub max_ms: Option<u64>,
    /// Background work has at least so many percent of its speed alone.
    pub share_percent: u64,
}

/// A load on a device, and what must hold.
#[derive(Clone)]
pub struct Scenario {
    pub name: &'static str,
    pub device: fn() -> Box<dyn Model>,
    pub load: Load,
    /// `zfs_vdev_scrub_max_active` and `zfs_vdev_rebuild_max_active`, and 64 for those that somebody waits for.
    pub background_max: Option<u32>,
    pub bounds: Bounds,
}

/// A load without background work, background work alone, both with the promise, and both without it.
pub struct Table {
    pub idle: Outcome,
    pub solo: Outcome,
    pub promised: Outcome,
    pub others: Vec<Outcome>,
}

pub fn ms(ns: u64) -> f64 {
    ns as f64 / MS as f64
}

pub fn tunables(throttle: Throttle, background_max: Option<u32>) -> Tunables {
    let mut tunables = Tunables::default();
    if background_max.is_some() {
        for class in [Class::SyncRead, Class::SyncWrite] {
            tunables.active[class as usize] = ActiveLimits { min: 64, max: 64 };
        }
    }
    tunables.latency_target = if throttle == Throttle::Promise { LatencyTarget::Auto } else { LatencyTarget::Off };
    for class in [Class::Scrub, Class::Rebuild] {
        let limits = &mut tunables.active[class as usize];
        limits.max = background_max.unwrap_or(limits.max);
        if throttle == Throttle::Off {
            limits.min = limits.max;
        }
    }
    if throttle == Throttle::Off {
        tunables.nia_credit = 1_000_000;
        tunables.nia_delay = 0;
    }
    tunables
}

impl Scenario {
    pub fn with_seed(&self, seed: u64) -> Scenario {
        Scenario { load: Load { seed, ..self.load.clone() }, ..self.clone() }
    }

    pub fn both(&self, throttle: Throttle) -> Outcome {
        self.go(throttle, &self.load)
    }

    fn go(&self, throttle: Throttle, load: &Load) -> Outcome {
        run((self.device)().as_mut(), &tunables(throttle, self.background_max), load)
    }

    /// Table with these ways to hold background work back beside the promise.
    pub fn table(&self, others: &[Throttle]) -> Table {
        Table {
            idle: self.go(Throttle::Promise, &Load { background: Vec::new(), ..self.load.clone() }),
            solo: self.go(Throttle::Promise, &Load { interactive: 0.0, readers: 0, ..self.load.clone() }),
            promised: self.both(Throttle::Promise),
            others: others.iter().map(|throttle| self.both(*throttle)).collect(),
        }
    }
}

impl Table {
    /// Percent of its speed alone that background work has.
    pub fn share(&self, outcome: &Outcome) -> f64 {
        outcome.background_mib_s / self.solo.background_mib_s * 100.0
    }

    /// Bounds that do not hold, in words.
    pub fn broken(&self, bounds: &Bounds) -> Vec<String> {
        let both = &self.promised;
        let mut broken = Vec::new();
        for (share, times) in [0.99, 0.999].into_iter().zip(bounds.times_percent) {
            let (idle, with) = (self.idle.quantile(share), both.quantile(share));
            if times > 0 && with * 100 > times * idle {
                broken.push(format!("{share}: {:.3} ms beside background work, {:.3} ms without", ms(with), ms(idle)));
            }
        }
        if bounds.max_ms.is_some_and(|most| both.max() > most * MS) {
            broken.push(format!("the longest takes {:.0} ms", ms(both.max())));
        }
        if self.share(both) < bounds.share_percent as f64 {
            broken.push(format!("background work has {:.1} % of its speed alone", self.share(both)));
        }
        if both.streams.contains(&0) {
            broken.push(format!("background work stands still: {:?}", both.streams));
        }
        broken
    }
}

/// Prints the tables of several seeds as one: of each figure the worst.
pub fn print(name: &str, tables: &[Table]) {
    println!("{name}");
    println!("  {:<24} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8}", "", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "MiB/s", "of solo");
    let line = |name: &str, pick: &dyn Fn(&Table) -> &Outcome| {
        let most = |figure: &dyn Fn(&Outcome) -> u64| ms(tables.iter().map(|table| figure(pick(table))).max().unwrap_or(0));
        let least = |figure: &dyn Fn(&Table) -> f64| tables.iter().map(figure).fold(f64::MAX, f64::min);
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| most(&|outcome| outcome.quantile(share)));
        let (speed, share) = (least(&|table| pick(table).background_mib_s), least(&|table| table.share(pick(table))));
        println!("  {name:<24} {p50:>9.3} {p99:>9.3} {p999:>9.3} {:>9.3} {speed:>9.1} {share:>6.1} %", most(&Outcome::max));
    };
    line("interactive alone", &|table| &table.idle);
    line("background alone", &|table| &table.solo);
    line("both, throttle off", &|table| &table.others[0]);
    line("both, credit (OpenZFS)", &|table| &table.others[1]);
    line("both, promise", &|table| &table.promised);
}

/// Prints what the disk leaves to a sequential stream beside a fifth of its time in random reads, by how many of them share an excursion.
pub fn print_ceiling() {
    println!("HDD, {:.1} reads/s: what excursions leave to a stream", Hdd::fifth());
    println!("  {:>5} {:>12} {:>12} {:>14} {:>22}", "reads", "there, back", "per read", "stream has", "the first waits about");
    for reads in 1..=8 {
        let (cost, apart) = (excursion_ns(reads), 1e3 / Hdd::fifth());
        let left = 100.0 - Hdd::fifth() * cost as f64 / reads as f64 / 1e7;
        println!(
            "  {reads:>5} {:>9.1} ms {:>9.1} ms {left:>12.1} % {:>19.0} ms",
            ms(cost),
            ms(cost / reads),
            (reads - 1) as f64 * apart + ms(cost)
        );
    }
}

/// Prints what targets that somebody sets cost background work, of each figure the worst of eight seeds.
pub fn print_targets(scenario: &Scenario) {
    println!("{}, by background_latency_target", scenario.name);
    for target_ms in [250, 150, 80, 30] {
        let tunables = Tunables { latency_target: LatencyTarget::P99(target_ms * MS), ..tunables(Throttle::Promise, None) };
        let (mut p99, mut share) = (0, f64::MAX);
        for seed in 1..=8 {
            let scenario = scenario.with_seed(seed);
            let solo = scenario.go(Throttle::Promise, &Load { interactive: 0.0, ..scenario.load.clone() });
            let both = run((scenario.device)().as_mut(), &tunables, &scenario.load);
            p99 = p99.max(both.quantile(0.99));
            share = share.min(both.background_mib_s / solo.background_mib_s * 100.0);
        }
        println!("  p99={target_ms}ms: p99 {:.0} ms, background work has {share:.1} % of its speed alone", ms(p99));
    }
}

const K128: &[u64] = &[128 * KIB];
const M1: &[u64] = &[MIB];
const MIXED: &[u64] = &[4 * KIB, 16 * KIB, 64 * KIB, 128 * KIB];
const MIXED_LARGE: &[u64] = &[16 * KIB, 128 * KIB, MIB];

fn scrub_and_rebuild(sizes: &'static [u64]) -> Vec<Stream> {
    vec![Stream::reads(Class::Scrub, sizes), Stream::reads(Class::Rebuild, sizes)]
}

/// Streams that a device which takes another's place is written.
fn onto_the_new_device(sizes: &'static [u64]) -> Vec<Stream> {
    vec![Stream { kind: IoKind::Write, ..Stream::reads(Class::Rebuild, sizes) }]
}

/// A scrub, and the indirect blocks of what was destroyed.
fn scrub_and_destroy(sizes: &'static [u64]) -> Vec<Stream> {
    vec![Stream::reads(Class::Scrub, sizes), Stream { scattered: true, ..Stream::reads(Class::Scrub, &[16 * KIB]) }]
}

/// A scan of a pool whose blocks lie in extents of this length in the mean, 10 GiB of them in memory at a time: what a scan has chosen of
/// blocks of 128 KiB that fill its least memory. A scrub and a resilver read; the device that takes another's place is written in the order
/// in which the others are read.
fn extents(kind: IoKind, extent: u64) -> Vec<Stream> {
    let class = if kind == IoKind::Read { Class::Scrub } else { Class::Rebuild };
    vec![Stream { kind, scan: Some(Layout { extent, batch: 10 << 30 }), ..Stream::reads(class, K128) }]
}

fn nvme(name: &'static str, interactive: f64, background: Vec<Stream>, background_max: u32, bounds: Bounds) -> Scenario {
    let seconds = if interactive < 5_000.0 { 20.0 } else { 2.0 };
    let load = Load { interactive, readers: 0, interactive_sizes: &[4 * KIB], write_percent: 10, background, seconds, seed: 1 };
    Scenario { name, device: || Box::new(Nvme::default()), load, background_max: Some(background_max), bounds }
}

/// The NVMe device: a fifth of its 690 000 reads a second, and fewer.
pub fn nvme_scenarios() -> Vec<Scenario> {
    let all = Bounds { times_percent: [200, 200], share_percent: 80, ..Bounds::default() };
    let latency = Bounds { share_percent: 70, ..all };
    // Scattered pages keep channels busy that the stream's I/Os wait for: without any throttle background work has 57 % there.
    let scattered = Bounds { share_percent: 45, ..all };
    // Who comes just after a background I/O was issued waits for a whole page of it, and then for its own.
    let rare = Bounds { times_percent: [200, 203], ..latency };
    let fifth = 138_000.0;
    let mixed = nvme(
        "NVMe, a fifth in mixed sizes, scrub and rebuild in mixed sizes",
        Nvme::fifth(MIXED),
        scrub_and_rebuild(MIXED_LARGE),
        10,
        Bounds { share_percent: 50, ..all },
    );
    vec![
        nvme("NVMe, 138 000/s, scrub and rebuild 128 KiB, max_active 3", fifth, scrub_and_rebuild(K128), 3, all),
        nvme("NVMe, 138 000/s, scrub and rebuild 1 MiB, max_active 10", fifth, scrub_and_rebuild(M1), 10, all),
        nvme("NVMe, 138 000/s, scrub and rebuild 1 MiB, max_active 32", fifth, scrub_and_rebuild(M1), 32, all),
        nvme("NVMe, 10 000/s, scrub and rebuild 1 MiB, max_active 32", 10_000.0, scrub_and_rebuild(M1), 32, latency),
        nvme("NVMe, 1 000/s, scrub and rebuild 1 MiB, max_active 32", 1_000.0, scrub_and_rebuild(M1), 32, rare),
        Scenario { load: Load { interactive_sizes: MIXED, ..mixed.load.clone() }, ..mixed },
        nvme("NVMe, 138 000/s, scrub 128 KiB and async destroy", fifth, scrub_and_destroy(K128), 10, scattered),
    ]
}

/// RAID-Z of twelve NVMe devices, records of 1 MiB read at a tenth of their bandwidth, and fewer; a thirteenth takes a lost one's place and
/// is written at 1 800 MiB/s.
pub fn rows() -> Vec<(&'static str, Row)> {
    let row = |parity: usize, records: f64, seconds: [f64; 2]| {
        let leaves = 12 - parity;
        let column_bytes = MIB.div_ceil(leaves as u64).next_multiple_of(4 * KIB);
        Row { leaves, column_bytes, records, new_device: 1800 * MIB, hiccup: None, seconds, seed: 1 }
    };
    vec![
        ("raidz1 of 12, 3 600 records/s", row(1, 3600.0, [0.5, 1.0])),
        ("raidz2 of 12, 3 200 records/s", row(2, 3200.0, [0.5, 1.0])),
        ("raidz2 of 12, 200 records/s", row(2, 200.0, [2.0, 6.0])),
    ]
}

/// Tunables with as many background I/Os as may help at a time.
pub fn deep(latency_target: LatencyTarget) -> Tunables {
    let mut tunables = Tunables { latency_target, ..Tunables::default() };
    tunables.active[Class::Scrub as usize].max = 32;
    tunables
}

/// Prints what records over several leaves see beside a resilver, with leaves that keep their own p99 and with those that keep the records'.
pub fn print_rows() {
    println!("records over NVMe devices, a healing resilver beside them; a leaf keeps the p99 of its own I/Os, or of records");
    println!(
        "  {:<32} {:<12} {:<16} {:>9} {:>9} {:>9} {:>11} {:>22}",
        "", "target", "promise of", "idle p99", "p99 ms", "× idle", "p99.9 ms", "of the new device's"
    );
    for (name, row) in rows() {
        let idle = run_row(&row, 1, &Tunables::default()).idle.quantile(0.99);
        let targets = [("off", LatencyTarget::Off), ("auto", LatencyTarget::Auto), ("1.5 × idle", LatencyTarget::P99(idle * 3 / 2))];
        for (target, latency_target) in targets {
            for (promise, width) in [("I/Os", 1), ("records", row.leaves as u32)] {
                if latency_target == LatencyTarget::Off && width > 1 {
                    continue;
                }
                let tunables = deep(latency_target);
                let all = (1..=2).map(|seed| run_row(&Row { seed, ..row.clone() }, width, &tunables));
                let figures = all.map(|healed| {
                    let [idle, busy] = [&healed.idle, &healed.busy].map(|outcome| outcome.quantile(0.99) as f64);
                    let share = healed.busy.background_mib_s * MIB as f64 / row.new_device as f64;
                    [idle, busy, busy / idle, healed.busy.quantile(0.999) as f64, -share]
                });
                let worst = figures.fold([f64::MIN; 5], |worst, one| std::array::from_fn(|index| worst[index].max(one[index])));
                let [idle, busy, times, tail, share] = worst;
                println!(
                    "  {name:<32} {target:<12} {promise:<16} {:>9.3} {:>9.3} {times:>9.2} {:>11.3} {:>20.1} %",
                    idle / MS as f64,
                    busy / MS as f64,
                    tail / MS as f64,
                    -share * 100.0
                );
            }
        }
    }
}

fn hdd(name: &'static str, interactive: f64, background: Vec<Stream>, bounds: Bounds) -> Scenario {
    let load = Load { interactive, readers: 0, interactive_sizes: &[16 * KIB], write_percent: 0, background, seconds: 120.0, seed: 1 };
    Scenario { name, device: || Box::new(Hdd::default()), load, background_max: None, bounds }
}

/// The disk: a fifth of its time is 16.6 reads a second ([`Hdd::mean_service_ns`]).
pub fn hdd_scenarios() -> Vec<Scenario> {
    let bounds = |share_percent| Bounds { max_ms: Some(250), share_percent, ..Bounds::default() };
    let streams = || scrub_and_rebuild(K128);
    let fifth = hdd("HDD, a fifth (16.6/s)", Hdd::fifth(), streams(), bounds(77));
    let mixed = hdd("HDD, a fifth, reads and writes in mixed sizes", Hdd::fifth(), scrub_and_rebuild(MIXED_LARGE), bounds(76));
    let reader = hdd("HDD, one program reads one block after the other", 0.0, streams(), bounds(0));
    vec![
        hdd("HDD, 0.5/s", 0.5, streams(), bounds(95)),
        hdd("HDD, 4/s", 4.0, streams(), bounds(80)),
        hdd("HDD, 8/s", 8.0, streams(), bounds(80)),
        hdd("HDD, 14/s", 14.0, streams(), bounds(79)),
        fifth.clone(),
        hdd("HDD, 40/s", 40.0, streams(), bounds(50)),
        hdd("HDD, a fifth, rebuild's writes", Hdd::fifth(), onto_the_new_device(K128), bounds(76)),
        hdd("HDD, a fifth, scrub and async destroy", Hdd::fifth(), scrub_and_destroy(K128), bounds(65)),
        Scenario { load: Load { interactive_sizes: MIXED, write_percent: 30, ..mixed.load.clone() }, ..mixed },
        Scenario { load: Load { readers: 1, ..reader.load.clone() }, ..reader },
    ]
}

/// The disk, beside scans that go where its head is.
pub fn hdd_scans() -> Vec<Scenario> {
    let scan = |name, interactive, kind, extent, share_percent| {
        let bounds = Bounds { max_ms: Some(250), share_percent, ..Bounds::default() };
        let scenario = hdd(name, interactive, extents(kind, extent), bounds);
        // Long enough that what is in memory is read to its end twice.
        let seconds = if share_percent == 80 { 240.0 } else { 120.0 };
        Scenario { load: Load { seconds, ..scenario.load.clone() }, ..scenario }
    };
    let (fifth, read, write) = (Hdd::fifth(), IoKind::Read, IoKind::Write);
    let reader = scan("HDD, one program reads one block after the other, scrub, extents of 8 MiB", 0.0, read, 8 * MIB, 0);
    vec![
        scan("HDD, 4/s, scrub, extents of 8 MiB", 4.0, read, 8 * MIB, 90),
        scan("HDD, a fifth, scrub, extents of 4 MiB", fifth, read, 4 * MIB, 80),
        scan("HDD, a fifth, scrub, extents of 8 MiB", fifth, read, 8 * MIB, 80),
        scan("HDD, a fifth, scrub, extents of 32 MiB", fifth, read, 32 * MIB, 80),
        scan("HDD, a fifth, resilver's writes, extents of 8 MiB", fifth, write, 8 * MIB, 80),
        scan("HDD, a fifth, scrub, extents of 1 MiB", fifth, read, MIB, 70),
        scan("HDD, a fifth, scrub, extents of 256 MiB", fifth, read, 256 * MIB, 78),
        scan("HDD, 40/s, scrub, extents of 8 MiB", 40.0, read, 8 * MIB, 50),
        Scenario { load: Load { readers: 1, ..reader.load.clone() }, ..reader },
    ]
}
