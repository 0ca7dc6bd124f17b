//! The project's chores: `cargo xtask ci | quick | layers | tidy | commands | interop | torture | campaign | kills | takeover | targets | bounds | cli-table | mutants | fuzz | zts`. One command (`ci`) is the whole gate.
#![forbid(unsafe_code)]

mod circles;
mod dependencies;
mod gate;
mod layers;
mod mutants;
mod quick;
mod source;
mod tidy;
mod walks;
mod words;
mod zts;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let root = root();
    let done = match words.as_slice() {
        ["ci"] => gate::run_all(&root, false),
        ["ci", "--strict"] => gate::run_all(&root, true),
        [gate::STEPS] => gate::steps(&root),
        ["quick"] => quick::check(&root, "HEAD"),
        ["quick", base] => quick::check(&root, base),
        ["layers"] => structure(&root),
        ["tidy"] => tidy::check(&root),
        ["tidy", "--bless"] => tidy::bless(&root),
        ["commands", rest @ ..] => commands(&root, rest),
        ["interop", rest @ ..] => interop(&root, rest),
        ["torture", rest @ ..] => program(&root, "torture", rest),
        // Not a release program: overflows are to be seen.
        ["fuzz", rest @ ..] => run(&root, "cargo", &[&["run", "--locked", "--quiet", "-p", "fuzz", "--"], rest].concat()),
        ["campaign", rest @ ..] => commands(&root, &[&["campaign"], rest].concat()),
        ["kills", rest @ ..] => commands(&root, &[&["kills"], rest].concat()),
        ["takeover", rest @ ..] => commands(&root, &[&["takeover"], rest].concat()),
        ["targets", rest @ ..] => commands(&root, &[&["targets"], rest].concat()),
        ["bounds", rest @ ..] => commands(&root, &[&["bounds"], rest].concat()),
        ["cli-table", rest @ ..] => commands(&root, &[&["cli-table"], rest].concat()),
        ["mutants", rest @ ..] => mutants::check(&root, rest),
        ["zts", rest @ ..] => suite(&root, rest),
        _ => {
            Err("usage: cargo xtask ci [--strict] | quick [BASE] | layers | tidy [--bless] | commands [NAME] | interop write|read [--all] | interop crashed [POOLS] | torture [log | volumes | nbd | receives | direct | hostile | lives | life | zia | liars] [SEED] | \
                 campaign [--list] [--case NAME] [--seed N] | kills [--keep] [N] [--seed N] | takeover [N] [--seed N] | targets [CUTS [KILLS]] [--seed N] | bounds [FILE_SYSTEMS [ROUNDS]] | cli-table [--bless] [WORD…] | mutants [FILE…] | fuzz [TARGET|all [EXECUTIONS [SEED]] | TARGET FILE…] | zts [-j JOBS] [-t SECONDS] [-o FOLDER] [--no-run] [--bless] [GROUP…]"
                .to_string())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Runs a command in the workspace root; its failure is ours.
fn run(root: &Path, program: &str, args: &[&str]) -> Result<(), String> {
    run_with(root, program, args, &[])
}

/// Variables of an environment, beside those of this process.
type Env<'a> = &'a [(&'a str, &'a str)];

/// Does [`run`] in an environment.
fn run_with(root: &Path, program: &str, args: &[&str], env: Env<'_>) -> Result<(), String> {
    println!("── {program} {}", args.join(" "));
    let mut command = Command::new(program);
    let status = command
        .args(args)
        .envs(env.iter().copied())
        .current_dir(root)
        .status()
        .map_err(|error| format!("{program} cannot be started: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{program} {} failed ({status})", args.join(" "))) }
}

/// Checks what may depend on what, on what else, and where that comes from.
fn structure(root: &Path) -> Result<(), String> {
    layers::check(root)?;
    circles::check(root)?;
    dependencies::check(root)
}

/// Runs the release programs as users run them.
fn commands(root: &Path, args: &[&str]) -> Result<(), String> {
    program(root, "zirconia-commands", args)
}

/// Runs both directions of the exchange with the real OpenZFS; a quick subset unless `--all` is given.
fn interop(root: &Path, args: &[&str]) -> Result<(), String> {
    program(root, "zirconia-interop", args)
}

/// Runs OpenZFS's own test suite against the release programs, or those in `$ZIRCONIA_BIN`.
fn suite(root: &Path, args: &[&str]) -> Result<(), String> {
    if let Some(programs) = std::env::var_os("ZIRCONIA_BIN") {
        return zts::run(root, Path::new(&programs), args);
    }
    run(root, "cargo", &["build", "--release", "--locked", "--quiet", "--bins"])?;
    zts::run(root, &root.join("target/release"), args)
}

/// Runs a release program. All are built together: alone, each would have other features of the same crates, built once more.
fn program(root: &Path, name: &str, args: &[&str]) -> Result<(), String> {
    run(root, "cargo", &["build", "--release", "--locked", "--quiet", "--bins"])?;
    run(root, &root.join("target/release").join(name).display().to_string(), args)
}
