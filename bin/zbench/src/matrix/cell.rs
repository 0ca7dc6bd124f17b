//! What is measured and what comes out: cells of the matrix, one layer's figures for one cell, and rows over the turns.

use crate::layout::Layout;
use crate::measure::Samples;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Layer at which the load meets the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// fio on the devices themselves, striped when there are several
    Raw,
    /// Our engine as a library
    Library,
    /// Our file system through its mount
    Fuse,
    /// OpenZFS's engine in userspace
    Peer,
}

/// Pattern of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Sequential write of new files, to the devices
    Write,
    /// Sequential read of what no cache holds
    Read,
    /// Random read
    Random,
}

/// Mode in which the load asks for its I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Through caches
    Buffered,
    /// O_DIRECT
    Direct,
}

/// Name of a value as its command line and JSON spell it.
pub fn name_of<T: ValueEnum>(value: T) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_string())
}

/// Name of a size as fio spells it.
pub fn size_name(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
        _ => format!("{}K", bytes >> 10),
    }
}

/// Cells that share devices, pool and files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// Devices and how the pool combines them.
    pub layout: Layout,
    /// Bytes of a request and of a record.
    pub size: u64,
    /// Number of files, each with its own stream.
    pub jobs: usize,
    /// Bytes of all files together.
    pub bytes: u64,
    /// Number of requests in flight together when the mode is direct.
    pub in_flight: usize,
    /// Seconds of a random run.
    pub seconds: f64,
}

/// Task of a layer with a group's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Task {
    /// Pattern of the load.
    pub pattern: Pattern,
    /// Mode in which the load asks for its I/O.
    pub mode: Mode,
}

/// Figures of one layer for one cell, once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// Number of bytes moved.
    pub bytes: u64,
    /// Seconds until the last byte was where the pattern says.
    pub seconds: f64,
    /// Number of requests per second.
    pub iops: f64,
    /// Latencies in microseconds: median, 99th, 99.9th percentile.
    pub latency_us: Option<[f64; 3]>,
    /// CPU seconds of client and server.
    pub cpu: f64,
    /// Ratio of bytes copied between buffers to bytes moved, where the process counts them.
    pub copies: Option<f64>,
    /// Part of the bytes that went the direct path, where the pool counts them.
    pub direct_share: Option<f64>,
}

/// Figures of one layer for one cell over the turns; absent figures were not measured.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Row {
    /// Kind of the devices: `files`, or `loops`.
    pub devices_are: String,
    /// Cap of each device in 10⁶ bytes per second.
    pub cap_mb: Option<u64>,
    /// Layout as `zbench` spells it.
    pub layout: String,
    /// Number of devices.
    pub devices: usize,
    /// Layer at which the load meets the system.
    pub layer: Layer,
    /// Bytes of a request and of a record.
    pub size: u64,
    /// Pattern of the load.
    pub pattern: Pattern,
    /// Mode in which the load asks for its I/O.
    pub mode: Mode,
    /// Number of streams.
    pub jobs: usize,
    /// Number of turns.
    pub turns: usize,
    /// Rate in 10⁶ bytes per second: median.
    pub mb_per_second: f64,
    /// Spread of the rate in percent.
    pub spread_percent: f64,
    /// Percent of what the raw devices did in the same turn (times data ÷ all devices of the layout), median.
    pub raw_percent: Option<f64>,
    /// Number of requests per second, median.
    pub iops: f64,
    /// Latencies in microseconds, medians: 50th, 99th, 99.9th percentile.
    pub latency_us: Option<[f64; 3]>,
    /// CPU seconds per GiB moved, median.
    pub cpu_per_gib: f64,
    /// Ratio of bytes copied to bytes moved, median.
    pub copies: Option<f64>,
    /// Percent of the bytes that went the direct path, median.
    pub direct_percent: Option<f64>,
}

/// Samples that a row is made of.
#[derive(Debug, Default)]
pub struct Collected {
    rate: Samples,
    raw: Samples,
    iops: Samples,
    latency: [Samples; 3],
    cpu: Samples,
    copies: Samples,
    direct: Samples,
}

impl Collected {
    /// Adds a turn; `raw_rate` is what the devices did in it, in 10⁶ bytes per second.
    pub fn add(&mut self, measured: &Measured, raw_rate: Option<f64>) {
        let rate = measured.bytes as f64 / 1e6 / measured.seconds.max(1e-9);
        self.rate.push(rate);
        self.iops.push(measured.iops);
        self.cpu.push(measured.cpu / (measured.bytes as f64 / crate::measure::GIB).max(1e-9));
        if let Some(raw_rate) = raw_rate {
            self.raw.push(rate / raw_rate * 100.0);
        }
        for (samples, value) in self.latency.iter_mut().zip(measured.latency_us.into_iter().flatten()) {
            samples.push(value);
        }
        if let Some(copies) = measured.copies {
            self.copies.push(copies);
        }
        if let Some(share) = measured.direct_share {
            self.direct.push(share * 100.0);
        }
    }

