//! HTTP with JSON bodies on the unix socket: `POST /v1/request`, `GET /v1/openapi.json`, `GET /metrics`. The engine works on its own threads.
//!
//! Who connects costs a bounded share: so many connections at a time, so long for a request, one request for each. A connection that cannot be
//! taken (out of descriptors) is no reason to end: others give some back.

use crate::hands::{self, Asker};
use crate::place::{Place, listen};
use crate::readers;
use crate::sign::Sign;
use crate::streaming::{self, Reply};
use control::{Attached, Caller, Control};
use control_api::{ErrorKind, Failure, Request, Response, StateDir};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::pipe::PipeFlags;
use std::convert::Infallible;
use std::io;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Bytes of the largest request body; a request is a few properties and paths.
const BODY_BYTES_MAX: usize = 4 << 20;
/// Pause between looks whether a request waits in vain.
const LOOK: Duration = Duration::from_millis(250);
/// Time that a client may take to say what it wants …
pub const SAYING_MAX: Duration = Duration::from_secs(10);
/// … and while more than half of the places are taken: commands say it at once.
const SAYING_MAX_CROWDED: Duration = Duration::from_millis(500);
/// Number of connections of commands at a time, with descriptors enough: each may work on a thread of its own.
const COMMANDS_MAX: usize = 256;
/// Number of connections of whoever reads metrics over the network at a time, with descriptors enough.
const READERS_MAX: usize = 32;
/// Number of connections of either kind at a time, however few descriptors there are.
const CONNECTIONS_MIN: usize = 8;
/// Time that requests which still run get to end when the daemon does.
const ENDING: Duration = Duration::from_secs(5);
/// Pause after a connection that could not be taken.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const OPENAPI: &str = include_str!("../../../docs/openapi.json");

/// Gate that takes connections, so many at a time.
struct Gate {
    source: UnixListener,
    places: Arc<Semaphore>,
    places_max: usize,
}

/// Number of connections of commands at a time: they leave two thirds of the descriptors to what they ask for.
fn commands_max() -> usize {
    share_of_descriptors(3, COMMANDS_MAX)
}

/// Number of connections of readers of the metrics at a time.
pub fn readers_max() -> usize {
    share_of_descriptors(8, READERS_MAX)
}

/// Number of connections at one descriptor of `of` each, no more than `max`.
fn share_of_descriptors(of: u64, max: usize) -> usize {
    usize::try_from(service::descriptors_max() / of).unwrap_or(max).clamp(CONNECTIONS_MIN, max)
}

impl Gate {
    fn new(source: UnixListener, places: usize) -> Gate {
        Gate { source, places: Arc::new(Semaphore::new(places)), places_max: places }
    }

    /// Time that whoever came now may take to say what it wants: a crowd of the silent keeps nobody else out for long.
    fn saying_max(&self) -> Duration {
        if self.places.available_permits() < self.places_max / 2 { SAYING_MAX_CROWDED } else { SAYING_MAX }
    }

    /// Takes the next connection, once there is a place for it; the place is free again when the permit is dropped.
    async fn next(&self) -> (UnixStream, Option<OwnedSemaphorePermit>) {
        // Nobody closes the semaphore.
        let place = self.places.clone().acquire_owned().await.ok();
        loop {
            match self.source.accept().await {
                Ok((stream, _)) => return (stream, place),
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    }
}

/// Reason for the daemon's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Somebody said so.
    Stopped,
    /// Another daemon goes on with the mounts.
    Replaced,
}

/// End of the daemon, for who asks for it.
#[derive(Default)]
struct Stop {
    wanted: Notify,
    is_replaced: AtomicBool,
}

impl Stop {
    /// Ends the daemon when the answer is out: ending the loop ends the connections.
    fn soon(self: &Arc<Self>, ending: Ending) {
        let own = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            own.is_replaced.store(ending == Ending::Replaced, Ordering::Release);
            own.wanted.notify_one();
        });
    }
}

/// Listeners at ports that are open, as they come.
pub type Listeners = UnboundedReceiver<std::net::TcpListener>;

/// Socket of the daemon, open: who connects waits until [`Door::serve`].
pub struct Door {
    runtime: Runtime,
    commands: Gate,
}

fn failed(why: String) -> Failure {
    Failure::new(ErrorKind::Io, "cannot serve requests", why)
}

