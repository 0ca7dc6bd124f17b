//! What registered buffers save: CPU seconds per GiB of the ring engine with and without them, in alternating rounds.
//!
//! `cargo run --release -p device --example ring_cost -- PATH [GIB] [ROUNDS]` overwrites PATH, a block device or a
//! file of at least GIB GiB on a file system with O_DIRECT.

use abd::Abd;
use device::{BlockDevice, DeviceIo, DeviceOp, Engine, OpenOptions, open, ring_stats, set_ring_buffers_registered};
use exec::{Condvar, Mutex};
use std::sync::Arc;

const DEPTH: usize = 16;

fn main() {
    let mut words = std::env::args().skip(1);
    let path = words.next().expect("give the path of a file or block device that may be overwritten");
    let gib: u64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(2);
    let rounds: usize = words.next().and_then(|word| word.parse().ok()).unwrap_or(5);
    let options = OpenOptions { engine: Engine::Uring, ..OpenOptions::default() };
    let device = open(path.as_ref(), &options).expect("the device opens with O_DIRECT and io_uring");
    println!("{path}, {gib} GiB, {DEPTH} in flight, median of {rounds}: process CPU s/GiB");
    println!("{:>7} {:>6} {:>9} {:>9} {:>7}", "block", "", "plain", "fixed", "ratio");
    for block_bytes in [4 << 10, 16 << 10, 128 << 10, 1 << 20] {
        for is_write in [true, false] {
            let mut costs = [Vec::new(), Vec::new()];
            for round in 0..2 * rounds {
                set_ring_buffers_registered(round % 2 == 1);
                costs[round % 2].push(pass(&*device, (gib << 30).min((block_bytes as u64) << 17), block_bytes, is_write));
            }
            let [plain, fixed] = costs.map(median);
            let what = if is_write { "write" } else { "read" };
            println!("{:>6}K {what:>6} {plain:>9.4} {fixed:>9.4} {:>7.2}", block_bytes >> 10, fixed / plain);
        }
    }
    println!("{:?}", ring_stats());
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Moves `bytes` in blocks; returns the process's CPU seconds per GiB.
fn pass(device: &dyn BlockDevice, bytes: u64, block_bytes: usize, is_write: bool) -> f64 {
    let state = Arc::new((Mutex::new(0usize), Condvar::new()));
    let before = cpu_seconds();
    for number in 0..bytes / block_bytes as u64 {
        let (in_flight, changed) = &*state;
        let mut count = in_flight.lock();
        while *count >= DEPTH {
            changed.wait(&mut count);
        }
        *count += 1;
        drop(count);
        let op = if is_write { DeviceOp::Write(Abd::scratch(block_bytes)) } else { DeviceOp::read(block_bytes) };
        let done = state.clone();
        device.submit(DeviceIo::new(op, number * block_bytes as u64, move |reply| {
            reply.outcome.expect("the device works");
            drop(reply.parts);
            *done.0.lock() -= 1;
            done.1.notify_one();
        }));
    }
    let (in_flight, changed) = &*state;
    let mut count = in_flight.lock();
    while *count > 0 {
        changed.wait(&mut count);
    }
    drop(count);
    (cpu_seconds() - before) / (bytes as f64 / (1u64 << 30) as f64)
}

/// User and system time of this process, from `/proc/self/schedstat` of all its threads.
fn cpu_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let run_ns = |path: std::path::PathBuf| std::fs::read_to_string(path).ok()?.split(' ').next()?.parse::<f64>().ok();
    tasks.filter_map(|task| run_ns(task.path().join("schedstat"))).sum::<f64>() / 1e9
}
