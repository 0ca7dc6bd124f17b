//! A short run of every target, with overflows checked; and a target that must be found out, or the runs would prove nothing.

use fuzz::{TARGETS, Target, run};
use std::path::PathBuf;

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("zirconia-fuzz-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

#[test]
fn no_decoder_panics_on_mutations_of_what_is_right() {
    let folder = folder("quick");
    for target in TARGETS {
        let outcome = run(target, target.quick, 1, &folder);
        assert!(outcome.executions > target.quick, "{}: {} executions", target.name, outcome.executions);
        assert_eq!(outcome.crashes, 0, "{}: inputs are in {:?}", target.name, outcome.kept);
    }
    let _ = std::fs::remove_dir_all(folder);
}

/// Target that panics on what no seed has: a number at an edge, behind a magic number that must survive.
static CANARY: Target = Target {
    name: "canary",
    feed: |data| assert!(!(data.starts_with(b"magic") && data.ends_with(&[0xFF; 4])), "the canary sings"),
    seeds: || vec![b"magic and sixteen bytes".to_vec()],
    quick: 20_000,
};

#[test]
fn a_decoder_that_panics_is_found_and_its_input_kept() {
    let folder = folder("canary");
    let (first, again) = (run(&CANARY, CANARY.quick, 1, &folder), run(&CANARY, CANARY.quick, 1, &folder));
    assert!(first.crashes > 0, "{first:?}");
    assert_eq!((first.executions, &first.kept), (again.executions, &again.kept), "the same number gives the same inputs");
    let input = std::fs::read(&first.kept[0]).expect("the input was kept");
    assert!(std::panic::catch_unwind(|| (CANARY.feed)(&input)).is_err(), "the kept input does it again");
    let _ = std::fs::remove_dir_all(folder);
}
