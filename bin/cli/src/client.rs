//! The connection to the daemon: found by the state directory, started when nobody listens, every call with a deadline. Whoever does not
//! own it asks at the door that it opens to everybody, and starts none.

use crate::{closed, streaming};
use control_api::{
    DatasetQuery, ErrorKind, Failure, Interlude, Named, Piece, Remark, Request, Response, StateDir, name_objection, pool_name_objection,
};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use rustix::fs::{Mode, OFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Longest time that a freshly started daemon gets until it listens.
const START_DEADLINE: Duration = Duration::from_secs(30);
const START_STEP: Duration = Duration::from_millis(20);
const CANNOT_START: &str = "cannot start the daemon";
/// Advice for who has no place for a daemon, or named one that is none.
const OWN_PLACE: &str = "name a directory of yours (ZIRCONIA_STATE, or XDG_RUNTIME_DIR)";
/// Bytes that are read of what a daemon that did not start says.
const SAID_BYTES_MAX: u64 = 64 << 10;
/// Time after which somebody who waits for a daemon that is just starting, ending or being replaced is told so.
const PATIENCE: Duration = Duration::from_secs(4);
/// Time without an answer after which the daemon is asked whether it still lives.
const SILENCE: Duration = Duration::from_secs(10);
/// Longest time until a daemon that is just being replaced can be asked to end: one that does not get on is given up before.
const STOP_DEADLINE: Duration = Duration::from_secs(120);
/// Longest time for one request; long work is asked for in pieces (`zpool wait`).
const REQUEST_DEADLINE: Duration = Duration::from_secs(600);

/// Longest time for a request with a descriptor, through which days of data may come, and for one that looks at a whole pool.
const ATTACHED_DEADLINE: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Number of times that a question is asked again when the daemon went away meanwhile.
const RETRIES: u32 = 50;
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Turns an unexpected answer into a failure.
pub fn unexpected(what: &str, response: Response) -> Failure {
    match response {
        Response::Failed(failure) => failure,
        other => Failure::new(ErrorKind::Internal, what, format!("the daemon gave an unexpected answer: {other:?}")),
    }
}

/// Reason why there is no answer.
enum Unanswered {
    /// Connection broke.
    Broken(String),
    /// No answer within the deadline.
    Late,
    /// Daemon is there, and does nothing.
    Hung,
    /// Listener is not who the caller believes, but this user.
    Foreign(u32),
}

const NO_ANSWER: &str = "no answer from the daemon";

/// Client of one daemon: that of the caller, or that of the machine, which answers questions and does what the caller was allowed to.
#[derive(Debug)]
pub struct Client {
    state: StateDir,
    /// State directory of the machine's daemon, for an ordinary user who has no pools.
    system: Option<StateDir>,
    deadline: Duration,
    /// Descriptor that goes along with a request.
    attached: Option<OwnedFd>,
}

/// Listener at a state directory.
enum Door {
    /// Daemon of the caller listens.
    Own,
    /// No listener; the caller may start one.
    Closed,
    /// State directory is another user's.
    Foreign,
}

impl Client {
    /// Client of the environment's state directory.
    pub fn from_environment() -> Result<Client, Failure> {
        let is_root = rustix::process::geteuid().is_root();
        let own = StateDir::from_environment(is_root);
        let chosen = is_root || std::env::var_os("ZIRCONIA_STATE").is_some_and(|path| !path.is_empty());
        // A user without a place of their own can still look at the machine's pools.
        let state = own.or_else(|error| if chosen { Err(error) } else { Ok(StateDir::system()) });
        let state = state.map_err(|error| Failure::new(ErrorKind::Invalid, "cannot find the daemon", error.to_string()))?;
        Ok(Client { state, system: (!chosen).then(StateDir::system), deadline: REQUEST_DEADLINE, attached: None })
    }

    /// Hands a descriptor to the daemon with each request, for it to read or write. Such requests take as long as they take: the daemon is only
    /// asked whether it still lives.
    #[must_use]
    pub fn attach(self, descriptor: OwnedFd) -> Client {
        Client { attached: Some(descriptor), deadline: ATTACHED_DEADLINE, ..self }
    }

    /// Lets requests take as long as they take, likewise: what they are about may be a pool as a whole.
    #[must_use]
    pub fn unhurried(self) -> Client {
        Client { deadline: ATTACHED_DEADLINE, ..self }
    }

    /// State directory of the client.
    pub fn state(&self) -> &StateDir {
        &self.state
    }

    /// True when a daemon listens.
    pub fn is_running(&self) -> bool {
        std::os::unix::net::UnixStream::connect(self.state.socket()).is_ok()
    }

    /// True when the daemon is another user's: it can only be asked what it tells everybody.
    pub fn is_foreign(&self) -> bool {
        matches!(self.door(), Door::Foreign)
    }

    fn door(&self) -> Door {
        match std::os::unix::net::UnixStream::connect(self.state.socket()) {
            Ok(_) => Door::Own,
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Door::Foreign,
            Err(_) if may_own(self.state.path()) => Door::Closed,
            Err(_) => Door::Foreign,
        }
    }

    /// Sends a request, starting the daemon when it is not there; a failure comes back as `Err`. Another user's daemon is only asked what
    /// it tells everybody, or does for whoever was allowed to, and for that none is started.
    pub fn call(&self, request: &Request) -> Result<Response, Failure> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.call_once(request) {
                // A daemon that is being killed still accepts for a moment, and one with a crowd at its door closes some of it: ask again, unless it
                // might be done twice.
                Err(failure) if failure.kind == ErrorKind::Disconnected && request.changes() => return Err(self.unsure(failure)),
                Err(failure) if failure.kind == ErrorKind::Disconnected && tries <= RETRIES => std::thread::sleep(RETRY_PAUSE),
                answer => return answer,
            }
        }
    }

    fn call_once(&self, request: &Request) -> Result<Response, Failure> {
        match self.door() {
            Door::Own => {}
            Door::Foreign => return self.ask_as_anybody(&self.state, request),
            Door::Closed => match self.elsewhere(request) {
                Some(system) => return self.ask_as_anybody(system, request),
                None if self.has_nothing() && is_about_pools(request) => return nothing(request),
                None => self.start()?,
            },
        }
        self.call_running(request)
    }

    /// Makes sure that the caller's own daemon runs, and starts it otherwise; that of the machine does not count.
    ///
    /// # Errors
    /// [`ErrorKind::Permission`] where the state directory is another user's, and those of the start.
    pub fn begin(&self) -> Result<(), Failure> {
        match self.door() {
            Door::Own => Ok(()),
            Door::Foreign => Err(self.refusal(&Request::Info)),
            Door::Closed => self.start(),
        }
    }

    /// Failure of what only the owner of the state directory may ask, with the way to pools of one's own.
    pub fn refusal(&self, request: &Request) -> Failure {
        foreign(&self.state, request)
    }

    /// State directory of another user's daemon, where that is the one that the caller looks at; None where it is the caller's own, there or not.
    pub fn foreign_state(&self, request: &Request) -> Option<&StateDir> {
        match self.door() {
            Door::Own => None,
            Door::Foreign => Some(&self.state),
            Door::Closed => self.elsewhere(request),
        }
    }

    /// Failure of what may or may not have been done: the daemon went away before it said.
    fn unsure(&self, failure: Failure) -> Failure {
        let why = format!("it ended, or was replaced, before it answered ({}): this may have been done, or not", failure.why);
        Failure { why, ..failure }.advise(format!("look whether it was, else do it again; {}", self.advice()))
    }

    /// Asks the daemon to end, also one that is just starting or being replaced: that is waited for. Returns its remarks; None where there is none,
    /// and none comes back.
    pub fn stop(&self) -> Result<Option<Vec<Remark>>, Failure> {
        const WHAT: &str = "cannot stop the daemon";
        let mut waiting = Waiting::begin();
        loop {
            match self.is_running() {
                true => match self.call_running(&Request::Stop) {
                    Ok(Response::Done { remarks }) => return Ok(Some(remarks)),
                    Ok(other) => return Err(unexpected(WHAT, other)),
                    // It is just ending, or left its place to another one.
                    Err(failure) if failure.kind == ErrorKind::Disconnected => {}
                    Err(failure) => return Err(failure),
                },
                false if !self.is_owned() && self.forget_owner() => return Ok(None),
                false => {}
            }
            if waiting.begun.elapsed() > STOP_DEADLINE {
                let who = self.owner().map_or_else(|| "it".to_string(), |owner| format!("process {owner}"));
                let why = format!("{who} neither listens nor ends after {} s", STOP_DEADLINE.as_secs());
                return Err(Failure::new(ErrorKind::Timeout, WHAT, why).advise(self.advice()));
            }
            waiting.say(self);
            std::thread::sleep(START_STEP);
        }
    }

    /// Takes the name of the daemon out of its lock: whoever waits to start it again after it died lets it be. False when it has begun meanwhile.
    fn forget_owner(&self) -> bool {
        let path = self.state.lock();
        if !path.exists() {
            return true;
        }
        match service::trust::lock(&path) {
            Ok((file, true)) if file.metadata().is_ok_and(|found| found.len() == 0) => true,
            Ok((file, true)) => {
                let _ = file.set_len(0);
                drop(file);
                // One that was just being started takes the lock now.
                std::thread::sleep(START_STEP);
                false
            }
            Ok((_, false)) => false,
            // Nobody who distrusts it either has a daemon there.
            Err(_) => true,
        }
    }

    /// True when a look at this state directory's pools would show none: an ordinary user's, with no pool to open again.
    fn has_nothing(&self) -> bool {
        // What is not believed is told by the daemon, which is not to be had here.
        let Ok(remembered) = service::trust::read(&self.state.cache_file()) else { return false };
        let remembered = remembered.unwrap_or_default();
        let is_empty =
            remembered.is_empty() || serde_json::from_slice::<Vec<serde_json::Value>>(&remembered).is_ok_and(|pools| pools.is_empty());
        is_empty && !rustix::process::geteuid().is_root()
    }

    /// State directory of the machine's daemon, where somebody without pools asks what that answers.
    fn elsewhere(&self, request: &Request) -> Option<&StateDir> {
        let system = self.system.as_ref().filter(|_| is_for_others(request) && self.has_nothing());
        system.filter(|system| system.reader_socket().exists())
    }

    /// Asks another user's daemon what it tells everybody, or does for whoever was allowed to.
    ///
    /// # Errors
    /// [`ErrorKind::Permission`] for everything else, [`ErrorKind::NotFound`] where none listens, and those of the request.
    pub fn ask_as_anybody(&self, state: &StateDir, request: &Request) -> Result<Response, Failure> {
        self.call_at(&reachable(state, request)?, request, owner_of(state.path()))
    }

    /// Sends a request to a daemon that must be there already.
    pub fn call_running(&self, request: &Request) -> Result<Response, Failure> {
        self.call_at(&self.state.socket(), request, None)
    }

    /// Sends a request to whoever listens, if that is root, the caller or the user `host`: anybody else would learn what is asked, and could
    /// answer anything.
    fn call_at(&self, socket: &Path, request: &Request, host: Option<u32>) -> Result<Response, Failure> {
        let advice = || closed::advice(&host_of(socket));
        let failed = |why: String| Failure::new(ErrorKind::Io, "cannot talk to the daemon", why).advise(advice());
        let body = serde_json::to_vec(request).map_err(|error| failed(error.to_string()))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| failed(error.to_string()))?;
        let answer = runtime.block_on(async {
            tokio::time::timeout(self.deadline, self.answer(&Peer { socket, host, attached: self.attached.as_ref() }, body)).await
        });
        let bytes = answer.unwrap_or_else(|_| Err(Unanswered::Late)).map_err(|why| match why {
            Unanswered::Broken(why) => Failure { kind: ErrorKind::Disconnected, ..failed(why) },
            Unanswered::Late => Failure::new(ErrorKind::Timeout, NO_ANSWER, format!("nothing came within {} s", self.deadline.as_secs()))
                .advise(format!("the operation may still complete; {}", advice())),
            Unanswered::Hung => {
                let who = self.owner().map_or_else(|| "it".to_string(), |owner| format!("process {owner}"));
                let why = format!("{who} takes connections but has said nothing for {} s", 2 * SILENCE.as_secs());
                Failure::new(ErrorKind::Timeout, NO_ANSWER, why).advise(format!("the operation may still complete; {}", advice()))
            }
            Unanswered::Foreign(user) => {
                let why = format!("user {user} listens at {}", socket.display());
                Failure::new(ErrorKind::Permission, "cannot talk to the daemon", why)
                    .advise("nothing was sent: run this as that user, or use another state directory (ZIRCONIA_STATE)")
            }
        })?;
        match serde_json::from_slice(&bytes).map_err(|error| failed(error.to_string()))? {
            Response::Failed(failure) => Err(failure),
            response => Ok(response),
        }
    }

    /// Answer to a request: as long as the daemon lives, it may take its time.
    async fn answer(&self, peer: &Peer<'_>, body: Vec<u8>) -> Result<Bytes, Unanswered> {
        let [(_, requests), (_, document), _] = control_api::ROUTES;
        let request = hyper::Request::post(requests).header("content-type", "application/json").header("zirconia-command", command_line());
        let answer = exchange(peer, request, body);
        tokio::pin!(answer);
        loop {
            if let Ok(answer) = tokio::time::timeout(SILENCE, &mut answer).await {
                return answer;
            }
            // This one is answered without any work.
            let alone = Peer { attached: None, ..*peer };
            let sign = tokio::time::timeout(SILENCE, exchange(&alone, hyper::Request::get(document), Vec::new()));
            tokio::select! {
                answer = &mut answer => return answer,
                sign = sign => if sign.is_err() { return Err(Unanswered::Hung) },
            }
        }
    }

    /// Sends a request whose answer is a stream, and hands on what comes of it, as fast as `take` does. There is no deadline: as long as the
    /// daemon lives, whoever reads may take their time.
    ///
    /// # Errors
    /// Those of `take`, and of the request; [`ErrorKind::Disconnected`] when the daemon goes away in the middle.
    pub fn stream(&self, request: &Request, take: &mut dyn FnMut(Piece<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
        let (socket, host) = match self.door() {
            Door::Own => (self.state.socket(), None),
            Door::Foreign => (reachable(&self.state, request)?, owner_of(self.state.path())),
            Door::Closed => match self.elsewhere(request) {
                Some(system) => (reachable(system, request)?, owner_of(system.path())),
                None => {
                    self.start()?;
                    (self.state.socket(), None)
                }
            },
        };
        let failed =
            |why: String| Failure::new(ErrorKind::Disconnected, "cannot talk to the daemon", why).advise(closed::advice(&host_of(&socket)));
        let body = serde_json::to_vec(request).map_err(|error| failed(error.to_string()))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| failed(error.to_string()))?;
        runtime.block_on(async {
            let stream = Peer { socket: &socket, host, attached: None }.connect().await.map_err(|why| match why {
                Unanswered::Broken(why) => failed(why),
                _ => failed("somebody else listens there".to_string()),
            })?;
            let request = hyper::Request::post(control_api::ROUTES[0].1).header("content-type", "application/json");
            streaming::receive(stream, request.header("zirconia-command", command_line()), body, take, &failed).await
        })
    }

    /// Sends a request whose answer is plain success; returns its remarks.
    pub fn perform(&self, request: &Request) -> Result<Vec<Remark>, Failure> {
        match self.call(request)? {
            Response::Done { remarks } => Ok(remarks),
            other => Err(unexpected("the request failed", other)),
        }
    }

    fn advice(&self) -> String {
        closed::advice(&self.state)
    }

    /// Starts `zirconiad` (beside this program, else from PATH) in the background and waits until it listens. One that is about to end lets
    /// go of its lock first, one that somebody else has just started will listen soon: both are waited for.
    fn start(&self) -> Result<(), Failure> {
        let failed = |why: String| Failure::new(ErrorKind::Io, CANNOT_START, why);
        self.state.prepare(CANNOT_START).map_err(|failure| if failure.next.is_some() { failure } else { failure.advise(OWN_PLACE) })?;
        let mut waiting = Waiting::begin();
        let mut child: Option<Child> = None;
        while waiting.begun.elapsed() < START_DEADLINE {
            if self.is_running() {
                return Ok(());
            }
            match &mut child {
                None if self.is_owned() => {}
                None => child = Some(self.spawn().map_err(failed)?),
                Some(running) => {
                    if let Ok(Some(status)) = running.try_wait() {
                        let said = said(running);
                        child = None;
                        // It ends by itself once the daemon listens, which may be gone again: then there is another try. Another command may have
                        // won the race to start one; otherwise an early end is a failure.
                        if !status.success() && !self.is_running() && !self.is_owned() {
                            return Err(self.ended(&said, status));
                        }
                    }
                }
            }
            waiting.say(self);
            std::thread::sleep(START_STEP);
        }
        let seconds = START_DEADLINE.as_secs();
        let why = match self.owner() {
            Some(owner) => format!("process {owner} owns {} and does not listen after {seconds} s", self.state.path().display()),
            None => format!("it does not listen after {seconds} s"),
        };
        Err(failed(why).advise(self.advice()))
    }

    fn spawn(&self) -> Result<Child, String> {
        let program = daemon_program();
        let mut command = Command::new(&program);
        command.arg("--background").env("ZIRCONIA_STATE", self.state.path()).current_dir("/");
        // What it says before it has its log is for whoever started it.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().map_err(|error| format!("{}: {error}", program.display()))
    }

    /// Failure with what a daemon that ended at once said.
    fn ended(&self, said: &str, status: ExitStatus) -> Failure {
        let said = said.trim().strip_prefix("zirconiad: ").unwrap_or(said.trim());
        let said = said.strip_prefix(CANNOT_START).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(said);
        if said.is_empty() {
            return Failure::new(ErrorKind::Io, CANNOT_START, format!("it ended at once ({status})")).advise(self.advice());
        }
        match said.split_once('\n') {
            Some((why, next)) => Failure::new(ErrorKind::Io, CANNOT_START, why).advise(next),
            None => Failure::new(ErrorKind::Io, CANNOT_START, said),
        }
    }

    /// True while a daemon has the state directory: also one that does not listen yet, or not any more.
    pub fn is_owned(&self) -> bool {
        is_held(&self.state.lock())
    }

    /// Notice of the process that is about to start the daemon again, with the time of the last death in seconds since the epoch; None when
    /// nobody is.
    pub fn interlude(&self) -> Option<(Interlude, i64)> {
        let path = self.state.interlude();
        if !is_held(&path) {
            return None;
        }
        let time = std::fs::metadata(&path).map(|found| std::os::unix::fs::MetadataExt::mtime(&found)).ok()?;
        let notice: Interlude = serde_json::from_slice(&service::trust::read(&path).ok()??).ok()?;
        // Who stopped it meanwhile took its name out of the lock, who started another one put that one's there.
        let owner = service::trust::read(&self.state.lock()).ok()??;
        (String::from_utf8_lossy(&owner).trim() == notice.process.to_string()).then_some((notice, time))
    }

    /// Process id of the daemon that has the state directory.
    pub fn owner(&self) -> Option<u32> {
        if self.is_owned() { std::fs::read_to_string(self.state.lock()).ok()?.trim().parse().ok() } else { None }
    }
}

