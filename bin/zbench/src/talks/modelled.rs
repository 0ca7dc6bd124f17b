//! Figures in virtual time: pools and bare drives of the survey, and the scheduler's models of a drive and a disk. Each run of a process gives the same.

use super::cell::{Bare, Drives, Figure, Nvme};
use crate::survey::figures::{self, Side};
use crate::world::{self, DISK_BYTES, Hdd, Load, MIB, Model, Random, SECOND, Stream};
use std::collections::BTreeMap;
use vdev_queue::{Class, IoKind, Issue, IssueId, Tunables};

/// MiB that each test of a pool moves, and when it has to be quick.
const SIZE_MIB: [u64; 2] = [512, 64];
/// Number of I/Os that the model of a drive has at once: 32 jobs of 16.
const DEPTH: u64 = 512;
/// Part of a second for which the model of a drive is looked at.
const NVME_NS: u64 = SECOND / 4;
/// Load of a disk that random reads wait at: a stream of a scan's class, and twenty reads a second.
const READS_PER_SECOND: f64 = 20.0;
const DISK_SECONDS: f64 = 120.0;

/// Figures that were computed, by the parameters of the survey.
#[derive(Debug, Default)]
pub struct Models {
    is_quick: bool,
    rows: BTreeMap<String, BTreeMap<&'static str, Test>>,
}

/// Figures of a test of a row.
#[derive(Clone, Copy, Debug)]
struct Test {
    rate: f64,
    device_bytes: f64,
    direct: Option<f64>,
}

/// Parameters of the survey for drives.
fn rates(drives: Drives) -> &'static str {
    match drives {
        Drives::Gen3 => "--read-mb 3580 --write-mb 1887 --link-mb 3940 --host-mb 1000000",
        Drives::Gen4 => "--read-mb 7160 --write-mb 3774 --link-mb 7880 --host-mb 1000000",
        Drives::Ornl => "--read-mb 3500 --write-mb 2000 --link-mb 3940 --host-mb 15750",
        Drives::OrnlFast => "--read-mb 6400 --write-mb 3000 --link-mb 3940 --host-mb 15750",
    }
}

fn mib_per_second(rate: f64) -> String {
    format!("{rate:.0} MiB/s")
}

impl Models {
    /// Computes nothing yet; smaller when it has to be quick.
    pub fn new(is_quick: bool) -> Models {
        Models { is_quick, rows: BTreeMap::new() }
    }

    /// Parameters of the survey for a pool on drives; those of a cell may name a size of their own.
    pub fn line(&self, drives: Drives, parameters: &str) -> String {
        if parameters.contains("--size") {
            return format!("{parameters} {}", rates(drives));
        }
        format!("{parameters} --size {} {}", SIZE_MIB[usize::from(self.is_quick)], rates(drives))
    }

    fn test(&mut self, line: &str, name: &str) -> Result<Test, String> {
        if !self.rows.contains_key(line) {
            let row = figures::pool(&figures::parse(line)?)?;
            // Writes count until the devices have them.
            let test = |test: &crate::survey::Test| {
                let rate = test.synced.unwrap_or(test.rate);
                (test.name, Test { rate, device_bytes: test.device_bytes, direct: test.direct })
            };
            self.rows.insert(line.to_string(), row.tests.iter().map(test).collect());
        }
        self.rows.get(line).and_then(|row| row.get(name)).copied().ok_or_else(|| format!("the survey has no test '{name}'"))
    }

    /// Figure of a pool.
    pub fn pool(&mut self, drives: Drives, parameters: &str, figure: Figure) -> Result<String, String> {
        let line = self.line(drives, parameters);
        let pair = |rates: [f64; 2], name: &str| rates[usize::from(!name.ends_with("write"))];
        match figure {
            Figure::PercentOfDrives(name) => {
                let limits = figures::data_devices(&figures::parse(&line)?)?;
                Ok(format!("{:.1} %", 100.0 * self.test(&line, name)?.rate / pair(limits, name)))
            }
            Figure::Rate(name) => Ok(mib_per_second(self.test(&line, name)?.rate)),
            Figure::OfBare(name) => {
                let bare = figures::bare(&figures::parse(&line)?, true)?;
                Ok(format!("{:.2} ×", self.test(&line, name)?.rate / pair(bare, name)))
            }
            Figure::OfOther(name, other) => {
                let other = self.line(drives, other);
                Ok(format!("{:.2} ×", self.test(&line, name)?.rate / self.test(&other, name)?.rate))
            }
            Figure::DeviceBytes(name) => Ok(format!("{:.2} bytes for each", self.test(&line, name)?.device_bytes)),
            Figure::Direct(name) => {
                let direct = self.test(&line, name)?.direct.ok_or("no part of it is direct or not")?;
                Ok(format!("{direct:.1} % direct"))
            }
        }
    }
}

/// Parameters of the survey for so many bare drives.
pub fn bare_line(bare: Bare, devices: &str) -> String {
    let layer = if bare.is_aware { "aware" } else { "naive" };
    format!("--layers {layer} --devices {devices} {}", rates(bare.drives))
}

