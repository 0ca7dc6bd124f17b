//! What the program says and how it ends where the machine lacks what a scenario needs: a `PATH` without `losetup` has no loop devices.

use std::process::{Command, Output};

const SCENARIO: &str = "mounts: killed while it waits for itself";

fn run(strict: &str, notes: &std::path::Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zirconia-commands"));
    command.arg(SCENARIO).env("PATH", "/nonexistent").env(need::STRICT, strict).env(need::NOT_RUN, notes);
    command.output().expect("the program starts")
}

/// If this fails, a gate that is to leave nothing out is green without having mounted, killed or judged anything.
#[test]
fn what_is_missing_is_a_failure_where_it_must_be_there() {
    let notes = std::env::temp_dir().join(format!("zirconia-strict-test-{}", std::process::id()));
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let strict = run("1", &notes);
    let said = text(&strict);
    assert!(!strict.status.success() && said.contains("0 passed, 1 failed, 0 skipped"), "{said}");
    assert!(said.contains(SCENARIO) && said.contains(" needs ") && said.contains("How to get it: "), "{said}");
    assert!(!notes.exists(), "what failed was not left out");
    for strict in ["", "0", "zdb"] {
        let lenient = run(strict, &notes);
        assert!(lenient.status.success() && text(&lenient).contains("0 passed, 0 failed, 1 skipped"), "{}", text(&lenient));
        let noted = std::fs::read_to_string(&notes).expect("it is noted");
        assert!(need::summary(&noted).starts_with(&format!("not run: {SCENARIO}, without ")), "{noted}");
        std::fs::remove_file(&notes).expect("removed");
    }
    let misspelt = run("zbd", &notes);
    assert!(!misspelt.status.success() && text(&misspelt).contains("names `zbd`"), "{}", text(&misspelt));
}
