//! `zirconia-fuzz [TARGET [EXECUTIONS [SEED]]]`: feeds decoders what others might have written; all of them, quickly, without a name.
//! `zirconia-fuzz TARGET FILE…`: feeds it files, such as those that a run kept.
//!
//! Inputs that crash or hang are kept in `$FUZZ_KEEP`, or the system's folder for temporary files.
#![forbid(unsafe_code)]

use fuzz::{TARGETS, Target, by_name, run};
use std::path::PathBuf;
use std::process::ExitCode;

/// Bytes of address space that a run may take: what asks for more fails, and the process with it.
const MEMORY_MAX: u64 = 8 << 30;
const USAGE: &str = "usage: zirconia-fuzz [TARGET [EXECUTIONS [SEED]] | TARGET FILE…]";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let limit = rustix::process::Rlimit { current: Some(MEMORY_MAX), maximum: Some(MEMORY_MAX) };
    if let Err(error) = rustix::process::setrlimit(rustix::process::Resource::As, limit) {
        eprintln!("memory is not limited: {error}");
    }
    // All of them, also behind one that fails.
    let all = |executions: Option<u64>, seed| TARGETS.iter().filter(|target| !report(target, executions, seed)).count() == 0;
    let fine = match words.as_slice() {
        [] => all(None, 1),
        ["all", executions, rest @ ..] => match (executions.parse(), rest.first().map_or(Ok(1), |seed| seed.parse())) {
            (Ok(executions), Ok(seed)) => all(Some(executions), seed),
            _ => return usage(),
        },
        [name, rest @ ..] => match (by_name(name), rest) {
            (Some(target), []) => report(target, None, 1),
            (Some(target), [first, more @ ..]) => match (first.parse(), more.first().map_or(Ok(1), |seed| seed.parse())) {
                (Ok(executions), Ok(seed)) if more.len() < 2 => report(target, Some(executions), seed),
                _ => feed_files(target, rest),
            },
            (None, _) => return usage(),
        },
    };
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn usage() -> ExitCode {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    eprintln!("{USAGE}\ntargets: all {}", names.join(" "));
    ExitCode::FAILURE
}

fn report(target: &'static Target, executions: Option<u64>, seed: u64) -> bool {
    let folder = std::env::var_os("FUZZ_KEEP").map_or_else(std::env::temp_dir, PathBuf::from);
    let outcome = run(target, executions.unwrap_or(target.quick), seed, &folder);
    println!("{:<14} {:>10} executions, {} crashes", target.name, outcome.executions, outcome.crashes);
    outcome.kept.iter().for_each(|path| println!("    {}", path.display()));
    outcome.crashes == 0
}

/// Feeds files to a target; a panic ends the program, with its place.
fn feed_files(target: &Target, files: &[&str]) -> bool {
    files.iter().all(|file| match std::fs::read(file) {
        Ok(input) => {
            (target.feed)(&input);
            println!("{file}: fine");
            true
        }
        Err(error) => {
            eprintln!("{file}: {error}");
            false
        }
    })
}
