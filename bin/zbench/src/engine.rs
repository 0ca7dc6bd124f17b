//! `zbench engine`: the engine without mounts beside OpenZFS's own engine: buffered writes, warm and cold reads, scrubs.
//!
//! The method is that of [`crate::compare`]. Ours may cost 0.9 of the peer's overhead, 0.7 with small records.

use crate::compare::{self, Options, PhaseSpec};
use crate::measure::Verdicts;
use clap::Args as ClapArgs;
use std::process::ExitCode;

/// Bytes of a record below which the bound is stricter.
const SMALL_RECORD: usize = 64 << 10;
const PHASES: [(&str, &str); 4] = [("swrite", "buffered write"), ("swarm", "warm read"), ("scold", "cold read"), ("scrub", "scrub")];

/// What to measure.
#[derive(ClapArgs, Debug)]
pub struct Args {
    #[command(flatten)]
    options: Options,
    /// Record sizes in KiB
    #[arg(long, value_delimiter = ',', default_value = "1024,16")]
    record_kib: Vec<usize>,
}

/// Runs the measurement and prints tables; 2 when a bound was missed.
pub fn run(args: &Args) -> ExitCode {
    let specs = |record: usize| {
        let bound = if record < SMALL_RECORD { 0.7 } else { 0.9 };
        PHASES.iter().map(|&(name, title)| PhaseSpec { name, title, bound }).collect()
    };
    let records: Vec<_> = args.record_kib.iter().map(|kib| (kib << 10, specs(kib << 10))).collect();
    Verdicts::conclude("engine", |verdicts| compare::run(&args.options, &records, verdicts, |_, _| {}))
}
