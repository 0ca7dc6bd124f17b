//! A provider that goes bad while a pool is written: what users lose when these fail is data that they were told is safe.

use torture::liars::{campaign, cases};

/// Every manner at every operation, few blocks each (`torture liars` writes more).
#[test]
fn no_provider_costs_a_block() {
    let verdict = campaign(96, 1, 0);
    assert_eq!((verdict.passed, verdict.failed), (cases().len() as u64, 0), "{verdict}");
}
