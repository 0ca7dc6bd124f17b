//! What a recovery looks like while it goes on: processor, memory, devices and progress, several times a second.

use crate::measure::cpu_seconds;
use std::path::Path;
use std::time::Instant;

/// Totals of one block device (Linux: `/sys/block/*/stat`).
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Disk {
    /// Number of bytes read so far.
    pub read: u64,
    /// Number of bytes written so far.
    pub written: u64,
    /// Number of requests that the device has now.
    pub in_flight: u64,
}

/// Sample of one moment.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Sample {
    /// Seconds since the replacement began.
    pub seconds: f64,
    /// CPU seconds of the process.
    pub cpu: f64,
    /// Bytes of the process in memory.
    pub resident: u64,
    /// Bytes that the scan read, of how many.
    pub progress: (u64, u64),
    /// Totals by device; the first is the one that was replaced.
    pub disks: Vec<Disk>,
    /// Number of background I/Os that the latency promise lets each device have, in thousandths.
    pub shares_milli: Vec<u32>,
}

const SECTOR: u64 = 512;

fn parse(stat: &str) -> Disk {
    let words: Vec<u64> = stat.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let word = |index: usize| words.get(index).copied().unwrap_or(0);
    Disk { read: word(2) * SECTOR, written: word(6) * SECTOR, in_flight: word(8) }
}

/// Totals of a device by its path in `/dev`.
pub fn disk(path: &Path) -> Disk {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    parse(&std::fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap_or_default())
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Takes a sample now.
pub fn take(begun: Instant, disks: Vec<Disk>, shares_milli: Vec<u32>, progress: (u64, u64)) -> Sample {
    Sample { seconds: begun.elapsed().as_secs_f64(), cpu: cpu_seconds(), resident: resident_bytes(), progress, disks, shares_milli }
}

/// Number of requests that the replaced device had, on average.
pub fn mean_queue(samples: &[Sample]) -> f64 {
    let first = samples.iter().filter_map(|sample| sample.disks.first()).map(|disk| disk.in_flight);
    first.sum::<u64>() as f64 / samples.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The wrong column would report a device as busy with what another one did.
    #[test]
    fn the_kernels_columns_are_read_as_it_writes_them() {
        let disk = parse("  7 1 16 5 9 2 24 6 3 10 11 0 0 0 0 0 0\n");
        assert_eq!((disk.read, disk.written, disk.in_flight), (16 * 512, 24 * 512, 3));
        assert_eq!(parse("").written, 0);
    }
}