/// True for what another user's daemon may answer: what it tells everybody, and what it does for whoever was allowed to.
fn is_for_others(request: &Request) -> bool {
    request.for_everyone().is_some() || request.is_delegable()
}

/// True for what everybody may ask, and what a daemon without pools need not be there for.
fn is_about_pools(request: &Request) -> bool {
    request.for_everyone().is_some() && !request.is_about_daemon()
}

/// Socket of another user's daemon for those who do not own it, where it may answer.
fn reachable(state: &StateDir, request: &Request) -> Result<PathBuf, Failure> {
    if !is_for_others(request) {
        return Err(foreign(state, request));
    }
    let socket = state.reader_socket();
    // Whoever named the folder named its owner.
    match std::os::unix::net::UnixStream::connect(&socket) {
        Ok(_) => Ok(socket),
        Err(_) => Err(Failure::new(ErrorKind::NotFound, "cannot ask the daemon", format!("none is running at {}", state.path().display()))
            .advise(format!("its owner starts it with 'zirconia start'; for pools of your own {OWN_PLACE}"))),
    }
}

/// Failure of what another user's daemon does for its owner alone.
fn foreign(state: &StateDir, request: &Request) -> Failure {
    request.refusal().advise(format!("the pools at {} are another user's: for pools of your own {OWN_PLACE}", state.path().display()))
}

