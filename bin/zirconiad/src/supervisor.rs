//! Starts the daemon again when it dies (`--background` only; service managers do that themselves): what was mounted comes back without
//! anybody typing a command. It ends when the daemon ended in order, was told to end, or dies again and again.
//!
//! A daemon that another one is to replace leaves its mounts here until the other goes on with them ([`crate::keeper`]). So does one that dies,
//! where mounts are kept ([`crate::held`]): then the next one begins at once.

use crate::held::Death;
use crate::keeper::Kept;
use crate::line;
use crate::place::{self, START};
use control_api::{Interlude, StateDir};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::fs::File;
use std::future::pending;
use std::os::unix::net::UnixDatagram as StdDatagram;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tokio::net::UnixDatagram;
use tokio::signal::unix::{SignalKind, signal};

/// Option, not for people, by which this process is told from the one that was asked for a daemon ([`crate::launch`]).
pub const STAYS: &str = "--watching";
/// Pauses before the first, second, … start after a death; after as many deaths within [`MEMORY`] it is left alone.
const PAUSES: [Duration; 5] =
    [Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(8), Duration::from_secs(30)];
const MEMORY: Duration = Duration::from_secs(600);
/// Time that the process of a daemon may take to end after its descriptors are closed, before mounts are cut off: one of its threads may wait for
/// a mount of its own.
const LAST: Duration = Duration::from_secs(10);
/// Pause between looks whether threads are left of a daemon that was killed.
const LOOK: Duration = Duration::from_secs(1);
/// Numbers of signals by which somebody ends a process that is to stay so.
const ORDERED: [i32; 2] = [2, 15];

/// Verdict on an end.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// End with this code.
    End(u8),
    /// Start again after the pause.
    Again(Duration),
}

/// Times of the deaths that count.
#[derive(Default)]
struct Deaths(Vec<Instant>);

impl Deaths {
    fn judge(&mut self, status: ExitStatus, is_told: bool, is_waited_for: bool, now: Instant) -> Verdict {
        let Some(number) = status.signal() else { return Verdict::End(status.code().unwrap_or(1) as u8) };
        if is_told || ORDERED.contains(&number) {
            return Verdict::End(128 + number as u8);
        }
        // Who waits has the deaths counted too: `Held::died`.
        if is_waited_for {
            tracing::error!("zirconiad was ended by signal {number}; its mounts wait for the next one");
            return Verdict::Again(Duration::ZERO);
        }
        self.0.retain(|death| now.duration_since(*death) < MEMORY);
        let Some(pause) = PAUSES.get(self.0.len()) else {
            tracing::error!("zirconiad died {} times within {} minutes: it is not started again", PAUSES.len() + 1, MEMORY.as_secs() / 60);
            return Verdict::End(128 + number as u8);
        };
        self.0.push(now);
        tracing::error!("zirconiad was ended by signal {number}; it starts again in {} ms", pause.as_millis());
        Verdict::Again(*pause)
    }
}

/// Runs the daemon until it ends for good, and this process with it.
pub fn run(state: &StateDir) -> ! {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let code = match runtime {
        Ok(runtime) => runtime.block_on(watch(state)),
        Err(error) => Err(error),
    };
    let code = code.unwrap_or_else(|error| {
        crate::complain(&format!("{START}: {error}"));
        1
    });
    std::process::exit(i32::from(code))
}

