//! The user's side: a provider whose library is in another process, which is watched, and killed when it owes an answer for too long.

use crate::hello::Hello;
use crate::words::Words;
use crate::{SECRET, WORD};
use dpusm::{Capabilities, DeviceHandle, MemoryStats, Onward, OpError, Program, Provider, StoreTarget};
use exec::{Condvar, Exec, Mutex};
use provider_target::{ConnectError, LinkStats, TargetOptions, TargetProvider};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use target_wire::{Connection, Secret, SecretError};

/// Between looks whether an answer is owed for too long.
const LOOK_MIN: Duration = Duration::from_millis(20);
const LOOK_MAX: Duration = Duration::from_millis(500);
/// A process whose socket is closed gets a second to be gone.
const END_LOOKS: u32 = 200;
const END_STEP_NS: u64 = 5_000_000;
/// Time in ns that devices may take for what a process had begun before it ended, from its end on.
const LINGERS_NS: u64 = 60_000_000_000;

/// Library to load, and the time that it may take.
#[derive(Clone, Debug)]
pub struct HostedOptions {
    /// The program whose process it gets ([`crate::helper`], behind [`crate::WORD`]).
    pub program: PathBuf,
    /// Path of the shared object.
    pub library: PathBuf,
    /// Time that loading, and each answer, may take.
    pub deadline: Duration,
    /// Called with each line that the library prints, up to a limit in each minute, from a thread of its own.
    pub say: fn(&str),
}

/// Reason why there is no provider.
#[derive(Debug)]
pub enum StartError {
    /// The helper program cannot be run.
    Program(PathBuf, io::Error),
    /// The library is no provider, or has no device, in the words of who loaded it.
    Library {
        /// Words of who loaded it.
        why: String,
    },
    /// The library was not loaded within the deadline.
    Late(Duration),
    /// The process of the library ended.
    Ended(ExitStatus),
    /// The helper's words were not understood.
    Connection(ConnectError),
    /// The system has no more sockets, or pipes.
    Socket(io::Error),
    /// The constant of both sides is none.
    Secret(SecretError),
}

/// Status in words.
struct Died(ExitStatus);

impl fmt::Display for Died {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |signal: i32| match signal {
            4 => " (SIGILL)",
            6 => " (SIGABRT)",
            7 => " (SIGBUS)",
            8 => " (SIGFPE)",
            9 => " (SIGKILL)",
            11 => " (SIGSEGV)",
            15 => " (SIGTERM)",
            _ => "",
        };
        match (self.0.signal(), self.0.code()) {
            (Some(signal), _) => write!(f, "its process was ended by signal {signal}{}", name(signal)),
            (None, Some(code)) => write!(f, "its process ended with status {code}"),
            (None, None) => f.write_str("its process ended"),
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Program(path, error) => write!(f, "{} cannot be run: {error}", path.display()),
            StartError::Library { why } => f.write_str(why),
            StartError::Late(deadline) => write!(f, "it was not loaded within {} ms, and was ended", deadline.as_millis()),
            StartError::Ended(status) => write!(f, "{} while it was loaded", Died(*status)),
            StartError::Connection(error) => error.fmt(f),
            StartError::Socket(error) => write!(f, "no socket for its process: {error}"),
            StartError::Secret(error) => error.fmt(f),
        }
    }
}
impl std::error::Error for StartError {}

/// A helper's process; killed, with what it started, when this goes.
struct Helper {
    child: Child,
    words: Words,
}

impl Helper {
    fn kill(&mut self) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.kill();
    }

    /// Ends the helper, and returns its status: by itself, with a moment to do so, or by force. What it printed last is said before.
    fn end(&mut self, exec: &Exec) -> Option<ExitStatus> {
        for _ in 0..END_LOOKS {
            if let Ok(Some(status)) = self.child.try_wait() {
                self.words.wait();
                return Some(status);
            }
            exec.sleep_ns(END_STEP_NS);
        }
        self.kill();
        let status = self.child.wait().ok();
        self.words.wait();
        status
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
        self.words.wait();
    }
}