/// True while somebody holds the lock at this path.
fn is_held(path: &Path) -> bool {
    // What is no file there (a FIFO) is not waited for.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else { return false };
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockShared).is_err()
}

/// Wait for a daemon that is just starting, ending or being replaced.
struct Waiting {
    begun: Instant,
    is_said: bool,
}

impl Waiting {
    fn begin() -> Waiting {
        Waiting { begun: Instant::now(), is_said: false }
    }

    /// Says, once and after a while, who is waited for.
    fn say(&mut self, client: &Client) {
        if self.is_said || self.begun.elapsed() < PATIENCE {
            return;
        }
        self.is_said = true;
        let who = client.owner().map_or_else(|| "the daemon".to_string(), |owner| format!("process {owner}"));
        crate::errln!("waiting: {who} is just starting, ending or being replaced; see {}", client.state.log().display());
    }
}

/// Text that a program which has ended said on standard error.
fn said(child: &mut Child) -> String {
    let mut text = Vec::new();
    if let Some(errors) = child.stderr.take() {
        let _ = errors.take(SAID_BYTES_MAX).read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// True when the caller may keep a daemon's state there: it is the caller's own, or can be made.
fn may_own(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let caller = rustix::process::geteuid();
    match std::fs::metadata(path) {
        Ok(found) => caller.is_root() || found.uid() == caller.as_raw(),
        Err(error) => match error.kind() {
            std::io::ErrorKind::NotFound => caller.is_root() || path != StateDir::system().path(),
            // A file in the way is nobody's daemon: what tries to start one there says so.
            std::io::ErrorKind::NotADirectory => true,
            _ => caller.is_root(),
        },
    }
}

/// Answer that a daemon without pools would give.
fn nothing(request: &Request) -> Result<Response, Failure> {
    let named = |names: &[String], objection: &dyn Fn(&str) -> Option<String>, why: &str| match names.first() {
        Some(name) => {
            let why = objection(name).unwrap_or_else(|| why.to_string());
            Err(Failure::new(ErrorKind::NotFound, format!("cannot open '{name}'"), why))
        }
        None => Ok(()),
    };
    let pools = |names: &[String]| named(names, &pool_name_objection, "no such pool");
    let datasets = |names: &[String], kind: Named| named(names, &|name| name_objection(name, kind, false), "dataset does not exist");
    let is_bookmark = |query: &DatasetQuery| {
        query.types.iter().any(|kind| kind == "bookmark") && query.names.first().is_some_and(|name| name.contains('#'))
    };
    match request {
        Request::PoolQuery(query) => pools(&query.pools).map(|()| Response::Pools(Vec::new())),
        Request::PoolIostat(names) => {
            pools(&names.pools).map(|()| Response::Iostat(control_api::IostatReport { time_ns: 0, pools: Vec::new() }))
        }
        Request::DatasetQuery(query) => {
            let kind = if is_bookmark(query) { Named::Bookmark } else { Named::Either };
            datasets(&query.names, kind).map(|()| Response::Datasets(Vec::new()))
        }
        Request::Holds(query) => datasets(std::slice::from_ref(&query.name), Named::Snapshot).map(|()| Response::Holds(Vec::new())),
        Request::DatasetWait(wait) => datasets(std::slice::from_ref(&wait.name), Named::Dataset).map(|()| Response::Busy(Vec::new())),
        Request::PoolWait(wait) => pools(std::slice::from_ref(&wait.pool)).map(|()| Response::Busy(Vec::new())),
        Request::Mount(_) => Ok(Response::Mounts(Vec::new())),
        Request::Direct(_) => Ok(Response::Direct(Vec::new())),
        other => Err(other.refusal()),
    }
}

/// Path of `zirconiad`: beside this program, else by name.
pub fn daemon_program() -> PathBuf {
    std::env::current_exe()
        .ok()
        .and_then(|own| own.parent().map(|folder| folder.join("zirconiad")))
        .filter(|path| path.exists())
        .unwrap_or_else(|| PathBuf::from("zirconiad"))
}

/// Line of this command for the pool's history: the program's name and its words, in characters that a header carries.
fn command_line() -> String {
    let mut words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(program) = words.first_mut() {
        *program = program.rsplit('/').next().unwrap_or(program).to_string();
    }
    words.join(" ").chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect()
}

/// Socket where somebody is to listen, and the user who may besides root and the caller.
struct Peer<'a> {
    socket: &'a Path,
    host: Option<u32>,
    /// Descriptor to hand over.
    attached: Option<&'a OwnedFd>,
}

impl Peer<'_> {
    /// Connects to a listener who is believed.
    async fn connect(&self) -> Result<tokio::net::UnixStream, Unanswered> {
        let failed = |error: std::io::Error| Unanswered::Broken(format!("{}: {error}", self.socket.display()));
        let stream = tokio::net::UnixStream::connect(self.socket).await.map_err(failed)?;
        // The kernel's word, of this very connection.
        let user = stream.peer_cred().map_err(failed)?.uid();
        let is_believed = user == 0 || user == rustix::process::geteuid().as_raw() || Some(user) == self.host;
        if !is_believed {
            return Err(Unanswered::Foreign(user));
        }
        if let Some(descriptor) = self.attached {
            hand(&stream, descriptor).map_err(failed)?;
        }
        Ok(stream)
    }
}

