//! Power cuts while programs make durable what they do, through the intent log, and while that is replayed. What users lose when these fail: what
//! fsync(2), O_DSYNC or msync(2) promised, or the pool's space.

use torture::cuts::Share;
use torture::durable::check::{LogReport, try_cuts};
use torture::durable::{Subject, record};
use torture::machine::Layout;

/// Visits one cut in `every`, and in one of `again` the power goes off once more; `cargo xtask torture log` visits all of a longer program.
fn cut(layout: Layout, every: usize, again: usize) {
    let recorded = record(layout, Subject::Files, 7, 100).unwrap_or_else(|why| panic!("{why}"));
    let every = sim::cuts_every(every);
    let report = try_cuts(&recorded, Share { every, rest: 0 }, again);
    assert_eq!(report.verdict.failed, 0, "{}", report.verdict);
    assert!(report.replayed > report.images / 2 && report.records > 4 * report.replayed && report.beyond > 0, "{report:?}");
}

#[test]
fn one_disk_keeps_what_was_made_durable() {
    cut(Layout::Stripe1, 19, 31);
}

#[test]
fn a_log_device_keeps_what_was_made_durable() {
    cut(Layout::Logged, 41, 41);
}

#[test]
fn a_mirror_of_log_devices_keeps_what_was_made_durable() {
    cut(Layout::MirroredLog, 47, 43);
}

#[test]
fn raidz_keeps_what_was_made_durable() {
    cut(Layout::Raidz1x3, 89, 97);
}

/// Power that goes off while an uberblock is written, so that few labels have it, and again while the next txg writes configurations into
/// those labels: what the first import found must be there for the second.
#[test]
fn an_uberblock_in_few_labels_outlives_the_next_cut() {
    let recorded = record(Layout::Raidz1x3, Subject::Files, 1, 300).unwrap_or_else(|why| panic!("{why}"));
    let report = try_cuts(&recorded, Share { every: 100_000, rest: 279 }, 23);
    assert_eq!((report.verdict.failed, report.again > 0), (0, true), "{}", report.verdict);
}

/// Visits one cut in `every` of a program on a volume; `cargo xtask torture volumes` and `nbd` visit all of a longer one. What users lose when this
/// fails: what a guest's file system was told is on its disk, or bytes that it gave back and sees again.
fn cut_volume(subject: Subject, layout: Layout, seed: u64, every: usize) -> LogReport {
    let recorded = record(layout, subject, seed, 60).unwrap_or_else(|why| panic!("{why}"));
    let report = try_cuts(&recorded, Share { every: sim::cuts_every(every), rest: 0 }, 37);
    assert_eq!(report.verdict.failed, 0, "{}", report.verdict);
    assert!(report.replayed > 0 && report.records > report.replayed, "{report:?}");
    report
}

/// Does so on a program of which enough is in the log.
fn cut_log(layout: Layout, seed: u64, every: usize) {
    let report = cut_volume(Subject::Volume, layout, seed, every);
    assert!(report.replayed > report.images / 4 && report.beyond > 0, "{report:?}");
}

#[test]
fn a_volume_keeps_what_was_made_durable() {
    cut_log(Layout::Stripe1, 7, 19);
}

#[test]
fn a_volume_with_a_log_device_keeps_what_was_made_durable() {
    cut_log(Layout::Logged, 5, 31);
}

#[test]
fn a_volume_of_which_every_change_is_durable_keeps_it() {
    cut_log(Layout::Stripe1, 8, 41);
}

#[test]
fn a_volume_on_a_mirror_keeps_what_was_made_durable() {
    cut_volume(Subject::Volume, Layout::Mirror2, 3, 53);
}

/// If this fails, a client's file system loses what FUA or a flush was answered for.
#[test]
fn what_a_client_of_nbd_was_answered_is_there_after_a_power_cut() {
    cut_volume(Subject::Served, Layout::Stripe1, 7, 29);
    cut_volume(Subject::Served, Layout::Logged, 5, 43);
    cut_volume(Subject::Served, Layout::Mirror2, 4, 61);
    cut_volume(Subject::Served, Layout::Raidz1x3, 9, 127);
}

/// A door that answers for what it has not done has to be found out: else nothing is judged.
#[test]
fn a_door_that_lies_is_found_out() {
    let recorded = record(Layout::Stripe1, Subject::Deceived, 7, 60).unwrap_or_else(|why| panic!("{why}"));
    let report = try_cuts(&recorded, Share { every: 11, rest: 0 }, 1000);
    assert!(report.verdict.failed > 0, "{report:?}");
}
