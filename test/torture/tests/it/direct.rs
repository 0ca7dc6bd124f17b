//! Direct I/O against a model, a sample: `cargo xtask torture direct` runs a million operations. When these fail, what a program
//! wrote directly reads back as something else, or took its neighbour's bytes with it.

use exec::{Exec, Inline, Lockstep};
use std::sync::Arc;
use torture::direct::{race, reads_per_second, torture};
use torture::full::overwrite_full;
use torture::machine::Layout;

#[test]
fn every_mix_of_direct_and_buffered_requests_equals_the_model() {
    for (layout, faults) in [(Layout::Stripe1, false), (Layout::Mirror2, true), (Layout::Raidz1x3, true)] {
        let report = torture(layout, 5, 2000, faults).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(report.direct_writes > 1000 && report.direct_reads > 200 && report.buffered_writes > 500, "{report:?}");
        assert!(report.changed > 5, "{report:?}");
        assert!(report.refused > 20 && report.reimports > 1 && (report.faults > 20) == faults, "{report:?}");
    }
}

#[test]
fn threads_that_share_blocks_keep_their_own_bytes() {
    for seed in 0..12 {
        Lockstep::run(seed, |exec| race(exec, seed, 3, 12)).unwrap_or_else(|failure| panic!("lockstep: {failure}"));
    }
    let exec: Exec = Arc::new(exec::Pool::new(3));
    race(&exec, 99, 4, 300).unwrap_or_else(|failure| panic!("threads: {failure}"));
}

#[test]
fn misaligned_requests_are_served_where_they_are_not_refused() {
    // Relaxed, compressed; always, strict; always, relaxed.
    for seed in [2, 12, 15] {
        let report = torture(Layout::Stripe1, seed, 700, false).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(report.refused == 0 && report.direct_writes > 300 && report.buffered_writes > 150, "{seed}: {report:?}");
    }
}

/// One thread, 80 µs per device operation of a virtual clock: what a deep queue is for.
#[test]
fn thirty_two_reads_under_way_are_ten_times_as_fast_as_one() {
    let rate = |depth| reads_per_second(depth, 640).unwrap_or_else(|failure| panic!("{failure}"));
    let (one, many) = (rate(1), rate(32));
    println!("depth 1: {one} reads/s, depth 32: {many} reads/s");
    assert!(many >= 10 * one, "depth 1: {one} reads/s, depth 32: {many} reads/s");
}

/// A database that overwrites its files on a full pool gets ENOSPC when this fails, although nothing grows.
#[test]
fn overwriting_a_full_pool_finds_the_space_that_rests() {
    for seed in 0..3 {
        let exec: Exec = Arc::new(Inline::new(seed));
        let turnover = overwrite_full(&exec, 3, (seed, 400), false).unwrap_or_else(|failure| panic!("inline: {failure}"));
        assert!(turnover > 1.0, "the pool was overwritten {turnover} times: too little to fill it with what was replaced");
    }
    let exec: Exec = Arc::new(exec::Pool::new(3));
    overwrite_full(&exec, 1, (9, 300), false).unwrap_or_else(|failure| panic!("threads: {failure}"));
    overwrite_full(&exec, 3, (10, 200), true).unwrap_or_else(|failure| panic!("several under way: {failure}"));
}