/// Reason of the end of a helper, in words, none while it runs; and who waits for that end.
#[derive(Default)]
struct Ending {
    problem: Option<String>,
    waiting: Vec<Onward>,
}

/// End of a helper: nothing is left of its process.
#[derive(Default)]
struct End {
    state: Mutex<Ending>,
    told: Condvar,
}

impl End {
    /// Nothing is left of it, because of `problem`: whoever waited goes on.
    fn reach(&self, problem: String) {
        let mut state = self.state.lock();
        state.problem = Some(problem);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.told.notify_all();
        waiting.into_iter().for_each(|onward| onward());
    }

    /// Has `onward` run once nothing is left of it: now when that is so already.
    fn then(&self, onward: Onward) {
        let mut state = self.state.lock();
        if state.problem.is_none() {
            state.waiting.push(onward);
            return;
        }
        drop(state);
        onward();
    }

    /// Waits until nothing is left of it; why that is so.
    fn wait(&self) -> String {
        let mut state = self.state.lock();
        loop {
            if let Some(problem) = &state.problem {
                return problem.clone();
            }
            self.told.wait(&mut state);
        }
    }
}

/// See the module.
pub struct Hosted {
    name: String,
    about: String,
    inner: Arc<TargetProvider>,
    end: Arc<End>,
}

impl fmt::Debug for Hosted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hosted({})", self.name)
    }
}

/// Starts the process, with one end of a pair as its standard input.
fn spawn(exec: &Exec, options: &HostedOptions) -> Result<(Helper, UnixStream), StartError> {
    let (ours, theirs) = UnixStream::pair().map_err(StartError::Socket)?;
    // What a library prints is no answer to anybody, and may be without end.
    let (printed, output) = io::pipe().map_err(StartError::Socket)?;
    let errors = output.try_clone().map_err(StartError::Socket)?;
    let mut command = Command::new(&options.program);
    command.arg(WORD).arg(&options.library).current_dir("/").process_group(0);
    command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::from(output)).stderr(Stdio::from(errors));
    let child = command.spawn().map_err(|error| StartError::Program(options.program.clone(), error))?;
    let name = options.library.file_name().unwrap_or(options.library.as_os_str()).to_string_lossy().into_owned();
    let words = Words::follow(exec, name, options.say, printed);
    Ok((Helper { child, words }, ours))
}

impl Hosted {
    /// Starts a process for the library, and has it loaded there. Waits up to the deadline: for operations only.
    ///
    /// # Errors
    /// Why there is no provider.
    pub fn start(exec: &Exec, options: &HostedOptions) -> Result<Arc<Hosted>, StartError> {
        // The link needs threads, and so does who listens to the library.
        if exec.is_inline() {
            return Err(StartError::Connection(ConnectError::NoThreads));
        }
        let (mut helper, mut ours) = spawn(exec, options)?;
        let set_timeout = |stream: &UnixStream, left| stream.set_read_timeout(Some(left));
        let (name, about) = match Hello::read(&mut ours, options.deadline, set_timeout) {
            Ok(Hello::Loaded { name, about }) => (name, about),
            Ok(Hello::Failed { why }) => return Err(StartError::Library { why }),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(StartError::Late(options.deadline)),
            Err(error) => return Err(helper.end(exec).map_or(StartError::Socket(error), StartError::Ended)),
        };
        let secret = Secret::new(SECRET).map_err(StartError::Secret)?;
        let link = TargetOptions { timeout: options.deadline, ..TargetOptions::private(&name, secret) };
        let inner = match TargetProvider::over(exec, &link, Connection::Unix(ours)) {
            Ok(inner) => inner,
            Err(ConnectError::Broken(_) | ConnectError::Silent(_)) => {
                return Err(helper.end(exec).map_or(StartError::Late(options.deadline), StartError::Ended));
            }
            Err(error) => return Err(StartError::Connection(error)),
        };
        let end = Arc::new(End::default());
        let (own, watched, told, deadline) = (exec.clone(), inner.clone(), end.clone(), options.deadline);
        let work = move || {
            told.reach(watch(&own, &watched, &mut helper, deadline));
        };
        drop(exec.spawn_operation("z-provider-watch", Box::new(work)));
        Ok(Arc::new(Hosted { name, about, inner, end }))
    }

