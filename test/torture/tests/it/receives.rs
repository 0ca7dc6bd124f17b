//! Power cuts while streams are received. What users lose when these fail: a backup that was said to be there, an earlier one, or the days of a transfer
//! that was to go on where it broke off.

use torture::cuts::Share;
use torture::machine::Layout;
use torture::receives::{Lie, ReceiveReport, record, try_cuts};

/// Visits one cut in `every`; `cargo xtask torture receives` visits all of a longer program.
fn cut(layout: Layout, seed: u64, every: usize, lie: Lie) -> ReceiveReport {
    let recorded = record(layout, seed, 12, lie).unwrap_or_else(|why| panic!("{why}"));
    try_cuts(&recorded, Share { every: sim::cuts_every(every), rest: 0 })
}

fn all_passed(report: &ReceiveReport) {
    assert_eq!(report.verdict.failed, 0, "{}", report.verdict);
    assert!(report.images > 30 && report.resumed > 0 && report.absent > 0, "{report:?}");
}

#[test]
fn what_was_received_stays_and_what_was_under_way_goes_on() {
    all_passed(&cut(Layout::Stripe1, 7, 11, Lie::Nothing));
}

#[test]
fn a_mirror_keeps_what_was_received() {
    all_passed(&cut(Layout::Mirror2, 5, 41, Lie::Nothing));
}

/// A check that believes these would believe anything.
#[test]
fn devices_and_streams_that_lie_are_found_out() {
    for (lie, word) in [(Lie::Flushes, "has the snapshots"), (Lie::Contents, "tank/copy")] {
        let report = cut(Layout::Stripe1, 7, 31, lie);
        assert!(report.verdict.failed > 0, "{lie:?}: {report:?}");
        let is_named = |failure: &String| failure.contains(word);
        assert!(report.verdict.failures.iter().any(is_named), "{lie:?}: {}", report.verdict);
    }
}
