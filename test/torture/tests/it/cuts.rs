//! Power cuts in short programs: what the user loses when these fail is what fsync promised, or the pool.

use torture::cuts::{Share, record, try_cuts};
use torture::machine::Layout;

/// Visits one cut in `every`; `cargo xtask torture` visits all of a longer program.
fn cut(layout: Layout, every: usize) {
    let recorded = record(layout, 7, 40).expect("the program runs on good devices");
    let report = try_cuts(&recorded, Share { every, rest: 0 });
    assert!(report.images > 100, "{report:?}");
    assert_eq!(report.verdict.failed, 0, "{}", report.verdict);
    assert_eq!((report.imported, report.matched, report.leaks), (report.images, report.images, 0));
}

#[test]
fn a_stripe_keeps_what_it_promised() {
    cut(Layout::Stripe1, 3);
}

#[test]
fn a_wide_stripe_keeps_what_it_promised() {
    cut(Layout::Stripe2, 7);
}

#[test]
fn a_mirror_keeps_what_it_promised() {
    cut(Layout::Mirror2, 5);
}

#[test]
fn raidz_keeps_what_it_promised() {
    cut(Layout::Raidz1x3, 9);
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let hash = || record(Layout::Raidz1x3, 3, 60).expect("the program runs on good devices").trace_hash;
    assert_eq!(hash(), hash(), "a failure that cannot be repeated cannot be fixed");
}
