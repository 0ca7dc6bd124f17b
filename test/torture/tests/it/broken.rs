//! Faulty and damaged devices: what the user loses when these fail is a redundant pool to one bad device, or a wrong answer
//! where an error is due.

use torture::damage::{specimen, try_devices, try_hostile, try_labels, try_uberblocks};
use torture::faults::{Blow, try_faults};
use torture::machine::Layout;
use torture::outcome::Verdict;

fn all_passed(verdict: &Verdict) {
    assert!(verdict.passed > 2, "{verdict}");
    assert_eq!(verdict.failed, 0, "{verdict}");
}

#[test]
fn a_mirror_survives_any_failed_operation() {
    all_passed(&try_faults(Layout::Mirror2, 5, 8, Blow::Error, (5, 0)));
    all_passed(&try_faults(Layout::Mirror2, 5, 8, Blow::Lie, (11, 0)));
}

#[test]
fn raidz_survives_any_failed_operation() {
    all_passed(&try_faults(Layout::Raidz1x3, 5, 8, Blow::Error, (9, 0)));
    all_passed(&try_faults(Layout::Raidz1x3, 5, 8, Blow::CorruptRead, (13, 0)));
}

#[test]
fn a_stripe_stops_with_an_error_and_keeps_what_it_promised() {
    all_passed(&try_faults(Layout::Stripe1, 5, 8, Blow::Error, (5, 0)));
}

#[test]
fn damaged_labels_and_uberblocks_are_passed_over() {
    for layout in [Layout::Stripe1, Layout::Mirror2, Layout::Raidz1x3] {
        let specimen = specimen(layout, 3, 30).expect("made");
        all_passed(&try_labels(&specimen));
        all_passed(&try_uberblocks(&specimen));
    }
}

#[test]
fn whole_devices_may_be_overwritten_or_cut_short() {
    for layout in [Layout::Stripe1, Layout::Mirror2, Layout::Raidz1x3] {
        all_passed(&try_devices(&specimen(layout, 3, 30).expect("made")));
    }
}

#[test]
fn hostile_images_end_in_an_error() {
    all_passed(&try_hostile(&specimen(Layout::Stripe1, 1, 60).expect("made"), 1_001_250, 150));
}
