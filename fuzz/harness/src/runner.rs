//! Running a target so often: the same number gives the same inputs. A watchdog ends what does not end by itself.

use crate::{Target, mutate};
use exec::SplitMix;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Seconds after which an input hangs.
const HANG_SECONDS: u64 = 20;
/// Number of crashes after which a target is given up.
const CRASHES_MAX: u64 = 10;

/// Outcome of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Number of inputs that were fed.
    pub executions: u64,
    /// Number of inputs that made it panic.
    pub crashes: u64,
    /// Paths where those were kept.
    pub kept: Vec<PathBuf>,
}

/// Number of the input that is being fed, so that the watchdog sees whether it goes on; 0 when there is none.
struct Watch(AtomicU64);

/// Starts the watchdog. A hang cannot be unwound: the process ends, having kept the input.
fn watch(threads: &exec::Exec, name: &'static str, current: Arc<(Watch, exec::Mutex<Vec<u8>>)>, folder: PathBuf) {
    let clock = threads.clone();
    let look = move || {
        let (mut last, mut seconds) = (0, 0);
        loop {
            clock.sleep_ns(Duration::from_secs(1).as_nanos() as u64);
            let now = current.0.0.load(Ordering::Acquire);
            if now == u64::MAX {
                return;
            }
            seconds = if now == last && now != 0 { seconds + 1 } else { 0 };
            last = now;
            if seconds > HANG_SECONDS {
                let path = keep(&folder, name, "hang", &current.1.lock());
                eprintln!("{name}: an input hangs: {}", path.display());
                std::process::exit(3);
            }
        }
    };
    drop(threads.spawn_operation("fuzz-watch", Box::new(look)));
}

fn keep(folder: &Path, name: &str, what: &str, input: &[u8]) -> PathBuf {
    let sum = input.iter().fold(0xcbf2_9ce4_8422_2325u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    let path = folder.join(format!("{what}-{name}-{sum:016x}"));
    if let Err(error) = std::fs::write(&path, input) {
        eprintln!("{}: {error}", path.display());
    }
    path
}

/// Feeds `target` its seeds and `executions` mutations of them, beginning with number `seed`; keeps what makes it panic in `folder`.
pub fn run(target: &'static Target, executions: u64, seed: u64, folder: &Path) -> Outcome {
    let threads: exec::Exec = Arc::new(exec::Pool::new(1));
    let current = Arc::new((Watch(AtomicU64::new(0)), exec::Mutex::new(Vec::new())));
    watch(&threads, target.name, current.clone(), folder.to_path_buf());
    let mut outcome = Outcome::default();
    let seeds = (target.seeds)();
    let mut feed = |input: &[u8]| {
        outcome.executions += 1;
        current.1.lock().clear();
        current.1.lock().extend_from_slice(input);
        current.0.0.store(outcome.executions, Ordering::Release);
        if catch_unwind(AssertUnwindSafe(|| (target.feed)(input))).is_err() {
            outcome.crashes += 1;
            outcome.kept.push(keep(folder, target.name, "crash", input));
        }
        outcome.crashes < CRASHES_MAX
    };
    let goes_on = seeds.iter().all(|input| feed(input));
    for number in 0..if goes_on { executions } else { 0 } {
        let mut random = SplitMix::new(seed.wrapping_mul(1 << 32).wrapping_add(number));
        if !feed(&mutate::mutated(&seeds, &mut random)) {
            break;
        }
    }
    current.0.0.store(u64::MAX, Ordering::Release);
    outcome
}
