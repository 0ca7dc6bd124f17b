//! `zbench direct`: Direct I/O of the engine beside the peer's and beside our own buffered path, without mounts.
//!
//! The method is that of [`crate::compare`], on an object larger than the cache and the dirty limit. Direct overhead may be half of the peer's, buffered 0.7 of it; direct throughput must be
//! 1.5 × our own buffered throughput, with as many threads (`--streams`) on both paths; no byte may be copied between buffers, and every byte must have gone the direct path.

use crate::compare::{self, Options, PhaseSpec, Phases};
use crate::measure::Verdicts;
use clap::Args as ClapArgs;
use std::process::ExitCode;

const PHASES: [PhaseSpec; 4] = [
    PhaseSpec { name: "swrite", title: "buffered write", bound: 0.7 },
    PhaseSpec { name: "scold", title: "buffered read", bound: 0.7 },
    PhaseSpec { name: "dwrite", title: "direct write", bound: 0.5 },
    PhaseSpec { name: "dread", title: "direct read", bound: 0.5 },
];
const SPEEDUP_MIN: f64 = 1.5;
/// Number of copies per byte that round to none.
const COPIES_MAX: f64 = 0.01;
const DIRECT_MIN: f64 = 0.99;

/// What to measure.
#[derive(ClapArgs, Debug)]
pub struct Args {
    #[command(flatten)]
    options: Options,
    /// Record sizes in KiB
    #[arg(long, value_delimiter = ',', default_value = "1024,128")]
    record_kib: Vec<usize>,
}

fn judge(phases: &Phases, verdicts: &mut Verdicts) {
    for (what, buffered, direct) in [("write", "swrite", "dwrite"), ("read", "scold", "dread")] {
        let (Some(buffered), Some(direct)) = (phases.get(buffered), phases.get(direct)) else { continue };
        let speedup = direct.rate.median() / buffered.rate.median();
        let (copies, share) = (direct.copies.median(), direct.direct.median());
        println!(
            "  direct {what}: {speedup:.2} × our buffered (bound {SPEEDUP_MIN}) {}; {copies:.3} copies per byte {}; {:.1} % direct {}",
            verdicts.judge(speedup >= SPEEDUP_MIN),
            verdicts.judge(copies <= COPIES_MAX),
            share * 100.0,
            verdicts.judge(share >= DIRECT_MIN)
        );
    }
}

/// Runs the measurement and prints tables; 2 when a bound was missed.
pub fn run(args: &Args) -> ExitCode {
    let records: Vec<_> = args.record_kib.iter().map(|kib| (kib << 10, PHASES.to_vec())).collect();
    Verdicts::conclude("direct", |verdicts| compare::run(&args.options, &records, verdicts, judge))
}
