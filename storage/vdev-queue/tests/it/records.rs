//! The latency promise to whoever reads records that lie on several leaves, beside a healing resilver, in virtual time.

use crate::world::records::{Row, run_row};
use crate::world::table::{deep, ms, rows};
use vdev_queue::{LatencyTarget, Tunables};

/// A read of a record waits for the slowest of its columns. And the resilver must go on: who waits for it is one device away from losing
/// data.
#[test]
fn records_keep_the_promise_beside_a_resilver_that_keeps_its_speed() {
    for (name, row) in rows() {
        let [promised, unbound] = [LatencyTarget::Auto, LatencyTarget::Off].map(|target| run_row(&row, row.leaves as u32, &deep(target)));
        let idle = promised.idle.quantile(0.99);
        let [busy, fault] = [&promised.busy, &unbound.busy].map(|outcome| outcome.quantile(0.99));
        assert!(fault > idle * 3, "{name}: the model shows the fault: p99 {:.3} ms, {:.3} ms idle", ms(fault), ms(idle));
        assert!(busy <= idle * 2, "{name}: p99 {:.3} ms beside the resilver, {:.3} ms without", ms(busy), ms(idle));
        let share = promised.busy.background_mib_s * crate::world::MIB as f64 / row.new_device as f64;
        // With few records it takes longer than this until so many were in time that more is known to be harmless.
        let least = if row.records < 1000.0 { 0.75 } else { 0.85 };
        assert!(share >= least, "{name}: {:.1} % of the new device's bandwidth", share * 100.0);
    }
}

/// A resilver of a small pool ends in a third of a second: it must not have spent it on finding out what it may. And every host is late
/// now and then by itself: that must not hold a resilver back for ever.
#[test]
fn a_short_resilver_has_its_speed_although_leaves_are_late_by_themselves() {
    let times = 280 * crate::world::US;
    for (name, row) in rows().into_iter().filter(|(_, row)| row.records > 1000.0) {
        for (hiccup, seed) in [None, Some((3000, times)), Some((1000, times))].into_iter().flat_map(|hiccup| [(hiccup, 1), (hiccup, 3)]) {
            let row = Row { seconds: [0.17, 0.33], hiccup, seed, ..row.clone() };
            let healed = run_row(&row, row.leaves as u32, &Tunables::default());
            let [idle, busy] = [&healed.idle, &healed.busy].map(|outcome| outcome.quantile(0.99));
            assert!(busy <= idle * 2, "{name}, {hiccup:?}, seed {seed}: p99 {:.3} ms, {:.3} ms without", ms(busy), ms(idle));
            let share = healed.busy.background_mib_s * crate::world::MIB as f64 / row.new_device as f64;
            assert!(share >= 0.9, "{name}, {hiccup:?}, seed {seed}: {:.1} % of the new device's bandwidth", share * 100.0);
        }
    }
}