impl Door {
    /// Opens the socket of the state directory.
    pub fn open(state: &StateDir) -> Result<Door, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("z-control")
            .enable_all()
            .build()
            .map_err(|error| failed(error.to_string()))?;
        let entered = runtime.enter();
        let listener = listen(state)?;
        drop(entered);
        Ok(Door { runtime, commands: Gate::new(listener, commands_max()) })
    }

    /// Serves until a signal or a stop request, at its place, and the metrics at ports as they come. Whoever waits for the daemon is told when nothing
    /// is left that could keep it from that.
    pub fn serve(self, control: &Arc<Control>, place: &mut Place, mut ports: Listeners, sign: &mut Sign) -> Result<Ending, Failure> {
        let Door { runtime, mut commands } = self;
        let result = runtime.block_on(async {
            let mut terminate = signal(SignalKind::terminate()).map_err(|error| failed(error.to_string()))?;
            let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| failed(error.to_string()))?;
            let mut hangup = signal(SignalKind::hangup()).map_err(|error| failed(error.to_string()))?;
            let stop = Arc::new(Stop::default());
            place.watch();
            sign.announce();
            loop {
                tokio::select! {
                    () = place.changed() => if let Some(listener) = place.put_back() {
                        commands.source = listener;
                        let own = control.clone();
                        // Else the next change does it.
                        let _ = hands::begin(control.exec(), Asker::Owner, move || own.remember());
                    },
                    (stream, place) = commands.next() => {
                        let (control, stop, saying_max) = (control.clone(), stop.clone(), commands.saying_max());
                        tokio::spawn(async move {
                            // Whoever says nothing is not waited for.
                            let Ok(attached) = tokio::time::timeout(saying_max, attached(&stream)).await else { return };
                            let (attached, alive) = attached.unzip();
                            let service = service_fn(move |request| answer(request, control.clone(), stop.clone(), attached.clone()));
                            // A client that goes away in the middle is its own business; whoever works for it hears of it.
                            let _ = http(saying_max).serve_connection(TokioIo::new(stream), service).await;
                            drop((alive, place));
                        });
                    }
                    Some(port) = ports.recv() => match TcpListener::from_std(port) {
                        Ok(listener) => drop(tokio::spawn(readers::serve(listener, control.clone()))),
                        Err(error) => tracing::warn!("metrics are not served: {error}"),
                    },
                    () = stop.wanted.notified() => break,
                    _ = terminate.recv() => break,
                    _ = interrupt.recv() => break,
                    // The terminal is gone that it ran on; without one it is what has other daemons read their files again.
                    _ = hangup.recv() => if place.has_terminal() { break } else { tracing::info!("SIGHUP: there are no files to read again") },
                }
            }
            Ok(if stop.is_replaced.load(Ordering::Acquire) { Ending::Replaced } else { Ending::Stopped })
        });
        // A signal may come while another daemon takes this one's place.
        let result = match result {
            Ok(Ending::Stopped) if !control.end() => Ok(Ending::Replaced),
            result => result,
        };
        match result {
            Ok(Ending::Replaced) => runtime.shutdown_background(),
            // Requests that still run get to the end of what they do; the pools are closed after them.
            _ => {
                runtime.shutdown_timeout(ENDING);
                hands::rest(ENDING);
            }
        }
        result
    }
}

/// Descriptor that came before the request of a connection, and the end of a pipe that is to be closed with it; waits until something came.
pub async fn attached(stream: &UnixStream) -> Option<(Attached, OwnedFd)> {
    let (descriptor, others) = loop {
        stream.readable().await.ok()?;
        match stream.try_io(Interest::READABLE, || take_descriptor(stream)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            taken => break taken.ok()??,
        }
    };
    let (gone, alive) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).ok()?;
    Some((Attached::new(descriptor, gone).with(others), alive))
}

/// Takes the descriptor beside the first byte that waits, and others that came along (the kernel fills up the space of one), with the empty line that
/// it came with. Nothing else is taken: and that line has to be, since a read ends behind it, which whoever reads on would take for the end of what
/// has come.
fn take_descriptor(stream: &UnixStream) -> io::Result<Option<(OwnedFd, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let (mut byte, mut control) = ([0], RecvAncillaryBuffer::new(&mut space));
    recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::PEEK | RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors: Vec<OwnedFd> = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(sent) = message {
            descriptors.extend(sent);
        }
    }
    if descriptors.is_empty() {
        return Ok(None);
    }
    let others = descriptors.split_off(1);
    rustix::net::recv(stream, &mut [0; control_api::EMPTY_LINE.len()], RecvFlags::empty())?;
    Ok(descriptors.pop().map(|descriptor| (descriptor, others)))
}

/// Server of one request for a connection, said within `saying_max`: nobody keeps a place without using it.
pub fn http(saying_max: Duration) -> hyper::server::conn::http1::Builder {
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(saying_max).keep_alive(false);
    builder
}

/// Answer with the metrics of this moment.
pub async fn metrics(control: Arc<Control>) -> hyper::Response<Full<Bytes>> {
    let own = control.clone();
    let text = hands::done(control.exec(), Asker::Anybody, move || own.metrics()).await.unwrap_or_default();
    reply(StatusCode::OK, OPENMETRICS, text.into_bytes())
}

