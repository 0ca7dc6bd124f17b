//! Lives by the thousand: on every processor, with their progress told, and OpenZFS's zdb to judge what some of them leave.
//!
//! A life is named by its seed: `torture life SEED` lives it again and tells every step.

use crate::lives::{Ended, Report, live, shape_of, story};
use crate::outcome::Verdict;
use exec::{Executor, Mutex};
use interop::oracle::Oracle;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of steps of a life: few enough for many of them.
pub const LIFE_STEPS: u64 = 16;
/// Number of seeds of a campaign: they lie between its number and the next.
const SEEDS: u64 = 1_000_000;
/// Time between two lines that tell the progress.
const TOLD_EVERY: Duration = Duration::from_secs(5);
/// Time after which lives that go on are named: something does not end.
const LONG: Duration = Duration::from_secs(60);
/// Bytes of buffers that are kept from one life for the next.
const KEPT_BYTES_MAX: usize = 512 << 20;

/// Lives that are to be lived.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// Number of the campaign, from which all seeds follow.
    pub seed: u64,
    /// Number of lives.
    pub programs: u64,
    /// Number of lives of which one is judged by zdb; 0 for none.
    pub judged_every: u64,
    /// Number of threads at once.
    pub threads: usize,
}

impl Campaign {
    fn seed_of(&self, program: u64) -> u64 {
        self.seed * SEEDS + program
    }

    /// True for one life of each `judged_every`, another one each time: every shape has its turn.
    fn is_judged(&self, program: u64) -> bool {
        self.judged_every > 0 && program % self.judged_every == program / self.judged_every % self.judged_every
    }
}

/// Progress of a campaign.
struct Progress {
    began: Instant,
    told: Instant,
    next: u64,
    done: u64,
    judged: u64,
    verdict: Verdict,
    report: Report,
    /// Seeds that are being lived, and the times since when.
    running: BTreeMap<u64, Instant>,
    /// Number of lives by shape, and of those that failed.
    shapes: BTreeMap<String, (u64, u64)>,
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
        for (seed, since) in self.running.iter().filter(|(_, since)| since.elapsed() > LONG) {
            eprintln!("  the life {seed} takes {} s", since.elapsed().as_secs());
        }
    }

    /// Number of the next life, if there is one more.
    fn next(&mut self, campaign: &Campaign) -> Option<u64> {
        let program = Some(self.next).filter(|program| *program < campaign.programs)?;
        self.next += 1;
        self.running.insert(campaign.seed_of(program), Instant::now());
        Some(program)
    }

    /// Notes that a life is over; true when it is the first that failed.
    fn note(&mut self, seed: u64, is_judged: bool, (verdict, report): (&Verdict, &Report)) -> bool {
        let is_first = self.verdict.failed == 0 && verdict.failed != 0;
        self.running.remove(&seed);
        self.done += 1;
        self.judged += u64::from(is_judged);
        self.report.add(report);
        self.verdict.add(verdict.clone());
        let shape = self.shapes.entry(shape_of(seed).to_string()).or_default();
        *shape = (shape.0 + 1, shape.1 + verdict.failed);
        is_first
    }
}

/// Lives all of the campaign; prints what failed at once, with the story of the first.
pub fn run(campaign: Campaign) -> Verdict {
    let oracle = (campaign.judged_every > 0).then(|| Oracle::find(&interop::root()).unwrap_or_else(|missing| panic!("{missing}")));
    let judge = Arc::new(oracle.filter(Oracle::has_zdb));
    let now = Instant::now();
    let progress = Progress {
        began: now,
        told: now,
        next: 0,
        done: 0,
        judged: 0,
        verdict: Verdict::default(),
        report: Report::default(),
        running: BTreeMap::new(),
        shapes: BTreeMap::new(),
    };
    let progress = Arc::new(Mutex::new(progress));
    abd::set_cache_bytes_max(KEPT_BYTES_MAX);
    let threads = exec::Pool::new(1);
    let start = |_| {
        let (progress, judge) = (progress.clone(), judge.clone());
        threads.spawn_operation("lives", Box::new(move || work(&campaign, &progress, (*judge).as_ref())))
    };
    let handles: Vec<_> = (0..campaign.threads).map(start).collect();
    handles.into_iter().for_each(exec::OperationHandle::join);
    let mut progress = progress.lock();
    progress.tell(campaign.programs);
    println!("seed {}: {}; {} judged by zdb", campaign.seed, progress.report, progress.judged);
    progress.shapes.iter().for_each(|(shape, (lives, failed))| println!("  {shape:<16} {lives} lives, {failed} failed"));
    if let Ok(folder) = interop::scratch() {
        let _ = std::fs::remove_dir_all(folder);
    }
    std::mem::take(&mut progress.verdict)
}

/// Does one thread's part: whatever life is next.
fn work(campaign: &Campaign, progress: &Mutex<Progress>, judge: Option<&Oracle>) {
    loop {
        let Some(program) = progress.lock().next(campaign) else { return };
        let seed = campaign.seed_of(program);
        let judge = judge.filter(|_| campaign.is_judged(program));
        let (mut verdict, mut report) = (Verdict::default(), Report::default());
        verdict.trial(&format!("{} seed {seed}", shape_of(seed)), || {
            let ended = live(shape_of(seed), seed, LIFE_STEPS)?;
            report = ended.report.clone();
            judge.map_or(Ok(()), |judge| real_engine_agrees(judge, &ended, seed))
        });
        verdict.failures.iter().for_each(|failure| eprintln!("FAILED {failure}\n  again with: torture life {seed}"));
        let is_first = {
            let mut progress = progress.lock();
            let is_first = progress.note(seed, judge.is_some(), (&verdict, &report));
            if progress.told.elapsed() > TOLD_EVERY {
                progress.tell(campaign.programs);
            }
            is_first
        };
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

/// Has OpenZFS's zdb read the whole pool, which must have no error and no leak.
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
