//! `zirconia-commands campaign [--list] [--case NAME] [--seed N]`: every operation that takes time, disturbed while it is under way.
//!
//! A case is an operation ([`operations`]) and a disturbance ([`Disturbance`]): the daemon is killed, a device is unplugged or emptied, all
//! I/O fails on one device or on more than the pool can lose. Whatever happens, each command answers within its deadline
//! ([`deadlines`]); when the disturbance is over the pool imports, has every byte that an fsync acknowledged, scrubs without errors, and
//! OpenZFS's own `zdb` finds no leak (in one case of three).

mod case;
pub mod deadlines;
mod operations;
mod pulled;
pub mod writer;

use crate::world::{Failure, Options, World};
use need::Need;
use operations::{OPERATIONS, Operation};
use std::time::Instant;

/// Disturbance of an operation that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// Daemon is killed by `kill -9`.
    Kill,
    /// Device is not there any more, and comes back.
    Unplug,
    /// Block device fails in the kernel, and comes back (a loop device, where there are some).
    Pull,
    /// Device loses everything, and is replaced.
    Empty,
    /// All I/O of a device fails.
    Errors,
    /// All I/O of all devices fails, with `failmode=wait`; then it is cleared.
    Suspend,
    /// All I/O of all devices fails, with `failmode=continue`; then it is cleared.
    Continue,
    /// All I/O of all devices fails, and the pool is given up with `zpool export -f`.
    GiveUp,
    /// Device neither works nor fails, and its I/Os are given up (`zfs_deadman_failmode=continue`).
    Hang,
    /// All devices hang, and the pool is given up with `zpool export -f`.
    HangAll,
}

impl Disturbance {
    const ALL: [Disturbance; 10] = [
        Disturbance::Kill,
        Disturbance::Unplug,
        Disturbance::Pull,
        Disturbance::Empty,
        Disturbance::Errors,
        Disturbance::Suspend,
        Disturbance::Continue,
        Disturbance::GiveUp,
        Disturbance::Hang,
        Disturbance::HangAll,
    ];

    /// Name of the disturbance in a case's.
    fn name(self) -> &'static str {
        match self {
            Disturbance::Kill => "kill",
            Disturbance::Unplug => "unplug",
            Disturbance::Pull => "pull",
            Disturbance::Empty => "empty",
            Disturbance::Errors => "errors",
            Disturbance::Suspend => "suspend",
            Disturbance::Continue => "continue",
            Disturbance::GiveUp => "give-up",
            Disturbance::Hang => "hang",
            Disturbance::HangAll => "hang-all",
        }
    }

    /// True when it needs fault handlers, which an operation without them cannot have.
    fn injects(self) -> bool {
        !matches!(self, Disturbance::Kill | Disturbance::Pull | Disturbance::Empty)
    }

    /// True when it takes more devices than the pool can lose.
    fn suspends(self) -> bool {
        matches!(self, Disturbance::Suspend | Disturbance::Continue | Disturbance::GiveUp)
    }
}

/// Case: an operation and what disturbs it.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    operation: &'static Operation,
    disturbance: Disturbance,
    /// Index of the case among all.
    index: usize,
}

impl Case {
    fn name(&self) -> String {
        format!("{}/{}", self.operation.name, self.disturbance.name())
    }
}

fn cases() -> Vec<Case> {
    let pairs = OPERATIONS.iter().flat_map(|operation| Disturbance::ALL.map(|disturbance| (operation, disturbance)));
    // Devices that all hang take their time, whatever goes on.
    let once = |operation: &Operation, disturbance| disturbance != Disturbance::HangAll || operation.name == "write";
    let possible = pairs.filter(|(operation, disturbance)| operation.injectable || !disturbance.injects());
    let possible = possible.filter(|(operation, disturbance)| once(operation, *disturbance));
    possible.enumerate().map(|(index, (operation, disturbance))| Case { operation, disturbance, index }).collect()
}

/// Names of the cases that run with every test.
const SAMPLE: [&str; 7] = ["write/kill", "write/hang", "resilver/kill", "scrub/errors", "add/suspend", "destroy/give-up", "import/kill"];

/// Runs a few cases, as a scenario.
pub fn sample(world: &World) -> Result<(), Failure> {
    let seed = world.options().seed.unwrap_or(1);
    for case in cases().into_iter().filter(|case| SAMPLE.contains(&case.name().as_str())) {
        let own = World::new(world.options())?;
        case::run(&own, &case, seed).map_err(|failure| format!("      {}\n{failure}", case.name()))?;
    }
    Ok(())
}

/// Wishes of the command line.
struct Wish {
    list: bool,
    names: Vec<String>,
    seed: u64,
}

fn wish(words: impl Iterator<Item = String>) -> Option<Wish> {
    let mut wish = Wish { list: false, names: Vec::new(), seed: 1 };
    let mut words = words;
    while let Some(word) = words.next() {
        match word.as_str() {
            "--list" => wish.list = true,
            "--case" => wish.names.push(words.next()?),
            "--seed" => wish.seed = words.next()?.parse().ok()?,
            _ => return None,
        }
    }
    Some(wish)
}

/// Runs the campaign; false when a case failed, or none was meant.
pub fn main(words: impl Iterator<Item = String>) -> bool {
    let Some(wish) = wish(words) else {
        eprintln!("usage: zirconia-commands campaign [--list] [--case NAME]… [--seed N]");
        return false;
    };
    let meant = |case: &Case| wish.names.is_empty() || wish.names.iter().any(|name| case.name() == *name || case.operation.name == name);
    let wanted: Vec<Case> = cases().into_iter().filter(meant).collect();
    if wish.list {
        wanted.iter().for_each(|case| println!("{}", case.name()));
        return true;
    }
    if let Err(ended) = crate::needs::begins(crate::needs::MOUNTS, "the campaign") {
        return ended;
    }
    let has_loops = match need::lacks(Need::Loops, "campaign: devices that are pulled out") {
        Ok(lacks) => !lacks,
        Err(missing) => {
            println!("FAIL  {missing}");
            return false;
        }
    };
    let mut failed = 0;
    for (number, case) in wanted.iter().enumerate() {
        let begun = Instant::now();
        let place = format!("{}/{} {}", number + 1, wanted.len(), case.name());
        if case.disturbance == Disturbance::Pull && !has_loops {
            println!("skip  {place} (no loop devices)");
            continue;
        }
        match World::new(Options::default()).and_then(|world| case::run(&world, case, wish.seed)) {
            Ok(slowest) => println!("ok    {place} ({:.1} s; {slowest})", begun.elapsed().as_secs_f64()),
            Err(failure) => {
                println!("FAIL  {place}\n{failure}\n      again: cargo xtask campaign --case {} --seed {}", case.name(), wish.seed);
                failed += 1;
            }
        }
    }
    println!("{} cases, {failed} failed", wanted.len());
    failed == 0 && !wanted.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A case that was renamed would silently drop out of every test run.
    #[test]
    fn the_sample_is_of_cases_that_there_are() {
        let names: Vec<String> = cases().iter().map(Case::name).collect();
        for name in SAMPLE {
            assert!(names.iter().any(|known| known == name), "{name}");
        }
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len(), "every name is one case");
    }
}
