//! `cargo xtask ci [--strict]`: the whole gate, cheapest checks first. Its last line says what was not run, and why; with `--strict`
//! (`ZIRCONIA_STRICT=1`) nothing may be left out (`test/need`).

use crate::{Env, run, run_with, structure, tidy};
use need::Need;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

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

/// Name of the verb of [`steps`].
pub const STEPS: &str = "ci-steps";

/// Text of the last line of a run.
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

/// Runs the gate's steps.
pub fn steps(root: &Path) -> Result<(), String> {
    if has(root, Need::Rustfmt, "the check of formatting", "fmt")? {
        run(root, "cargo", &["fmt", "--all", "--check"])?;
    }
    structure(root)?;
    tidy::check(root)?;
    let env = if has(root, Need::Clippy, "the lints", "clippy")? { LINTS } else { PLAIN };
    // Programs and tests in one compilation, with assertions: scenarios and exchange run these too, and not the release programs.
    run_with(root, "cargo", &["build", "--workspace", "--all-targets", "--locked"], env)?;
    let program = |name: &str| root.join("target/debug").join(name).display().to_string();
    let (commands, interop) = (program("zirconia-commands"), program("zirconia-interop"));
    let (tests, scenarios) = (["cargo", "test", "--workspace", "--locked"], [commands.as_str()]);
    // One after the other: the first one builds the real engine's tools.
    let (write, read) = ([interop.as_str(), "write"], [interop.as_str(), "read"]);
    side_by_side(root, env, &[&[&tests], &[&scenarios], &[&write, &read]])
}

/// Environment in which compiling takes half as long: without debug information and increments, which nobody needs who does not change a crate
/// again and again.
const PLAIN: Env<'static> = &[NO_INCREMENTS, NO_DEBUG];
const NO_INCREMENTS: (&str, &str) = ("CARGO_INCREMENTAL", "0");
const NO_DEBUG: (&str, &str) = ("CARGO_PROFILE_DEV_DEBUG", "0");

/// Environment in which what is compiled is linted too, and otherwise that without lints: clippy's driver is the compiler of the workspace's crates.
/// Linting by itself would read and check all of them a second time. Whoever uses what was compiled so needs the same environment, or cargo compiles
/// it again.
pub const LINTS: Env<'static> =
    &[NO_INCREMENTS, NO_DEBUG, ("RUSTC_WORKSPACE_WRAPPER", "clippy-driver"), ("CLIPPY_ARGS", "-Dwarnings__CLIPPY_HACKERY__")];

/// Runs series of commands at once and prints what each command printed when it has ended. All of them are run, also when one failed: one run shows
/// every failure.
fn side_by_side(root: &Path, env: Env<'_>, series: &[&[&[&str]]]) -> Result<(), String> {
    let failures: Vec<String> = std::thread::scope(|scope| {
        let run = |commands: &[&[&str]]| commands.iter().filter_map(|words| told_at_the_end(root, env, words).err()).collect::<Vec<_>>();
        let started: Vec<_> = series.iter().map(|commands| scope.spawn(move || run(commands))).collect();
        started.into_iter().flat_map(|one| one.join().unwrap_or_else(|_| vec!["a step panicked".into()])).collect()
    });
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
}

/// Runs a command, and prints its output in one piece.
fn told_at_the_end(root: &Path, env: Env<'_>, words: &[&str]) -> Result<(), String> {
    let line = words.join(" ");
    let (program, args) = words.split_first().ok_or("an empty command line")?;
    let begun = Instant::now();
    let said = tempfile().map_err(|error| format!("a file for what {line} prints: {error}"))?;
    let copy = |file: &File| file.try_clone().map_err(|error| format!("{line}: {error}"));
    let mut command = Command::new(program);
    command.args(args).envs(env.iter().copied()).current_dir(root).stdin(Stdio::null()).stdout(copy(&said)?).stderr(copy(&said)?);
    let status = command.status().map_err(|error| format!("{line} cannot be started: {error}"))?;
    let mut out = std::io::stdout().lock();
    let shown = writeln!(out, "── {line} ({} s)", begun.elapsed().as_secs())
        .and_then(|()| (&said).seek(SeekFrom::Start(0)))
        .and_then(|_| std::io::copy(&mut &said, &mut out));
    shown.map_err(|error| format!("what {line} printed cannot be shown: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{line} failed ({status})")) }
}

/// Makes a file without a name, that goes when it is closed.
fn tempfile() -> std::io::Result<File> {
    let path = std::env::temp_dir().join(format!("zirconia-gate-{}-{:?}", std::process::id(), std::thread::current().id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
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