    /// Counts of what crossed the link so far.
    pub fn stats(&self) -> LinkStats {
        self.inner.stats()
    }

    /// Reason why its process is gone, or none is left of it soon; None while it is well. For operations only.
    pub fn why_ended(&self) -> Option<String> {
        self.inner.is_down().then(|| self.wait_for_end())
    }

    /// Waits until nothing of its process is left; why that is so. For operations only.
    pub fn wait_for_end(&self) -> String {
        self.end.wait()
    }
}

/// Looks after the process until it is not needed any more, or gone; then nothing of it is left. Why that is so.
fn watch(exec: &Exec, provider: &TargetProvider, helper: &mut Helper, deadline: Duration) -> String {
    let look = (deadline / 8).clamp(LOOK_MIN, LOOK_MAX);
    // A process that was itself stopped for a while must not take that for the library's time.
    let mut was_late = false;
    while !provider.ended_within(look) {
        let is_late = provider.owes_ns() > deadline.as_nanos() as u64;
        if is_late && was_late {
            helper.kill();
            provider.give_up();
            let _ = helper.child.wait();
            return format!("it gave no answer within {} ms; its process was ended", deadline.as_millis());
        }
        was_late = is_late;
    }
    helper.end(exec).map_or_else(|| "its process is gone".to_string(), |status| Died(status).to_string())
}

impl Drop for Hosted {
    fn drop(&mut self) {
        self.inner.shut_down();
    }
}

impl Provider for Hosted {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> &str {
        &self.about
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn alloc(&self, bytes: usize) -> Result<DeviceHandle, OpError> {
        self.inner.alloc(bytes)
    }

    fn free(&self, handle: DeviceHandle) {
        self.inner.free(handle);
    }

    fn submit(&self, programs: Vec<Program>) -> Result<(), Vec<Program>> {
        self.inner.submit(programs)
    }

    fn open(&self, target: &StoreTarget) -> Result<DeviceHandle, OpError> {
        self.inner.open(target)
    }

    fn close(&self, handle: DeviceHandle) {
        self.inner.close(handle);
    }

    fn memory(&self) -> Option<MemoryStats> {
        self.inner.memory()
    }

    /// Time in which devices do what a process had begun before it ended: nothing comes after that.
    fn lingers_ns(&self) -> u64 {
        LINGERS_NS
    }

    /// A process that was killed, or whose socket is closed, may be at work until it is reaped: it may wait for a disk that hangs.
    fn when_gone(&self, onward: Onward) {
        self.end.then(onward);
    }

    fn shut_down(&self) {
        self.inner.shut_down();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// If this fails, what a killed process still has under way, while it waits for a disk that hangs, lands on a block that got its place: the minute for it
    /// began before the process was gone.
    #[test]
    fn who_waits_for_the_end_of_a_process_goes_on_when_it_is_gone() {
        let (end, over) = (End::default(), Arc::new(AtomicU32::new(0)));
        let wait = || {
            let own = over.clone();
            end.then(Box::new(move || {
                own.fetch_add(1, Ordering::SeqCst);
            }));
            over.load(Ordering::SeqCst)
        };
        assert_eq!([wait(), wait()], [0, 0], "it is there yet");
        end.reach("it was reaped".into());
        assert_eq!(over.load(Ordering::SeqCst), 2);
        assert_eq!((wait(), end.wait()), (3, "it was reaped".to_string()), "it is gone");
    }
}
