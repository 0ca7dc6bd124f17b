//! Lives by the thousand: on every processor, with their progress told, and OpenZFS's zdb to judge what some of them leave.
//!
//! A life is named by its seed: `torture life SEED` lives it again and tells every step.

use crate::lives::{Ended, Report, live, shape_of, story};
use crate::outcome::Verdict;
use exec::{Executor, Mutex};
use interop::oracle::Oracle;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Steps of a life: few enough for many of them.
pub const LIFE_STEPS: u64 = 16;
/// Seeds of a campaign lie between its number and the next.
const SEEDS: u64 = 1_000_000;
/// Between two lines that tell the progress.
const TOLD_EVERY: Duration = Duration::from_secs(5);
/// While one life waits for zdb, another goes on.
const THREADS_MORE: usize = 1;

/// What is to be lived.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// Its number, from which all seeds follow.
    pub seed: u64,
    /// How many lives.
    pub programs: u64,
    /// One of so many is judged by zdb; 0 for none.
    pub judged_every: u64,
    /// Threads at once.
    pub threads: usize,
}

impl Campaign {
    /// One of each `judged_every`, another one each time: every shape has its turn.
    fn is_judged(&self, program: u64) -> bool {
        self.judged_every > 0 && program % self.judged_every == program / self.judged_every % self.judged_every
    }
}

/// How far it is.
struct Progress {
    began: Instant,
    told: Instant,
    next: u64,
    done: u64,
    judged: u64,
    verdict: Verdict,
    report: Report,
}

impl Progress {
    fn tell(&mut self, programs: u64) {
        self.told = Instant::now();
        let rate = self.done as f64 / self.began.elapsed().as_secs_f64().max(1e-3);
        let left = (programs - self.done) as f64 / rate.max(1e-3);
        eprintln!(
            "{} of {programs} lives, {} judged by zdb, {} failed; {rate:.0} a second, {:.0}:{:02.0} to go",
            self.done,
            self.judged,
            self.verdict.failed,
            (left / 60.0).floor(),
            left % 60.0
        );
    }
}

/// Lives all of it; prints what failed at once, with the story of the first.
pub fn run(campaign: Campaign) -> Verdict {
    let judge = Arc::new((campaign.judged_every > 0).then(|| Oracle::find(&interop::root())));
    let now = Instant::now();
    let (verdict, report) = (Verdict::default(), Report::default());
    let progress = Arc::new(Mutex::new(Progress { began: now, told: now, next: 0, done: 0, judged: 0, verdict, report }));
    let threads = exec::Pool::new(1);
    let start = |_| {
        let (progress, judge) = (progress.clone(), judge.clone());
        threads.spawn_operation("lives", Box::new(move || work(&campaign, &progress, (*judge).as_ref())))
    };
    let handles: Vec<_> = (0..campaign.threads + THREADS_MORE).map(start).collect();
    handles.into_iter().for_each(exec::OperationHandle::join);
    let mut progress = progress.lock();
    progress.tell(campaign.programs);
    println!("seed {}: {}; {} judged by zdb", campaign.seed, progress.report, progress.judged);
    if let Ok(folder) = interop::scratch() {
        let _ = std::fs::remove_dir_all(folder);
    }
    std::mem::take(&mut progress.verdict)
}

/// One thread's part: whatever life is next.
fn work(campaign: &Campaign, progress: &Mutex<Progress>, judge: Option<&Oracle>) {
    loop {
        let program = {
            let mut progress = progress.lock();
            progress.next += 1;
            progress.next - 1
        };
        if program >= campaign.programs {
            return;
        }
        let seed = campaign.seed * SEEDS + program;
        let judge = judge.filter(|_| campaign.is_judged(program));
        let (mut verdict, mut report) = (Verdict::default(), Report::default());
        verdict.trial(&format!("{} seed {seed}", shape_of(seed)), || {
            let ended = live(shape_of(seed), seed, LIFE_STEPS)?;
            report = ended.report.clone();
            judge.map_or(Ok(()), |judge| real_engine_agrees(judge, &ended, seed))
        });
        let is_first = {
            let mut progress = progress.lock();
            let is_first = progress.verdict.failed == 0 && verdict.failed != 0;
            progress.done += 1;
            progress.judged += u64::from(judge.is_some());
            progress.report.add(&report);
            progress.verdict.add(verdict.clone());
            if progress.told.elapsed() > TOLD_EVERY {
                progress.tell(campaign.programs);
            }
            is_first
        };
        verdict.failures.iter().for_each(|failure| eprintln!("FAILED {failure}\n  again with: torture life {seed}"));
        if is_first {
            let _ = retell(seed, None);
        }
    }
}

/// Lives one life again and tells its steps; leaves its devices in a folder, if one is given.
pub fn retell(seed: u64, folder: Option<&Path>) -> Verdict {
    let mut verdict = Verdict::default();
    eprintln!("the life {seed} on {}:", shape_of(seed));
    verdict.trial(&format!("{} seed {seed}", shape_of(seed)), || {
        let ended = story(shape_of(seed), seed, LIFE_STEPS, &|step| eprintln!("  {step}"))?;
        folder.map_or(Ok(()), |folder| ended.write_to(folder)).map_err(|error| error.to_string())
    });
    verdict
}

/// OpenZFS's zdb reads the whole pool and finds no error and no leak.
fn real_engine_agrees(oracle: &Oracle, ended: &Ended, seed: u64) -> Result<(), String> {
    let memory = PathBuf::from("/dev/shm");
    let base = if memory.is_dir() { memory } else { interop::scratch().map_err(|error| error.to_string())? };
    let folder = base.join(format!("zirconia-life-{}-{seed}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let written = ended.write_to(&folder).map_err(|error| error.to_string());
    let judged = written.and_then(|()| oracle.zdb_clean(&folder, "tank").map_err(|error| error.to_string()));
    let _ = std::fs::remove_dir_all(&folder);
    judged
}