    /// Row of a layer and cell.
    pub fn row(&self, group: &Group, layer: Layer, task: Task, devices_are: &str, cap: Option<u64>) -> Row {
        let some = |samples: &Samples| (samples.count() > 0).then(|| samples.median());
        let latency = some(&self.latency[0]).map(|_| std::array::from_fn(|index| self.latency[index].median()));
        Row {
            devices_are: devices_are.to_string(),
            cap_mb: cap.map(|cap| cap / 1_000_000),
            layout: group.layout.to_string(),
            devices: group.layout.devices,
            layer,
            size: group.size,
            pattern: task.pattern,
            mode: task.mode,
            jobs: group.jobs,
            turns: self.rate.count(),
            mb_per_second: self.rate.median(),
            spread_percent: self.rate.spread_percent(),
            raw_percent: some(&self.raw),
            iops: self.iops.median(),
            latency_us: latency,
            cpu_per_gib: self.cpu.median(),
            copies: some(&self.copies),
            direct_percent: some(&self.direct),
        }
    }
}

/// Titles of the table's columns, which [`Row::line`] fills.
pub fn heading() -> String {
    format!(
        "{:<8} {:>9} {:>5} {:<7} {:<9} {:>4} {:>8} {:>4} {:>6} {:>9} {:>8} {:>8} {:>8} {:>8} {:>6} {:>7}",
        "layer",
        "layout",
        "size",
        "pattern",
        "mode",
        "jobs",
        "MB/s",
        "±%",
        "%raw",
        "IOPS",
        "p50 µs",
        "p99",
        "p99.9",
        "s/GiB",
        "copies",
        "direct%"
    )
}

impl Row {
    /// Line of the table; what was not measured is "-".
    pub fn line(&self) -> String {
        let optional = |value: Option<f64>, digits: usize| value.map_or_else(|| "-".to_string(), |value| format!("{value:.digits$}"));
        let latency = |index: usize| optional(self.latency_us.map(|all| all[index]), 0);
        format!(
            "{:<8} {:>9} {:>5} {:<7} {:<9} {:>4} {:>8.0} {:>4.0} {:>6} {:>9.0} {:>8} {:>8} {:>8} {:>8.3} {:>6} {:>7}",
            name_of(self.layer),
            self.layout,
            size_name(self.size),
            name_of(self.pattern),
            name_of(self.mode),
            self.jobs,
            self.mb_per_second,
            self.spread_percent,
            optional(self.raw_percent, 1),
            self.iops,
            latency(0),
            latency(1),
            latency(2),
            self.cpu_per_gib,
            optional(self.copies, 2),
            optional(self.direct_percent, 0),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group() -> Group {
        Group { layout: "stripe:4".parse().expect("a layout"), size: 1 << 20, jobs: 1, bytes: 1 << 30, in_flight: 4, seconds: 1.0 }
    }

    /// A figure that was not measured must never look like one that was.
    #[test]
    fn absent_figures_stay_absent() {
        let mut collected = Collected::default();
        collected.add(&Measured { bytes: 1 << 30, seconds: 2.0, iops: 512.0, cpu: 0.5, ..Measured::default() }, None);
        let row = collected.row(&group(), Layer::Fuse, Task { pattern: Pattern::Read, mode: Mode::Direct }, "files", None);
        assert_eq!((row.raw_percent, row.latency_us, row.copies, row.direct_percent), (None, None, None, None));
        assert_eq!(row.cpu_per_gib, 0.5);
        assert!(row.line().ends_with("-       -"), "{}", row.line());
    }

    /// The report reads what the matrix wrote.
    #[test]
    fn rows_survive_json() {
        let mut collected = Collected::default();
        let measured = Measured { bytes: 1 << 20, seconds: 0.5, latency_us: Some([1.0, 2.0, 3.0]), ..Measured::default() };
        collected.add(&measured, Some(4.0));
        let row = collected.row(&group(), Layer::Raw, Task { pattern: Pattern::Write, mode: Mode::Buffered }, "loops", Some(50_000_000));
        let text = serde_json::to_string(&row).expect("json");
        assert_eq!(serde_json::from_str::<Row>(&text).expect("a row"), row);
    }
}