async fn watch(state: &StateDir) -> std::io::Result<u8> {
    let mut ends = signal(SignalKind::child())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let (mut deaths, mut is_told) = (Deaths::default(), false);
    let (mut kept, mut program) = (Kept::default(), Program::default());
    let mut child = Daemon::start(&program, &kept)?;
    // Process that signed the lock last.
    let mut signed = None;
    // What the daemon says before it has its log is for whoever started it; this process has nothing to say to them.
    let _ = rustix::process::setsid();
    let log = service::trust::log(&state.log()).map_err(|why| std::io::Error::other(why.to_string()));
    service::take_log(&log.or_else(|_| std::fs::File::options().write(true).open("/dev/null"))?)?;
    // A word that the variable cannot have is for the daemon to refuse.
    logging::tell(logging::wish().unwrap_or_default());
    loop {
        tokio::select! {
            _ = ends.recv() => {}
            // The daemon says what it makes of its own.
            _ = hangup.recv() => {}
            _ = terminate.recv() => is_told = tell(&child.process),
            _ = interrupt.recv() => is_told = tell(&child.process),
            () = child.speaks() => {}
            () = at(kept.stuck()) => child.give_up(&mut kept, &program),
            () = at(kept.held.deadline()) => {
                tracing::error!("the next daemon did not go on with all mounts in time: what is left is cut off");
                kept.held.clear_waiting();
            }
            // It was told to the one before, which had left already.
            () = tokio::time::sleep(LOOK), if is_told && !kept.is_waiting() => is_told = tell(&child.process),
            () = tokio::time::sleep(LOOK), if kept.held.has_any() && child.left.is_none() => child.look(),
            () = at(child.last().filter(|_| kept.held.has_any())) => {
                tracing::error!("the daemon does not end, perhaps it waits for a mount of its own: all are cut off");
                kept.held.clear();
            }
        }
        child.hear(&mut kept);
        let Some(status) = child.process.try_wait()? else { continue };
        // What it said last.
        child.hear(&mut kept);
        kept.renew(Instant::now());
        let next = kept.ended(Death::of(status), Instant::now());
        let is_handed = next.is_some();
        let pause = match program.follow(next, kept.is_waiting() && !is_told) {
            true => {
                if !is_handed {
                    // The program before may be one that holds nothing.
                    kept.held.clear();
                }
                Duration::ZERO
            }
            false => match deaths.judge(status, is_told, kept.held.is_waiting(), Instant::now()) {
                Verdict::End(code) => return Ok(code),
                Verdict::Again(pause) => pause,
            },
        };
        let interlude = Interlude { process: child.process.id(), deaths: deaths.0.len(), pause_ms: pause.as_millis() as u64 };
        if !rest(state, &interlude, [&mut terminate, &mut interrupt]).await {
            return Ok(0);
        }
        // A command started one meanwhile, and may have stopped it; or the state directory is gone.
        let owner = place::owner(state);
        signed = owner.filter(|owner| *owner == child.process.id()).or(signed);
        if !kept.has_lock() && (owner.is_none() || owner != signed) {
            return Ok(0);
        }
        child = next_daemon(&mut program, &kept)?;
    }
}

/// Lets the pause before the next start pass, in which commands can read that one comes; false when this process is told to end meanwhile.
async fn rest(state: &StateDir, interlude: &Interlude, ends: [&mut tokio::signal::unix::Signal; 2]) -> bool {
    let _notice = if interlude.pause_ms == 0 { None } else { Notice::put(state, interlude) };
    let [terminate, interrupt] = ends;
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(interlude.pause_ms)) => true,
        _ = terminate.recv() => false,
        _ = interrupt.recv() => false,
    }
}

/// Notice in the state directory that a daemon is started again soon: true as long as somebody holds its lock, and it goes with its holder.
struct Notice {
    path: PathBuf,
    _lock: File,
}

impl Notice {
    /// Puts the notice there; None where it cannot be: nobody depends on it.
    fn put(state: &StateDir, interlude: &Interlude) -> Option<Notice> {
        let path = state.interlude();
        let (mut lock, is_ours) = service::trust::lock(&path).ok()?;
        if !is_ours {
            return None;
        }
        lock.set_len(0).ok()?;
        serde_json::to_writer(&mut lock, interlude).ok()?;
        Some(Notice { path, _lock: lock })
    }
}

impl Drop for Notice {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Starts the next daemon: of the programs that it may be the first that can be started.
fn next_daemon(program: &mut Program, kept: &Kept) -> std::io::Result<Daemon> {
    loop {
        match Daemon::start(program, kept) {
            Err(error) if program.now.is_some() => {
                tracing::error!("{} cannot be started: {error}; the program before it goes on", program.path());
                program.step_back();
            }
            started => return started,
        }
    }
}

/// Waits until that time; for ever where there is none.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => pending().await,
    }
}

/// Program of the daemon.
#[derive(Default)]
struct Program {
    /// Path that was asked for; None for that of this process.
    now: Option<PathBuf>,
    before: Option<PathBuf>,
    /// True while it has not gone on with what the one before left.
    is_tried: bool,
}

impl Program {
    /// Follows the end of a daemon; true when the next one is to begin at once. That is the one which was asked for, or when mounts wait for it
    /// and it ended without them, the one before, once.
    fn follow(&mut self, next: Option<PathBuf>, is_waited_for: bool) -> bool {
        if let Some(next) = next {
            tracing::info!("{} replaces the daemon", next.display());
            self.before = self.now.replace(next);
            self.is_tried = true;
            return true;
        }
        if is_waited_for && std::mem::take(&mut self.is_tried) {
            tracing::error!("{} ended before it went on with the mounts: the program before it does", self.path());
            self.now = self.before.take();
            return true;
        }
        self.is_tried &= is_waited_for;
        false
    }

    /// Goes back from one that cannot be started.
    fn step_back(&mut self) {
        self.now = self.before.take();
        self.is_tried = false;
    }

    fn path(&self) -> String {
        self.now.as_ref().map_or_else(|| "zirconiad".to_string(), |path| path.display().to_string())
    }
}

