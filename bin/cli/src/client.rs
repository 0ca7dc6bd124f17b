//! The connection to the daemon: found by the state directory, started when nobody listens, every call with a deadline.

use control_api::{ErrorKind, Failure, Request, Response, StateDir};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time that a freshly started daemon gets until it listens.
const START_DEADLINE: Duration = Duration::from_secs(30);
/// Longest time for one request; long work is asked for in pieces (`zpool wait`).
const REQUEST_DEADLINE: Duration = Duration::from_secs(600);

/// How often a question is asked again when the daemon went away meanwhile.
const RETRIES: u32 = 50;
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// A remark that the daemon sent along with success.
pub type Remark = String;

/// Talks to one daemon.
#[derive(Debug)]
pub struct Client {
    state: StateDir,
    deadline: Duration,
}

impl Client {
    /// The client of the environment's state directory.
    pub fn from_environment() -> Result<Client, Failure> {
        let is_root = rustix::process::geteuid().is_root();
        let state = StateDir::from_environment(is_root)
            .map_err(|error| Failure::new(ErrorKind::Invalid, "cannot find the daemon", error.to_string()))?;
        Ok(Client { state, deadline: REQUEST_DEADLINE })
    }

    /// The state directory.
    pub fn state(&self) -> &StateDir {
        &self.state
    }

    /// True when a daemon listens.
    pub fn is_running(&self) -> bool {
        std::os::unix::net::UnixStream::connect(self.state.socket()).is_ok()
    }

    /// Sends a request, starting the daemon when it is not there; a failure comes back as `Err`.
    pub fn call(&self, request: &Request) -> Result<Response, Failure> {
        for _ in 0..RETRIES {
            if !self.is_running() {
                self.start()?;
            }
            match self.call_running(request) {
                // A daemon that is being killed still accepts for a moment: ask the next one, unless it might be done twice.
                Err(failure) if failure.kind == ErrorKind::Disconnected && !request.changes() => {
                    std::thread::sleep(RETRY_PAUSE);
                }
                answer => return answer,
            }
        }
        self.call_running(request)
    }

    /// Sends a request to a daemon that must be there already.
    pub fn call_running(&self, request: &Request) -> Result<Response, Failure> {
        let failed = |why: String| Failure::new(ErrorKind::Io, "cannot talk to the daemon", why).advise(self.advice());
        let body = serde_json::to_vec(request).map_err(|error| failed(error.to_string()))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| failed(error.to_string()))?;
        let bytes = runtime
            .block_on(async { tokio::time::timeout(self.deadline, exchange(&self.state.socket(), body)).await })
            .map_err(|_| {
                let seconds = self.deadline.as_secs();
                Failure::new(ErrorKind::Timeout, "no answer from the daemon", format!("nothing came within {seconds} s"))
                    .advise(format!("the operation may still complete; see {}", self.state.log().display()))
            })?
            .map_err(|why| Failure { kind: ErrorKind::Disconnected, ..failed(why) })?;
        match serde_json::from_slice(&bytes).map_err(|error| failed(error.to_string()))? {
            Response::Failed(failure) => Err(failure),
            response => Ok(response),
        }
    }

    /// Sends a request whose answer is plain success; returns its remarks.
    pub fn perform(&self, request: &Request) -> Result<Vec<Remark>, Failure> {
        match self.call(request)? {
            Response::Done { remarks } => Ok(remarks),
            other => Err(crate::unexpected("the request failed", other)),
        }
    }

    fn advice(&self) -> String {
        format!("see {}", self.state.log().display())
    }

    /// Starts `zirconiad` (beside this program, else from PATH) in the background and waits until it listens.
    fn start(&self) -> Result<(), Failure> {
        let failed = |why: String| Failure::new(ErrorKind::Io, "cannot start the daemon", why);
        std::fs::create_dir_all(self.state.path()).map_err(|error| failed(format!("{}: {error}", self.state.path().display())))?;
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.state.log())
            .map_err(|error| failed(format!("{}: {error}", self.state.log().display())))?;
        let errors = log.try_clone().map_err(|error| failed(error.to_string()))?;
        let program = daemon_program();
        let mut child = Command::new(&program)
            .arg("--background")
            .env("ZIRCONIA_STATE", self.state.path())
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(|error| failed(format!("{}: {error}", program.display())))?;
        let started = Instant::now();
        while started.elapsed() < START_DEADLINE {
            if self.is_running() {
                return Ok(());
            }
            // Another command may have won the race to start one; otherwise an early end is a failure.
            if let Ok(Some(status)) = child.try_wait()
                && !self.is_running()
            {
                return Err(failed(format!("it ended at once ({status})")).advise(self.advice()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(failed(format!("it does not listen after {} s", START_DEADLINE.as_secs())).advise(self.advice()))
    }
}

fn daemon_program() -> PathBuf {
    std::env::current_exe()
        .ok()
        .and_then(|own| own.parent().map(|folder| folder.join("zirconiad")))
        .filter(|path| path.exists())
        .unwrap_or_else(|| PathBuf::from("zirconiad"))
}

/// This command's line for the pool's history: the program's name and its words, in characters that a header carries.
fn command_line() -> String {
    let mut words: Vec<String> = std::env::args().collect();
    if let Some(program) = words.first_mut() {
        *program = program.rsplit('/').next().unwrap_or(program).to_string();
    }
    words.join(" ").chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect()
}

async fn exchange(socket: &Path, body: Vec<u8>) -> Result<Bytes, String> {
    let stream = tokio::net::UnixStream::connect(socket).await.map_err(|error| format!("{}: {error}", socket.display()))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let driver = async { connection.await.map_err(|error| error.to_string()) };
    let request = hyper::Request::post("/v1/request")
        .header("host", "zirconia")
        .header("content-type", "application/json")
        .header("zirconia-command", command_line())
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| error.to_string())?;
    let call = async {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        response.into_body().collect().await.map(http_body_util::Collected::to_bytes).map_err(|error| error.to_string())
    };
    tokio::select! {
        answer = call => answer,
        ended = driver => Err(ended.err().unwrap_or_else(|| "the daemon closed the connection".to_string())),
    }
}
