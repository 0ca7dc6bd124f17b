//! `cargo xtask ci [--strict]`: the whole gate, cheapest checks first. Its last line says what was not run, and why; with `--strict`
//! (`ZIRCONIA_STRICT=1`) nothing may be left out (`test/need`).

use crate::{commands, interop, run, structure, tidy};
use need::Need;
use std::path::Path;
use std::process::Command;

/// Runs the steps in a process whose children note what they leave out, and says at the end what that was, however they ended.
pub fn run_all(root: &Path, is_strict: bool) -> Result<(), String> {
    if !is_strict {
        need::asked(&std::env::var(need::STRICT).unwrap_or_default()).map_err(|wrong| wrong.to_string())?;
    }
    let notes = std::env::temp_dir().join(format!("zirconia-not-run-{}", std::process::id()));
    std::fs::write(&notes, "").map_err(|error| format!("{}: {error}", notes.display()))?;
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut steps = Command::new(own);
    steps.arg(STEPS).current_dir(root).env(need::NOT_RUN, &notes);
    if is_strict {
        steps.env(need::STRICT, "1");
    }
    let status = steps.status();
    let noted = std::fs::read_to_string(&notes).unwrap_or_default();
    let _ = std::fs::remove_file(&notes);
    let passed = status.as_ref().is_ok_and(std::process::ExitStatus::success);
    println!("── {}", last_line(passed, &noted));
    if passed { Ok(()) } else { Err("the gate failed".into()) }
}

/// The verb of [`steps`].
pub const STEPS: &str = "ci-steps";

/// What stands at the end of a run.
fn last_line(passed: bool, noted: &str) -> String {
    let summary = need::summary(noted);
    match (passed, noted.is_empty()) {
        (true, _) => summary,
        (false, true) => "not run: what comes after the failure".into(),
        (false, false) => format!("{summary}; and what comes after the failure"),
    }
}

/// True when cargo has the subcommand, or when it may be left out that `what` does.
fn has(root: &Path, need: Need, what: &str, subcommand: &str) -> Result<bool, String> {
    let output = Command::new("cargo").args([subcommand, "--version"]).current_dir(root).output();
    if output.is_ok_and(|output| output.status.success()) {
        return Ok(true);
    }
    need::missing(need, what, format!("cargo {subcommand} is not installed")).map_err(|missing| missing.to_string())?;
    Ok(false)
}

/// The gate's steps.
pub fn steps(root: &Path) -> Result<(), String> {
    if has(root, Need::Rustfmt, "the check of formatting", "fmt")? {
        run(root, "cargo", &["fmt", "--all", "--check"])?;
    }
    structure(root)?;
    tidy::check(root)?;
    if has(root, Need::Clippy, "the lints", "clippy")? {
        run(root, "cargo", &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])?;
    }
    run(root, "cargo", &["test", "--workspace", "--locked"])?;
    run(root, "cargo", &["build", "--release", "--locked", "--bins"])?;
    commands(root, &[])?;
    interop(root, &["write"])?;
    interop(root, &["read"])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run that stopped early and says that everything was run would be believed.
    #[test]
    fn a_gate_that_failed_did_not_run_everything() {
        assert_eq!(last_line(true, ""), "everything was run");
        assert_eq!(last_line(false, ""), "not run: what comes after the failure");
        let said = last_line(false, "root\tone\n");
        assert!(said.starts_with("not run: one, without root") && said.ends_with("; and what comes after the failure"), "{said}");
    }
}