/// Daemon that was started.
struct Daemon {
    process: Child,
    /// Line to the daemon; None when nobody is at its other end any more.
    line: Option<UnixDatagram>,
    /// Time at which the daemon's end was closed, or it was killed.
    left: Option<Instant>,
    /// True when it has a group of its own, with whatever it started.
    has_group: bool,
    /// True when it was killed because it did not get on.
    is_given_up: bool,
}

impl Daemon {
    fn start(program: &Program, kept: &Kept) -> std::io::Result<Daemon> {
        let (ours, theirs) = line::pair()?;
        let process = start(program, theirs)?;
        let (words, speaker) = (kept.words()?, ours.try_clone()?);
        // It waits until the daemon has heard, or is gone.
        let speak = move || words.iter().try_for_each(|word| line::say(&speaker, word));
        std::thread::Builder::new().spawn(speak)?;
        let line = StdDatagram::from(ours);
        line.set_nonblocking(true)?;
        Ok(Daemon { process, line: Some(UnixDatagram::from_std(line)?), left: None, has_group: program.is_tried, is_given_up: false })
    }

    /// Kills the process, which was to go on with mounts and does not get on, with whatever it started: nobody else could go on, and programs
    /// would wait for ever. The one before has another try; where there is none, or the process stays, the mounts are cut off.
    fn give_up(&mut self, kept: &mut Kept, program: &Program) {
        let (path, number) = (program.path(), self.process.id());
        let goes_on = program.is_tried && !self.is_given_up;
        let next = if goes_on { "the program before it goes on" } else { "the mounts are cut off" };
        tracing::error!("{path}, process {number}, did not go on with the mounts in time: it is killed, {next}");
        if let Some(process) = i32::try_from(number).ok().and_then(Pid::from_raw) {
            let _ = if self.has_group { kill_process_group(process, Signal::KILL) } else { kill_process(process, Signal::KILL) };
        }
        self.is_given_up = true;
        if goes_on { kept.renew(Instant::now()) } else { kept.clear_waiting() }
    }

    /// Waits until the daemon has said something.
    async fn speaks(&self) {
        match &self.line {
            Some(line) => drop(line.readable().await),
            None => pending().await,
        }
    }

