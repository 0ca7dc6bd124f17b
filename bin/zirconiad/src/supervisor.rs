//! Starts the daemon again when it dies (`--background` only; service managers do that themselves): what was mounted comes back without
//! anybody typing a command. It ends when the daemon ended in order, was told to end, or dies again and again.

use crate::place::START;
use control_api::StateDir;
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// Pauses before the first, second, … start after a death; after as many deaths within [`MEMORY`] it is left alone.
const PAUSES: [Duration; 5] =
    [Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(8), Duration::from_secs(30)];
const MEMORY: Duration = Duration::from_secs(600);
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
    fn judge(&mut self, status: ExitStatus, is_told: bool, now: Instant) -> Verdict {
        let Some(number) = status.signal() else { return Verdict::End(status.code().unwrap_or(1) as u8) };
        if is_told || ORDERED.contains(&number) {
            return Verdict::End(128 + number as u8);
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
    let mut child = start()?;
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
            _ = terminate.recv() => is_told = tell(&child),
            _ = interrupt.recv() => is_told = tell(&child),
        }
        let Some(status) = child.try_wait()? else { continue };
        match deaths.judge(status, is_told, Instant::now()) {
            Verdict::End(code) => return Ok(code),
            Verdict::Again(pause) => tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = terminate.recv() => return Ok(0),
                _ = interrupt.recv() => return Ok(0),
            },
        }
        // A command started one meanwhile, and may have stopped it; or the state directory is gone.
        if std::fs::read_to_string(state.lock()).ok().is_none_or(|owner| owner.trim() != child.id().to_string()) {
            return Ok(0);
        }
        child = start()?;
    }
}

/// Passes an order to end on.
fn tell(child: &Child) -> bool {
    let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    process.is_some_and(|process| kill_process(process, Signal::TERM).is_ok())
}

fn start() -> std::io::Result<Child> {
    let own = std::env::current_exe().ok().filter(|path| path.exists()).unwrap_or_else(|| "/proc/self/exe".into());
    Command::new(own).args(std::env::args_os().skip(1)).arg("--supervised").spawn()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A daemon that dies at once each time must not keep a machine busy, one that was stopped must not come back.
    #[test]
    fn deaths_are_followed_by_growing_pauses_and_a_limit() {
        let (killed, ended) = (ExitStatus::from_raw(9), ExitStatus::from_raw(1 << 8));
        let mut deaths = Deaths::default();
        let begun = Instant::now();
        assert_eq!(deaths.judge(ended, false, begun), Verdict::End(1));
        assert_eq!(deaths.judge(ExitStatus::from_raw(15), false, begun), Verdict::End(143));
        assert_eq!(
            Deaths::default().judge(ExitStatus::from_raw(1), false, begun),
            Verdict::Again(PAUSES[0]),
            "nobody ends daemons with SIGHUP"
        );
        assert_eq!(deaths.judge(killed, true, begun), Verdict::End(137), "told to end");
        for pause in PAUSES {
            assert_eq!(deaths.judge(killed, false, begun), Verdict::Again(pause));
        }
        assert_eq!(deaths.judge(killed, false, begun), Verdict::End(137));
        assert_eq!(deaths.judge(killed, false, begun + MEMORY), Verdict::Again(PAUSES[0]), "long ago does not count");
    }
}
