//! `zbench kernels`: Fletcher-4 and RAID-Z throughput, beside the best row of `raidz_test -B` for the same operation and size.
//!
//! What the figures mean. `raidz_test -B` times `vdev_raidz_generate_parity` and `vdev_raidz_reconstruct` on one block of
//! `iosize` bytes over `dcols` data columns (ashift 12) again and again by wall clock, and prints `disk_bw` = (iosize ÷ dcols)
//! per second in MiB. Times dcols that is *data bytes per second*, whatever is lost or made, and that is what both sides
//! report here in GB/s (10⁹). Reconstruction rows have P, Q and R; rec_p … rec_pqr name the parity used for one, two or three lost
//! data columns (the first ones). Both sides include their per-call work (splitting in columns is outside for both).
//! A block of one sector has one data column: its parity is a copy of it, bound by stores on both sides, so that row is shown but not
//! judged. Our clock is the thread's CPU time. So that a busy machine does not make the peer look slow, its figures are multiplied by the
//! wall time of the whole run ÷ the CPU time it got. That is right on average only: on a busy machine run `chrt -f 1 zbench kernels`
//! (the peer inherits the real-time class), then wall time is CPU time.

use abd::Abd;
use kernels::raidz::{self, Implementation};
use kernels::{ByteOrder, checksum, fused};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Options of `zbench kernels`.
#[derive(clap::Args)]
pub struct Args {
    /// Data columns of the RAID-Z rows
    #[arg(long, value_delimiter = ',', default_value = "8")]
    columns: Vec<usize>,
    /// CPU time for each figure, in milliseconds
    #[arg(long, default_value_t = 60)]
    budget_ms: u64,
    /// The peer: OpenZFS's raidz_test
    #[arg(long, default_value = "raidz_test")]
    peer: String,
    /// Output of an earlier `raidz_test -B -d N` to compare with instead of running it
    #[arg(long)]
    peer_output: Option<std::path::PathBuf>,
    /// Do not run the peer
    #[arg(long)]
    alone: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Operation of `raidz_test -B`.
struct Operation {
    name: &'static str,
    /// Parity columns made (generation) or used (reconstruction), as a mask: bits 0, 1, 2 are P, Q, R.
    parity: u8,
    lost: usize,
    /// Least ratio to the peer's best row.
    target: f64,
}

const OPERATIONS: [Operation; 10] = [
    Operation { name: "gen_p", parity: 0b001, lost: 0, target: 1.0 },
    Operation { name: "gen_pq", parity: 0b011, lost: 0, target: 2.0 },
    Operation { name: "gen_pqr", parity: 0b111, lost: 0, target: 2.0 },
    Operation { name: "rec_p", parity: 0b001, lost: 1, target: 1.5 },
    Operation { name: "rec_q", parity: 0b010, lost: 1, target: 1.5 },
    Operation { name: "rec_r", parity: 0b100, lost: 1, target: 1.5 },
    Operation { name: "rec_pq", parity: 0b011, lost: 2, target: 1.5 },
    Operation { name: "rec_pr", parity: 0b101, lost: 2, target: 1.5 },
    Operation { name: "rec_qr", parity: 0b110, lost: 2, target: 1.5 },
    Operation { name: "rec_pqr", parity: 0b111, lost: 3, target: 1.5 },
];
const SECTOR_BYTES: usize = 4096;
const FLETCHER_SIZES: [usize; 6] = [4 << 10, 16 << 10, 128 << 10, 256 << 10, 1 << 20, 16 << 20];
/// Bytes of blocks for which the Fletcher-4 target holds, and the target in GB/s.
const FLETCHER_TARGET: (std::ops::RangeInclusive<usize>, f64) = (16 << 10..=1 << 20, 30.0);

/// Best rows of the peer: GB/s of data and the implementation.
type PeerRows = BTreeMap<(String, usize), (f64, String)>;

/// Runs the subcommand; the exit code says whether every target was met.
pub fn run(args: &Args) -> ExitCode {
    let budget = Duration::from_millis(args.budget_ms);
    let mut report = Report { json: args.json, rows: Vec::new(), missed: 0 };
    report.line(&format!("fletcher4: {}; raidz: {}", checksum::fastest().name, raidz::fastest().name));
    measure_fletcher(budget, &mut report);
    for &columns in &args.columns {
        if !(1..=raidz::DATA_COLUMNS_MAX).contains(&columns) {
            eprintln!("zbench: a row has 1 to {} data columns, not {columns}", raidz::DATA_COLUMNS_MAX);
            return ExitCode::from(2);
        }
        let peer = match peer_rows(args, columns) {
            Ok(rows) => rows,
            Err(why) => {
                eprintln!("zbench: {why}");
                return ExitCode::from(2);
            }
        };
        measure_raidz(columns, budget, &peer, &mut report);
        measure_fused(columns, budget, &mut report);
    }
    if args.json {
        println!("{}", json!({ "rows": report.rows, "missed": report.missed }));
    } else {
        println!("{} figures below their target", report.missed);
    }
    if report.missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

struct Report {
    json: bool,
    rows: Vec<Value>,
    missed: usize,
}

impl Report {
    fn line(&self, text: &str) {
        if !self.json {
            println!("{text}");
        }
    }
    fn judge(&mut self, met: bool) -> &'static str {
        self.missed += usize::from(!met);
        if met { "" } else { "  BELOW TARGET" }
    }
}

/// Throughput of `work`, which handles `bytes` each time, in GB/s of thread CPU time: the median over batches.
fn rate(bytes: usize, budget: Duration, mut work: impl FnMut()) -> f64 {
    work();
    let batch_bytes = (4 << 20) / bytes.max(1) * bytes.max(1);
    let calls = (batch_bytes / bytes.max(1)).max(1);
    let mut rates = Vec::new();
    let begin = cpu_time();
    while rates.len() < 5 || cpu_time() - begin < budget {
        let start = cpu_time();
        for _ in 0..calls {
            work();
        }
        let spent = (cpu_time() - start).as_nanos().max(1) as f64;
        rates.push((calls * bytes) as f64 / spent);
    }
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn size_text(bytes: usize) -> String {
    if bytes < 1 << 20 { format!("{}K", bytes >> 10) } else { format!("{}M", bytes >> 20) }
}

/// Makes a page-aligned buffer of noise.
fn noise(bytes: usize) -> Abd {
    let mut buffer = Abd::scratch(bytes);
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    for word in buffer.make_mut().chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
    buffer
}

fn measure_fletcher(budget: Duration, report: &mut Report) {
    for one in checksum::ALL.iter().filter(|one| one.is_supported()) {
        for size in FLETCHER_SIZES {
            let buffer = noise(size);
            let bytes = buffer.as_contiguous().unwrap_or_default();
            let speed = rate(size, budget, || {
                black_box(one.sum(black_box(bytes), ByteOrder::Little));
            });
            let judged = std::ptr::eq(*one, checksum::fastest()) && one.name == "avx512bw" && FLETCHER_TARGET.0.contains(&size);
            let verdict = if judged { report.judge(speed >= FLETCHER_TARGET.1) } else { "" };
            report.line(&format!("fletcher4  {:<12} {:>5} {speed:>7.1} GB/s{verdict}", one.name, size_text(size)));
            report.rows.push(json!({ "operation": "fletcher4", "implementation": one.name, "bytes": size, "gb_per_s": speed }));
        }
    }
}

/// Bytes of the data columns of a block (OpenZFS: `vdev_raidz_map_alloc`): the first columns take the odd sectors.
fn column_lengths(size: usize, columns: usize) -> Vec<usize> {
    let sectors = size.div_ceil(SECTOR_BYTES);
    let (each, more) = (sectors / columns, sectors % columns);
    (0..columns).map(|n| (each + usize::from(n < more)) * SECTOR_BYTES).filter(|&length| length > 0).collect()
}

fn split<'a>(mut bytes: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let mut columns = Vec::new();
    for &length in lengths {
        let (column, rest) = bytes.split_at(length.min(bytes.len()));
        columns.push(column);
        bytes = rest;
    }
    columns
}

fn operation_rate(operation: &Operation, implementation: &Implementation, lengths: &[usize], budget: Duration) -> f64 {
    let size: usize = lengths.iter().sum();
    let buffer = noise(size);
    let data = split(buffer.as_contiguous().unwrap_or_default(), lengths);
    let made = if operation.lost == 0 { operation.parity.count_ones() as usize } else { 3 };
    let mut parity: Vec<Abd> = (0..made).map(|_| noise(lengths[0])).collect();
    let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(|column| column.make_mut()).collect();
    if operation.lost == 0 {
        return rate(size, budget, || {
            black_box(implementation.generate(black_box(&data), &mut targets)).expect("a well-formed row");
        });
    }
    implementation.generate(&data, &mut targets).expect("a well-formed row");
    let known: Vec<Option<&[u8]>> = data.iter().enumerate().map(|(n, column)| (n >= operation.lost).then_some(*column)).collect();
    let used: Vec<Option<&[u8]>> =
        targets.iter().enumerate().map(|(n, column)| (operation.parity >> n & 1 != 0).then_some(&**column)).collect();
    let mut lost: Vec<Abd> = lengths[..operation.lost].iter().map(|&length| Abd::zeroed(length)).collect();
    let mut missing: Vec<&mut [u8]> = lost.iter_mut().map(|column| column.make_mut()).collect();
    let speed = rate(size, budget, || {
        black_box(implementation.reconstruct(black_box(&known), &used, &mut missing)).expect("a well-formed row");
    });
    assert!(missing.iter().zip(&data).all(|(made, right)| **made == **right), "{} gave wrong bytes", operation.name);
    speed
}

fn measure_raidz(columns: usize, budget: Duration, peer: &PeerRows, report: &mut Report) {
    for operation in &OPERATIONS {
        let mut least: Option<f64> = None;
        for size in (12..=24).map(|shift| 1usize << shift) {
            let lengths = column_lengths(size, columns);
            if operation.lost > 0 && size / columns < SECTOR_BYTES {
                continue;
            }
            let speed = operation_rate(operation, raidz::fastest(), &lengths, budget);
            let best = peer.get(&(operation.name.to_string(), size));
            let mut text = format!("raidz  {columns:>2} columns  {:<8} {:>5} {speed:>7.1} GB/s", operation.name, size_text(size));
            if let Some((peer_speed, peer_name)) = best {
                let ratio = speed / peer_speed;
                let judged = lengths.len() > 1;
                if judged {
                    least = Some(least.map_or(ratio, |least| least.min(ratio)));
                }
                let verdict = if judged { report.judge(ratio >= operation.target) } else { " (a copy: not judged)" };
                text +=
                    &format!("   raidz_test {peer_speed:>6.1} ({peer_name:<9})  ratio {ratio:>5.2} of {:.1}{verdict}", operation.target);
            }
            report.line(&text);
            report.rows.push(json!({
                "operation": operation.name, "implementation": raidz::fastest().name, "columns": columns, "bytes": size,
                "gb_per_s": speed, "peer_gb_per_s": best.map(|best| best.0), "peer_implementation": best.map(|best| &best.1),
                "target_ratio": operation.target,
            }));
        }
        if let Some(least) = least {
            report.line(&format!(
                "raidz  {columns:>2} columns  {:<8} least ratio {least:.2}, target {:.1}",
                operation.name, operation.target
            ));
        }
    }
}

/// Measures one pass for parity and checksum beside two passes.
fn measure_fused(columns: usize, budget: Duration, report: &mut Report) {
    for parities in 1..=3 {
        for size in [16 << 10, 128 << 10, 1 << 20, 16 << 20] {
            let lengths = column_lengths(size, columns);
            let buffer = noise(size);
            let data = split(buffer.as_contiguous().unwrap_or_default(), &lengths);
            let mut parity: Vec<Abd> = (0..parities).map(|_| noise(lengths[0])).collect();
            let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(|column| column.make_mut()).collect();
            let one = rate(size, budget, || {
                black_box(fused::generate_with_fletcher4(black_box(&data), &mut targets)).expect("a well-formed row");
            });
            let two = rate(size, budget, || {
                raidz::generate(black_box(&data), &mut targets).expect("a well-formed row");
                black_box(checksum::fletcher4(black_box(&data), ByteOrder::Little));
            });
            report.line(&format!(
                "parity and checksum  {columns:>2} columns  {parities} parity {:>5} {one:>7.1} GB/s in one pass, {two:>6.1} in two",
                size_text(size)
            ));
            report.rows.push(json!({
                "operation": "parity_and_fletcher4", "parity": parities, "columns": columns, "bytes": size,
                "gb_per_s": one, "two_passes_gb_per_s": two,
            }));
        }
    }
}

/// Best rows of the peer for each operation and size, corrected for the share of a core that it got.
fn peer_rows(args: &Args, columns: usize) -> Result<PeerRows, String> {
    if args.alone {
        return Ok(PeerRows::new());
    }
    if let Some(path) = &args.peer_output {
        let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        return Ok(parse_peer(&text, columns, 1.0));
    }
    eprintln!("zbench: running {} -B -d {columns} (several minutes)", args.peer);
    let (start, spent_before) = (Instant::now(), children_ticks());
    let output = Command::new(&args.peer)
        .args(["-B", "-d", &columns.to_string()])
        .output()
        .map_err(|error| format!("cannot run {} (install it with zfs-test, or use --alone): {error}", args.peer))?;
    let spent = children_ticks().saturating_sub(spent_before) as f64 / rustix::param::clock_ticks_per_second() as f64;
    let share = if spent > 0.0 { (start.elapsed().as_secs_f64() / spent).max(1.0) } else { 1.0 };
    eprintln!("zbench: its figures are scaled by {share:.3} for the CPU time that it did not get");
    let rows = parse_peer(&String::from_utf8_lossy(&output.stdout), columns, share);
    if rows.is_empty() { Err(format!("{} printed no figures", args.peer)) } else { Ok(rows) }
}

/// CPU time of finished children in clock ticks (`/proc/self/stat`, fields 16 and 17).
fn children_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    after_name.split_whitespace().skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

/// Parses the peer's rows: `impl, math, dcols, iosize, disk_bw, total_bw, iter`, bandwidths in MiB/s.
fn parse_peer(text: &str, columns: usize, share: f64) -> PeerRows {
    let mut rows = PeerRows::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [name, operation, dcols, size, disk_bandwidth, _, _] = fields[..] else { continue };
        let (Ok(dcols), Ok(size), Ok(disk)) = (dcols.parse::<usize>(), size.parse::<usize>(), disk_bandwidth.parse::<f64>()) else {
            continue;
        };
        if dcols != columns {
            continue;
        }
        let speed = disk * columns as f64 * 1_048_576.0 / 1e9 * share;
        let best = rows.entry((operation.to_string(), size)).or_insert_with(|| (0.0, String::new()));
        if speed > best.0 {
            *best = (speed, name.to_string());
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ratio computed from the wrong column or row would claim speed that is not there.
    #[test]
    fn the_best_row_of_the_same_operation_counts() {
        let text = "impl, math, dcols, iosize, disk_bw, total_bw, iter\n\
             scalar,    gen_p, 8,       4096, 100.0, 900.0, 1048576\n\
             avx2,    gen_p, 8,       4096, 1000.0, 9000.0, 1048576\n\
             avx512bw,    gen_p, 8,       4096, 500.0, 4500.0, 1048576\n\
             avx2,    gen_p, 4,       4096, 9000.0, 9000.0, 1048576\n";
        let rows = parse_peer(text, 8, 1.0);
        assert_eq!(rows.len(), 1);
        let (speed, name) = &rows[&("gen_p".to_string(), 4096)];
        assert!((speed - 8.388_608).abs() < 1e-9 && name == "avx2", "{speed} {name}");
    }

    /// The rows measured must be those that a pool writes.
    #[test]
    fn odd_sectors_go_to_the_first_columns() {
        assert_eq!(column_lengths(4096, 8), [4096]);
        assert_eq!(column_lengths(10 * 4096, 8), [8192, 8192, 4096, 4096, 4096, 4096, 4096, 4096]);
    }
}
