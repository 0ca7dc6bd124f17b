//! The beginning of a daemon in the background, and the end of who asked for it.
//!
//! ```text
//! zirconiad --background ──► --background --watching (the supervisor) ──► … --supervised (the daemon)
//!   waits, and hands on      ◄── one pipe is standard output and error of both, until they have their log
//! ```
//! Shells (`$(…)`), ssh, cron and continuous integration wait until nobody has the output open of what they started. So both processes that stay
//! begin with nothing of the caller's: what they say before they have their log goes through a pipe of this process, which ends when the daemon
//! listens, or does not come.

use crate::place::{self, START};
use crate::supervisor::{STAYS, own_program};
use control_api::{ErrorKind, Failure, StateDir};
use rustix::fs::FileType;
use std::io::{self, PipeReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Longest time that a daemon gets until it listens.
const DEADLINE: Duration = Duration::from_secs(30);
/// Pause between looks at one that died before it listened, and is started again.
const LOOK: Duration = Duration::from_millis(10);
/// Byte by which a daemon says that it listens; no message has it.
const LISTENS: u8 = 0;

/// Starts a daemon that stays; gives the exit status of who asked for it. What the daemon itself says of a failure is handed on.
///
/// # Errors
/// Those of the system, and that nothing is heard of the daemon.
pub fn run(state: &StateDir) -> Result<i32, Failure> {
    let failed = |error: io::Error| Failure::new(ErrorKind::Io, START, error.to_string());
    let (mut process, output) = start().map_err(failed)?;
    let (until, (says, heard)) = (Instant::now() + DEADLINE, channel());
    std::thread::spawn(move || hand_on(output, io::stderr(), &says));
    match heard.recv_timeout(DEADLINE) {
        Ok(()) => Ok(0),
        Err(RecvTimeoutError::Timeout) => Err(late(state)),
        Err(RecvTimeoutError::Disconnected) => outcome(&mut process, state, until),
    }
}

/// Starts the process that stays; gives the end of the pipe at which it and the daemon are heard.
fn start() -> io::Result<(Child, PipeReader)> {
    let (output, theirs) = io::pipe()?;
    let mut command = Command::new(own_program());
    command.args(std::env::args_os().skip(1)).arg(STAYS).stdin(Stdio::null()).stdout(theirs.try_clone()?).stderr(theirs);
    Ok((command.spawn()?, output))
}

/// Hands on what is said, and tells when the daemon listens. Ends when nobody can say anything any more.
fn hand_on(mut output: impl Read, mut to: impl Write, says: &Sender<()>) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = output.read(&mut bytes) {
        let text: Vec<u8> = bytes.iter().take(count).copied().filter(|byte| *byte != LISTENS).collect();
        // Whoever reads no more wants to know nothing.
        let _ = to.write_all(&text);
        if text.len() < count {
            let _ = says.send(());
        }
    }
}

/// Exit status when nothing more is said: that of the process that stays, if it does not, or success once it has a daemon that listens.
fn outcome(process: &mut Child, state: &StateDir, until: Instant) -> Result<i32, Failure> {
    loop {
        match process.try_wait() {
            Ok(Some(status)) if status.success() => {
                return Err(Failure::new(ErrorKind::Io, START, format!("it ended at once ({status})")).advise(advice(state)));
            }
            Ok(Some(status)) => return Ok(code(status)),
            _ if listens(state, process.id()) => return Ok(0),
            _ if Instant::now() > until => return Err(late(state)),
            _ => std::thread::sleep(LOOK),
        }
    }
}

/// Exit status as a shell has it.
fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

/// True when the daemon of this supervisor has the state directory and listens; it may be another one's.
fn listens(state: &StateDir, supervisor: u32) -> bool {
    let Some(owner) = place::owner(state) else { return false };
    let status = std::fs::read_to_string(format!("/proc/{owner}/status")).unwrap_or_default();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap_or_default();
    parent.trim() == supervisor.to_string() && UnixStream::connect(state.socket()).is_ok()
}

fn advice(state: &StateDir) -> String {
    format!("see {}", state.log().display())
}

fn late(state: &StateDir) -> Failure {
    Failure::new(ErrorKind::Timeout, START, format!("it does not listen after {} s", DEADLINE.as_secs())).advise(advice(state))
}

/// Tells the process that waits for it that this daemon listens: at a pipe, which standard output is only as long as somebody waits.
pub fn announce() {
    let output = io::stdout();
    let is_pipe = rustix::fs::fstat(&output).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Fifo);
    if is_pipe {
        let _ = rustix::io::write(&output, &[LISTENS]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, whoever starts a daemon is not told why it cannot start, or waits for one that listens.
    #[test]
    fn what_is_said_is_handed_on_and_no_sign_with_it() {
        let (says, heard) = channel();
        let mut said = Vec::new();
        hand_on(&b"zirconiad: a warning\n\0"[..], &mut said, &says);
        assert_eq!((said.as_slice(), heard.try_recv()), (&b"zirconiad: a warning\n"[..], Ok(())));
        hand_on(&b"zirconiad: cannot start the daemon\n"[..], &mut said, &says);
        drop(says);
        assert!(said.ends_with(b"cannot start the daemon\n") && heard.recv().is_err(), "it does not listen");
    }

    /// If this fails, scripts take a daemon that did not start for one that did.
    #[test]
    fn one_that_does_not_stay_is_a_failure() {
        let state = StateDir::at(&std::env::temp_dir().join(format!("zirconia-launch-{}", std::process::id())));
        let ended = |words: &str| {
            let mut process = Command::new("/bin/sh").args(["-c", words]).spawn().expect("started");
            outcome(&mut process, &state, Instant::now() + DEADLINE)
        };
        assert_eq!(ended("exit 3").ok(), Some(3));
        assert_eq!(ended("kill -9 $$").ok(), Some(137));
        assert!(ended("exit 0").is_err());
    }
}