/// Figure of bare drives.
pub fn bare(bare: Bare) -> Result<String, String> {
    let rate = |devices: usize| {
        let line = bare_line(bare, &devices.to_string());
        let [written, read] = figures::bare(&figures::parse(&line)?, bare.is_aware)?;
        Ok::<_, String>(if bare.side == Side::Written { written } else { read })
    };
    match bare.over {
        Some(fewer) => Ok(format!("{:.2} ×", rate(bare.devices)? / rate(fewer)?)),
        None => Ok(mib_per_second(rate(bare.devices)?)),
    }
}

/// Names of the drives that stand out.
pub fn stands_out(parameters: &str) -> Result<String, String> {
    let names = figures::standing_out(&figures::parse(parameters)?)?;
    Ok(if names.is_empty() { "none".to_string() } else { names.join(", ") })
}

/// Load of the model of a drive: numbers of its I/Os.
struct Commands {
    load: Nvme,
    random: Random,
    issued: u64,
}

impl Commands {
    fn command(&mut self) -> Issue {
        let (number, bytes) = (self.issued, self.load.bytes);
        self.issued += 1;
        let is_write = self.random.below(100) < self.load.write_percent;
        let (class, kind) = if is_write { (Class::SyncWrite, IoKind::Write) } else { (Class::SyncRead, IoKind::Read) };
        let slot = if self.load.is_sequential { number } else { self.random.below(DISK_BYTES / bytes) };
        Issue {
            id: IssueId(number),
            class,
            kind,
            offset: slot * bytes,
            size_bytes: bytes,
            queued_ns: 0,
            parts: Vec::new(),
            needless: false,
        }
    }
}

/// Figures of the model of an NVMe drive: its rate, and I/Os in a second. Only the second half of the time counts: the drive's buffer is full then.
pub fn nvme(load: Nvme) -> String {
    let mut model = world::Nvme::default();
    let mut commands = Commands { load, random: Random(1), issued: 0 };
    for number in 1..=DEPTH {
        // The first ones are of all sizes, so that they do not end together, nor do those after them.
        let mut issue = commands.command();
        issue.size_bytes = (issue.size_bytes * number / DEPTH).next_multiple_of(4096);
        model.submit(&issue, 0);
    }
    model.kick(0);
    let (mut ended, mut count) = (Vec::new(), 0u64);
    while let Some(now) = model.next_event().filter(|now| *now < NVME_NS) {
        model.advance(now, &mut ended);
        for _ in ended.drain(..) {
            count += u64::from(now >= NVME_NS / 2);
            model.submit(&commands.command(), now);
        }
        model.kick(now);
    }
    let per_second = count as f64 * SECOND as f64 / (NVME_NS / 2) as f64;
    format!("{:.0} MiB/s, {per_second:.0} a second", per_second * load.bytes as f64 / MIB as f64)
}

/// Longest wait of random reads at a disk beside a sequential stream.
pub fn disk_wait() -> String {
    let load = Load {
        interactive: READS_PER_SECOND,
        readers: 0,
        interactive_sizes: &[16 << 10],
        write_percent: 0,
        background: vec![Stream::reads(Class::Scrub, &[1 << 20])],
        seconds: DISK_SECONDS,
        seed: 1,
    };
    let outcome = world::run(&mut Hdd::default(), &Tunables::default(), &load);
    format!("{:.2} s at most, the stream at {:.0} MiB/s", outcome.max() as f64 / SECOND as f64, outcome.background_mib_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, the page compares the talks with other drives than theirs.
    #[test]
    fn models_are_computed_and_are_those_of_the_talks() {
        let read = nvme(Nvme { write_percent: 0, is_sequential: true, bytes: 1 << 20 });
        let rate: f64 = read.split(' ').next().and_then(|word| word.parse().ok()).expect("a rate");
        assert!((3300.0..3500.0).contains(&rate), "{read}");
        let alone = Bare { drives: Drives::OrnlFast, is_aware: true, side: Side::Read, devices: 1, over: None };
        // The link of the slot, not the drive, is the limit.
        let rate: f64 = bare(alone).expect("ran").split(' ').next().and_then(|word| word.parse().ok()).expect("a rate");
        assert!((3500.0..3800.0).contains(&rate), "{rate}");
        assert_eq!(stands_out("--layers one --devices 12 --qualify-ios 2048 --failing 10:1000"), Ok("nvme10".to_string()));
    }

    /// If this fails, a pool is computed again for each of its figures, or another one's are shown.
    #[test]
    fn a_row_is_computed_once() {
        let mut models = Models::new(true);
        let parameters = "--layers library --layout raidz1:3 --nobjlo 2 --nobjhi 2 --thrlo 8 --thrhi 8";
        let percent = models.pool(Drives::Gen3, parameters, Figure::PercentOfDrives("rewrite")).expect("ran");
        let direct = models.pool(Drives::Gen3, parameters, Figure::Direct("rewrite")).expect("ran");
        assert!(percent.ends_with(" %") && direct.ends_with(" % direct"), "{percent}, {direct}");
        assert_eq!(models.rows.len(), 1);
        assert!(models.pool(Drives::Gen3, parameters, Figure::Rate("walk")).is_err());
    }
}
