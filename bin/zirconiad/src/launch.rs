//! The beginning of a daemon in the background, and the end of who asked for it.
//!
//! ```text
//! zirconiad --background ──► --background --watching (the supervisor) ──► … --supervised (the daemon)
//!   waits, and hands on      ◄── one pipe is standard output and error of both, until they have their log
//! ```
//! Shells (`$(…)`), ssh, cron and continuous integration wait until nobody has the output open of what they started. So both processes that stay
//! begin with nothing of the caller's: what they say before they have their log goes through a pipe of this process, which ends when the daemon
//! serves requests, or does not come. It says so itself, and is asked once more before anybody goes by it.

use crate::place::{self, START};
use crate::sign::LISTENS;
use crate::supervisor::{STAYS, own_program};
use control_api::{ErrorKind, Failure, Request, StateDir};
use std::fs::File;
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
/// Descriptors that a daemon has before it opens its first pool, with some for requests, and for the process that watches it.
const DESCRIPTORS: usize = 64;
/// Threads that a daemon keeps for what has to go on where the system starts no more: its end, exports, answers.
pub const KEPT: usize = 8;
/// Threads that a daemon has with a pool or two, besides its workers and those that are kept.
const THREADS: usize = 24;
/// Longest time that one question to the daemon is waited for; another one follows.
const ANSWER: Duration = Duration::from_secs(5);

/// Refuses to begin where there are fewer descriptors than a daemon needs: later it could neither serve nor say so, and parts that it stands on panic.
///
/// # Errors
/// That there are too few; those of the system.
pub fn check_descriptors() -> Result<(), Failure> {
    let failed = |error: io::Error| {
        let why = match rustix::io::Errno::from_io_error(&error) {
            Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => {
                format!("too many open files: it needs {DESCRIPTORS} descriptors more; raise the limit ('ulimit -n', LimitNOFILE=)")
            }
            _ => error.to_string(),
        };
        Failure::new(ErrorKind::Io, START, why)
    };
    take_and_leave(DESCRIPTORS).map_err(failed)
}

/// Refuses to begin where the system starts fewer threads than a daemon with a pool or two needs: later it could neither serve nor say so.
///
/// # Errors
/// That there are too few.
pub fn check_threads(workers: usize) -> Result<(), Failure> {
    let count = workers + KEPT + THREADS;
    let missing = exec::missing_threads(count);
    if missing == 0 {
        return Ok(());
    }
    let limits = "raise the limit of the user's processes ('ulimit -u', LimitNPROC=) or of the control group (pids.max, TasksMax=)";
    Err(Failure::new(ErrorKind::Io, START, format!("too few threads: it needs {count}, of which {missing} cannot be started; {limits}")))
}

/// Takes so many descriptors, and lets go of them.
fn take_and_leave(count: usize) -> io::Result<()> {
    let root = File::open("/")?;
    (1..count).map(|_| root.try_clone()).collect::<io::Result<Vec<_>>>().map(drop)
}

/// Starts a daemon that stays; gives the exit status of who asked for it. What the daemon itself says of a failure is handed on.
///
/// # Errors
/// Those of the system, and that nothing is heard of the daemon.
pub fn run(state: &StateDir) -> Result<i32, Failure> {
    let failed = |error: io::Error| Failure::new(ErrorKind::Io, START, error.to_string());
    let (mut process, output) = start().map_err(failed)?;
    let (until, (says, heard)) = (Instant::now() + DEADLINE, channel());
    std::thread::Builder::new().spawn(move || hand_on(output, io::stderr(), &says)).map_err(failed)?;
    match heard.recv_timeout(DEADLINE) {
        Ok(()) => outcome(&mut process, state, until, true),
        Err(RecvTimeoutError::Timeout) => Err(late(state)),
        Err(RecvTimeoutError::Disconnected) => outcome(&mut process, state, until, false),
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

/// Exit status when the daemon said that it serves, or nothing more is said: that of the process that stays, if it does not, or success once it has a
/// daemon that answers.
fn outcome(process: &mut Child, state: &StateDir, until: Instant, is_said: bool) -> Result<i32, Failure> {
    loop {
        match process.try_wait() {
            // One that served may be stopped by now; why it failed after that is in its log only.
            Ok(Some(status)) if status.success() != is_said => {
                return Err(Failure::new(ErrorKind::Io, START, format!("it ended at once ({status})")).advise(advice(state)));
            }
            Ok(Some(status)) => return Ok(code(status)),
            _ if has_daemon(state, process.id()) && answers(state) => return Ok(0),
            _ if Instant::now() > until => return Err(late(state)),
            _ => std::thread::sleep(LOOK),
        }
    }
}

/// Exit status as a shell has it.
fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

/// True when the daemon of this supervisor has the state directory; it may be another one's.
fn has_daemon(state: &StateDir, supervisor: u32) -> bool {
    let Some(owner) = place::owner(state) else { return false };
    let status = std::fs::read_to_string(format!("/proc/{owner}/status")).unwrap_or_default();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap_or_default();
    parent.trim() == supervisor.to_string()
}

/// True when the daemon of the state directory answers a request.
fn answers(state: &StateDir) -> bool {
    let asked = UnixStream::connect(state.socket()).and_then(ask);
    asked.is_ok_and(|answer| answer.starts_with(b"HTTP/1.1 200 "))
}

/// Beginning of the answer to a question that is answered without any work.
fn ask(mut stream: UnixStream) -> io::Result<Vec<u8>> {
    let (method, path) = control_api::ROUTES[0];
    let body = serde_json::to_string(&Request::Info)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    let length = body.len();
    let text =
        format!("{method} {path} HTTP/1.1\r\nhost: zirconia\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(text.as_bytes())?;
    let mut answer = vec![0; b"HTTP/1.1 200 ".len()];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

fn advice(state: &StateDir) -> String {
    format!("see {}", state.log().display())
}

fn late(state: &StateDir) -> Failure {
    Failure::new(ErrorKind::Timeout, START, format!("it does not answer after {} s", DEADLINE.as_secs())).advise(advice(state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sign::Sign;

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
        let ended = |words: &str, is_said: bool| {
            let mut process = Command::new("/bin/sh").args(["-c", words]).spawn().expect("started");
            outcome(&mut process, &state, Instant::now() + DEADLINE, is_said)
        };
        assert_eq!(ended("exit 3", false).ok(), Some(3));
        assert_eq!(ended("kill -9 $$", false).ok(), Some(137));
        assert!(ended("exit 0", false).is_err());
        assert_eq!(ended("exit 0", true).ok(), Some(0), "somebody stopped it");
        assert!(ended("exit 3", true).is_err(), "it said that it serves, and why it ended is in its log only");
    }

    /// If this fails, whoever starts a daemon that ends before it serves is told nothing, or waits for it in vain.
    #[test]
    fn how_the_beginning_went_is_told_once() {
        let told = |tell: &dyn Fn(&mut Sign)| {
            let (mut output, pipe) = io::pipe().expect("a pipe");
            let mut sign = Sign::at(pipe.into());
            tell(&mut sign);
            let mut text = String::new();
            output.read_to_string(&mut text).expect("it ends");
            text
        };
        let why = Failure::new(ErrorKind::Io, START, "no");
        assert_eq!(told(&|sign| sign.fail(&why)), format!("zirconiad: {START}: no\n"));
        let both = |sign: &mut Sign| {
            sign.announce();
            sign.fail(&why);
        };
        assert_eq!(told(&both), "\0", "what comes later is for the log");
    }
}