async fn answer(
    request: hyper::Request<Incoming>,
    control: Arc<Control>,
    stop: Arc<Stop>,
    attached: Option<Attached>,
) -> Result<hyper::Response<Reply>, Infallible> {
    let [(_, requests), (_, document), (_, numbers)] = control_api::ROUTES;
    let reply = match (request.method(), request.uri().path()) {
        (&Method::POST, path) if path == requests => match asked(request, attached).await {
            Ok((Request::Send(request), caller)) => return Ok(streaming::send(request, caller, control, ()).await),
            Ok((request, caller)) => reply_with(&perform(request, caller, control, stop).await),
            Err(failure) => reply_with(&Response::Failed(failure)),
        },
        (&Method::GET, path) if path == document => json(StatusCode::OK, OPENAPI.as_bytes().to_vec()),
        (&Method::GET, path) if path == numbers => metrics(control).await,
        _ => json(StatusCode::NOT_FOUND, b"{}".to_vec()),
    };
    Ok(reply.map(Reply::Whole))
}

/// Answer as HTTP has it.
pub fn reply_with(response: &Response) -> hyper::Response<Full<Bytes>> {
    let status = if matches!(response, Response::Failed(_)) { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    json(status, serde_json::to_vec(response).unwrap_or_default())
}

/// Answer with a body of JSON.
pub fn json(status: StatusCode, body: Vec<u8>) -> hyper::Response<Full<Bytes>> {
    reply(status, "application/json", body)
}

fn reply(status: StatusCode, kind: &'static str, body: Vec<u8>) -> hyper::Response<Full<Bytes>> {
    let mut response = hyper::Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static(kind));
    response
}

/// Request in a body, and who sent it.
async fn asked(request: hyper::Request<Incoming>, attached: Option<Attached>) -> Result<(Request, Caller), Failure> {
    let invalid = |why: String| Failure::new(ErrorKind::Invalid, "cannot read the request", why);
    let command = request.headers().get("zirconia-command").and_then(|value| value.to_str().ok()).map(String::from);
    let caller = Caller { command, uid: rustix::process::getuid().as_raw(), user: None, attached };
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect();
    let body = match tokio::time::timeout(SAYING_MAX, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) => return Err(invalid(error.to_string())),
        Err(_) => return Err(invalid(format!("it was not there within {} s", SAYING_MAX.as_secs()))),
    };
    Ok((serde_json::from_slice(&body).map_err(|error| invalid(error.to_string()))?, caller))
}

async fn perform(request: Request, caller: Caller, control: Arc<Control>, stop: Arc<Stop>) -> Response {
    if request == Request::Stop {
        let asked = control.clone();
        // Whatever keeps it from being asked for, the daemon ends.
        if !hands::done(control.exec(), Asker::Owner, move || asked.end()).await.unwrap_or(true) {
            // The connection ends with this process: the next one is asked again.
            return std::future::pending().await;
        }
        let remarks = control.unwritten();
        stop.soon(Ending::Stopped);
        return Response::Done { remarks };
    }
    if let Request::Upgrade(upgrade) = request {
        let own = control.clone();
        let replaced = hands::done(control.exec(), Asker::Owner, move || own.hand_over(Path::new(&upgrade.program))).await;
        return match replaced.and_then(|replaced| replaced) {
            Ok(()) => {
                stop.soon(Ending::Replaced);
                Response::Done { remarks: Vec::new() }
            }
            Err(failure) => Response::Failed(failure),
        };
    }
    execute(control, request, caller, ()).await
}

/// Has a request worked on by a thread that may wait, and looks after it meanwhile; `kept` lives as long as it is worked on.
pub async fn execute<K: Send + 'static>(control: Arc<Control>, request: Request, caller: Caller, kept: K) -> Response {
    let (owner, asked) = (control.clone(), request.clone());
    let asker = match caller.user {
        None => Asker::Owner,
        Some(_) if request.is_delegable() => Asker::Delegate,
        Some(_) => Asker::Anybody,
    };
    let work = move || {
        let _kept = kept;
        owner.execute(&asked, &caller)
    };
    let mut work = pin!(hands::done(control.exec(), asker, work));
    let mut in_vain = Duration::ZERO;
    loop {
        match tokio::time::timeout(LOOK, &mut work).await {
            Ok(Ok(response)) => return response,
            Ok(Err(failure)) => return Response::Failed(failure),
            // The work goes on: nothing can take it back.
            Err(_) => match control.waits_in_vain(&request) {
                Some(failure) if in_vain >= Control::PATIENCE => return Response::Failed(failure),
                Some(_) => in_vain += LOOK,
                None => in_vain = Duration::ZERO,
            },
        }
    }
}