/// Hands a descriptor over, beside an empty line, which may stand before a request (RFC 9112, 2.2).
fn hand(stream: &tokio::net::UnixStream, descriptor: &OwnedFd) -> std::io::Result<()> {
    let descriptors = [descriptor.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    rustix::net::sendmsg(stream, &[IoSlice::new(control_api::EMPTY_LINE)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// State directory of whoever listens at a socket.
fn host_of(socket: &Path) -> StateDir {
    StateDir::at(socket.parent().unwrap_or(socket))
}

/// User id of a folder's owner.
fn owner_of(path: &Path) -> Option<u32> {
    std::fs::metadata(path).ok().map(|found| std::os::unix::fs::MetadataExt::uid(&found))
}

async fn exchange(peer: &Peer<'_>, request: hyper::http::request::Builder, body: Vec<u8>) -> Result<Bytes, Unanswered> {
    let stream = peer.connect().await?;
    speak(stream, request, body).await.map_err(Unanswered::Broken)
}

async fn speak(stream: tokio::net::UnixStream, request: hyper::http::request::Builder, body: Vec<u8>) -> Result<Bytes, String> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| closed::worded(&error))?;
    let driver = async { connection.await.map_err(|error| closed::worded(&error)) };
    let request = request.header("host", "zirconia").body(Full::new(Bytes::from(body))).map_err(|error| error.to_string())?;
    let call = async {
        let response = sender.send_request(request).await.map_err(|error| closed::worded(&error))?;
        response.into_body().collect().await.map(http_body_util::Collected::to_bytes).map_err(|error| closed::worded(&error))
    };
    tokio::pin!(call);
    tokio::select! {
        answer = &mut call => answer,
        // The answer may be there already: the daemon closes the connection behind it.
        ended = driver => call.await.map_err(|why| ended.err().unwrap_or(why)),
    }
}