    /// Notes that it was killed, when threads of it are left: nobody is told of that, and they keep its descriptors.
    fn look(&mut self) {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap_or_default();
        if stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')) {
            self.left.get_or_insert_with(Instant::now);
        }
    }

    /// Time until which its process should have ended, once its descriptors are closed.
    fn last(&self) -> Option<Instant> {
        self.left.map(|left| left + LAST)
    }

    /// Hears what the daemon has said.
    fn hear(&mut self, kept: &mut Kept) {
        let Some(line) = &self.line else { return };
        // What is there counts also when the runtime does not know of it yet; the second look is for the runtime.
        let mut heard = kept.hear(line.as_fd());
        let _ = line.try_io(tokio::io::Interest::READABLE, || {
            if matches!(heard, Ok(false)) {
                heard = kept.hear(line.as_fd());
            }
            if matches!(heard, Ok(false)) { Err(std::io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        match heard {
            Ok(false) => {}
            Ok(true) => {
                self.line = None;
                self.left = Some(Instant::now());
            }
            Err(error) => {
                tracing::error!("what the daemon says of its mounts is not understood: {error}");
                self.line = None;
            }
        }
    }
}

/// Passes an order to end on.
fn tell(child: &Child) -> bool {
    let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    process.is_some_and(|process| kill_process(process, Signal::TERM).is_ok())
}

/// Path of this program, also when its file was replaced.
pub fn own_program() -> PathBuf {
    std::env::current_exe().ok().filter(|path| path.exists()).unwrap_or_else(|| "/proc/self/exe".into())
}

/// Starts a daemon, with its end of the line as its standard input. One that is tried has a group of its own: what it starts could keep the line,
/// and with it the connections that were sent.
fn start(program: &Program, line: OwnedFd) -> std::io::Result<Child> {
    let start = |path: &Path, line: OwnedFd| {
        let mut command = Command::new(path);
        if program.is_tried {
            command.process_group(0);
        }
        // The program may be an older one.
        let words = std::env::args_os().skip(1).filter(|word| *word != STAYS);
        command.args(words).arg("--supervised").stdin(Stdio::from(line)).spawn()
    };
    match program.now.as_deref() {
        Some(program) if program.exists() => start(program, line),
        _ => start(&own_program(), line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An upgrade to something that does not work would leave file systems without a daemon.
    #[test]
    fn a_program_that_does_not_go_on_is_replaced_by_the_one_before_once() {
        let (one, two) = (PathBuf::from("/one"), PathBuf::from("/two"));
        let mut program = Program::default();
        assert!(program.follow(Some(one.clone()), true) && program.now == Some(one.clone()), "handed over");
        assert!(!program.follow(None, false), "it went on, and died later");
        assert!(program.follow(Some(two.clone()), true) && program.now == Some(two), "handed over again");
        assert!(program.follow(None, true) && program.now == Some(one.clone()), "the one before");
        assert!(!program.follow(None, true) && program.now == Some(one), "that one's death is a death");
    }

    /// If this fails, `zirconia upgrade` to what the system does not run ends the service: every mount is dead, and nothing starts again.
    #[test]
    fn a_program_that_cannot_be_started_is_stepped_back_from() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let _inside = runtime.enter();
        let (folder, before) = (std::env::temp_dir(), PathBuf::from("/bin/true"));
        let mut program = Program { now: Some(before.clone()), ..Program::default() };
        program.follow(Some(folder), true);
        let mut daemon = next_daemon(&mut program, &Kept::default()).expect("started");
        let ended = daemon.process.wait().expect("waited for");
        assert!(ended.success() && program.now == Some(before) && !program.is_tried);
    }

    /// If this fails, programs wait for ever for a next daemon that says nothing, and what it started keeps their mounts.
    #[test]
    fn a_process_that_does_not_get_on_is_killed_with_what_it_started() {
        let (mut program, mut kept) = (Program::default(), Kept::default());
        program.follow(Some("/bin/sh".into()), true);
        let process = Command::new("/bin/sh").args(["-c", "sleep 1000; exit 0"]).process_group(0).spawn().expect("started");
        let mut daemon = Daemon { process, line: None, left: None, has_group: true, is_given_up: false };
        daemon.give_up(&mut kept, &program);
        assert_eq!(daemon.process.wait().expect("waited for").signal(), Some(9));
        assert!(daemon.is_given_up && program.follow(None, true) && program.now.is_none(), "the one before");
    }

    /// If this fails, whoever asks between two lives of a daemon reads that none runs, or after the last one that another one comes.
    #[test]
    fn a_notice_is_held_as_long_as_the_next_start_is_to_come() {
        use std::os::unix::fs::DirBuilderExt;
        let folder = std::env::temp_dir().join(format!("zirconia-notice-{}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&folder).expect("a temporary directory");
        let (state, interlude) = (StateDir::at(&folder), Interlude { process: 7, deaths: 3, pause_ms: 2000 });
        let notice = Notice::put(&state, &interlude).expect("put");
        let read = || service::trust::read(&state.interlude()).expect("read");
        assert_eq!(serde_json::from_slice::<Interlude>(&read().expect("there")).ok(), Some(interlude));
        assert!(Notice::put(&state, &interlude).is_none(), "somebody holds it");
        drop(notice);
        assert_eq!(read(), None);
        std::fs::remove_dir_all(&folder).expect("a temporary directory");
    }

    /// If this fails, whoever finds that nothing is served after a few kills reads in no manual that this ends by itself, and when.
    #[test]
    fn the_manual_page_and_the_semantics_have_every_pause() {
        let seconds = PAUSES.map(|pause| pause.as_secs_f64().to_string());
        let (last, first) = seconds.split_last().expect("several");
        let words = format!("{} and {last} seconds", first.join(", "));
        for page in ["man/man8/zirconiad.8", "docs/semantics.md"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
            let text = std::fs::read_to_string(&path).expect("a page");
            assert!(text.contains(&words), "{page} lacks '{words}'");
        }
    }

    /// A daemon that dies at once each time must not keep a machine busy, one that was stopped must not come back.
    #[test]
    fn deaths_are_followed_by_growing_pauses_and_a_limit() {
        let (killed, ended) = (ExitStatus::from_raw(9), ExitStatus::from_raw(1 << 8));
        let mut deaths = Deaths::default();
        let begun = Instant::now();
        assert_eq!(deaths.judge(ended, false, false, begun), Verdict::End(1));
        assert_eq!(deaths.judge(ExitStatus::from_raw(15), false, false, begun), Verdict::End(143));
        assert_eq!(
            Deaths::default().judge(ExitStatus::from_raw(1), false, false, begun),
            Verdict::Again(PAUSES[0]),
            "nobody ends daemons with SIGHUP"
        );
        assert_eq!(deaths.judge(killed, true, true, begun), Verdict::End(137), "told to end");
        for pause in PAUSES {
            assert_eq!(deaths.judge(killed, false, false, begun), Verdict::Again(pause));
        }
        assert_eq!(deaths.judge(killed, false, false, begun), Verdict::End(137));
        assert_eq!(deaths.judge(killed, false, true, begun), Verdict::Again(Duration::ZERO), "programs wait");
        assert_eq!(deaths.judge(killed, false, false, begun + MEMORY), Verdict::Again(PAUSES[0]), "long ago does not count");
    }
}
