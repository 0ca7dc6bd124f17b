//! Questions of every local user (`zpool list`, `zfs get`, `zpool status` …), and what was delegated to users (`zfs allow`), on a socket of their
//! own that root's daemon opens to all.
//!
//! Whoever asks here is a stranger. [`Request::for_everyone`] says what is answered, [`Request::is_delegable`] what is done for those who were
//! allowed to; who that is the kernel says, when they connect. The threads are not those that serve the owner, nor those that answer questions the
//! ones that do what was delegated; and connections, their time and what they may send are bounded, those of a user to a share of all ([`Hall`]), so that
//! a flood of one stranger keeps that one waiting and nobody else.

use crate::hall::{self, Guests, Hall, Seat, Standing};
use crate::server;
use crate::streaming::{self, Reply};
use control::{Attached, Caller, Control, Subject};
use control_api::{ErrorKind, Failure, Request, Response, StateDir};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::Semaphore;

/// Number of questions that are worked on at a time.
const THREADS: usize = 4;
/// Number of requests at a time whose sender was allowed something, of all and of one user: streams take as long as they take.
const DELEGATED_MAX: usize = 32;
const DELEGATED_OF_A_USER_MAX: usize = 4;
/// Longest life of a connection for which nothing delegated is done, and of its first line.
const CONNECTION: Duration = Duration::from_secs(60);
const FIRST_LINE: Duration = Duration::from_secs(5);
/// Time in which one who has no place can say what it wants and be told so.
const FAREWELL: Duration = Duration::from_millis(500);
/// Time that what is being done for users gets to end when the daemon does.
const ENDING: Duration = Duration::from_secs(5);
/// Bytes of the largest request: a few names.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Characters of a command line that are written into a pool's history, at most.
const COMMAND_CHARACTERS_MAX: usize = 4096;
/// Pause after a connection could not be accepted (out of descriptors, most likely).
const PAUSE: Duration = Duration::from_millis(100);
/// Pause between looks whether the socket is still there.
const LOOK: Duration = Duration::from_secs(5);

/// Threads that serve everybody: those that answer questions, and those that do what was delegated.
pub struct Everyone {
    questions: Runtime,
    delegated: Runtime,
}

impl Everyone {
    /// Ends the service: questions at once, as none of them holds up the owner's stop; what is being done for users gets a moment.
    pub fn end(self) {
        self.questions.shutdown_background();
        self.delegated.shutdown_timeout(ENDING);
    }
}

/// Parts that requests of users need.
#[derive(Clone)]
struct Desk {
    control: Arc<Control>,
    /// Threads for what was delegated.
    delegated: Handle,
    workers: Arc<Guests>,
    /// Turns of questions, so many at a time.
    turns: Arc<Semaphore>,
}

/// Begins to answer; ends when what is returned is dropped. None where this is not root's daemon: an ordinary user's pools are that user's own.
pub fn serve(state: &StateDir, control: Arc<Control>) -> Result<Option<Everyone>, Failure> {
    let socket = state.reader_socket();
    // Of a daemon that died; the lock is ours.
    let _ = std::fs::remove_file(&socket);
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let failed = |error: std::io::Error| Failure::new(ErrorKind::Io, "cannot serve requests", format!("{}: {error}", socket.display()));
    let (questions, delegated) = (runtime("z-everyone").map_err(failed)?, runtime("z-delegated").map_err(failed)?);
    let listener = {
        let _inside = questions.enter();
        listen(&socket).map_err(failed)?
    };
    let workers = Guests::new((DELEGATED_MAX, DELEGATED_OF_A_USER_MAX));
    let turns = Arc::new(Semaphore::new(THREADS));
    let desk = Desk { control, delegated: delegated.handle().clone(), workers, turns };
    questions.spawn(accept(listener, socket, desk));
    Ok(Some(Everyone { questions, delegated }))
}

fn runtime(name: &str) -> std::io::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).thread_name(name).enable_all().build()
}

fn listen(socket: &Path) -> std::io::Result<UnixListener> {
    let listener = UnixListener::bind(socket)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

async fn accept(mut listener: UnixListener, socket: PathBuf, desk: Desk) {
    let hall = Hall::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // Whoever removes the state directory removes this socket too.
            () = tokio::time::sleep(LOOK) => {
                if !socket.exists() && let Ok(again) = listen(&socket) {
                    listener = again;
                }
                continue;
            }
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let Some(user) = user_of(&stream) else { continue };
        match hall.enter(user.uid) {
            Some(Standing::Served(seat)) => drop(tokio::spawn(connection(stream, user, Arc::new(seat), desk.clone()))),
            Some(Standing::Refused(place, why)) => drop(tokio::spawn(async move {
                farewell(stream, why, FAREWELL).await;
                drop(place);
            })),
            // Too many of this user's are just going: it ends without a word, and they go.
            None => tokio::task::yield_now().await,
        }
    }
}

/// User at the other end of a connection, as the kernel saw it when it connected, with the groups that the process had, its own first.
fn user_of(stream: &UnixStream) -> Option<Subject> {
    let peer = stream.peer_cred().ok()?;
    let mut groups = vec![peer.gid()];
    // Where they cannot be told nothing is done that needs them.
    groups.extend(service::peer_groups(stream.as_fd()).unwrap_or_default());
    Some(Subject { uid: peer.uid(), groups })
}

/// Tells whoever asks within a time why there is no place, and ends.
async fn farewell(stream: UnixStream, why: &'static str, time: Duration) {
    let service = service_fn(move |request: hyper::Request<Incoming>| async move {
        // Who still writes would not read the answer.
        let _ = Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await;
        Ok::<_, Infallible>(turned_away(why))
    });
    // One that says nothing is told nothing.
    let _ = tokio::time::timeout(time, server::http(time).serve_connection(TokioIo::new(stream), service)).await;
}

/// Answer to one who has no place.
fn turned_away(why: &str) -> hyper::Response<Reply> {
    let failure = Failure::new(ErrorKind::Busy, "cannot ask the daemon", why);
    let mut reply = whole(&Response::Failed(failure.advise("nothing was done: try again when some of them have ended")));
    *reply.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    reply
}

async fn connection(stream: UnixStream, user: Subject, seat: Arc<Seat>, desk: Desk) {
    let attached = tokio::select! {
        taken = tokio::time::timeout(FIRST_LINE, server::attached(&stream)) => taken,
        () = seat.lost() => return,
    };
    let Ok(attached) = attached else { return };
    seat.heard();
    let (attached, alive) = attached.unzip();
    let is_working = Arc::new(AtomicBool::new(false));
    let (working, given, own) = (is_working.clone(), attached.clone(), seat.clone());
    let service = service_fn(move |request| {
        let sender = Sender { user: user.clone(), attached: given.clone(), seat: own.clone() };
        answer(request, desk.clone(), sender, working.clone())
    });
    {
        let served = server::http(FIRST_LINE).serve_connection(TokioIo::new(stream), service);
        tokio::pin!(served);
        loop {
            tokio::select! {
                // A client that goes away, or takes too long, is its own business. What it was allowed takes as long as it takes.
                ended = tokio::time::timeout(CONNECTION, &mut served) => {
                    if ended.is_ok() || !is_working.load(Ordering::Acquire) {
                        break;
                    }
                }
                () = seat.lost() => break,
            }
        }
    }
    drop(alive);
    // Closing what a stranger handed over lasts as long as whoever serves that file likes (FUSE): a thread and the stranger's place wait for it.
    if let Some(attached) = attached {
        drop(std::thread::Builder::new().name("z-closing".to_string()).spawn(move || drop((attached, seat))));
    }
}

/// Sender of a request.
struct Sender {
    user: Subject,
    attached: Option<Attached>,
    seat: Arc<Seat>,
}

async fn answer(
    request: hyper::Request<Incoming>,
    desk: Desk,
    sender: Sender,
    working: Arc<AtomicBool>,
) -> Result<hyper::Response<Reply>, Infallible> {
    if (request.method(), request.uri().path()) != (&Method::POST, control_api::ROUTES[0].1) {
        return Ok(server::json(StatusCode::NOT_FOUND, b"{}".to_vec()).map(Reply::Whole));
    }
    Ok(perform(request, desk, sender, &working).await)
}

fn whole(response: &Response) -> hyper::Response<Reply> {
    let reply: hyper::Response<Full<Bytes>> = server::reply_with(response);
    reply.map(Reply::Whole)
}

async fn perform(
    request: hyper::Request<Incoming>,
    desk: Desk,
    Sender { user, attached, seat }: Sender,
    working: &AtomicBool,
) -> hyper::Response<Reply> {
    let invalid = |why: String| whole(&Response::Failed(Failure::new(ErrorKind::Invalid, "cannot read the request", why)));
    let command = request.headers().get("zirconia-command").and_then(|value| value.to_str().ok());
    let command: Option<String> = command.map(|line| line.chars().take(COMMAND_CHARACTERS_MAX).collect());
    let body = match Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return invalid(error.to_string()),
    };
    // From now on it keeps its place.
    if !seat.has_asked() {
        return turned_away(hall::LOST);
    }
    let uid = user.uid;
    match serde_json::from_slice::<Request>(&body) {
        Err(error) => invalid(error.to_string()),
        Ok(request) if request.is_delegable() => {
            let caller = Caller { command, uid, user: Some(user), attached };
            delegated(request, caller, desk, working).await
        }
        Ok(request) => match request.for_everyone() {
            // Nothing of theirs is written into a pool's history.
            Some(request) => {
                let caller = Caller { command: None, uid, user: Some(user), attached: None };
                // Nobody closes the semaphore.
                let turn = desk.turns.acquire_owned().await.ok();
                whole(&server::execute(desk.control, request, caller, turn).await)
            }
            None => whole(&Response::Failed(request.refusal())),
        },
    }
}

/// Has done what a user may have been allowed, on threads that no question waits for.
async fn delegated(request: Request, caller: Caller, desk: Desk, working: &AtomicBool) -> hyper::Response<Reply> {
    let refused = |kind, why: &str| whole(&Response::Failed(Failure::new(kind, request.refusal().what, why)));
    let Some(place) = desk.workers.enter(caller.uid) else {
        return refused(ErrorKind::Busy, "too many requests of yours, or of all users, are being worked on");
    };
    working.store(true, Ordering::Release);
    let (control, asked) = (desk.control, request.clone());
    let work = desk.delegated.spawn(async move {
        match asked {
            Request::Send(asked) => streaming::send(asked, caller, control, place).await,
            asked => whole(&server::execute(control, asked, caller, place).await),
        }
    });
    let reply = work.await.unwrap_or_else(|_| refused(ErrorKind::Internal, "a defect in the daemon"));
    // Who reads a stream takes the time that it takes.
    working.store(matches!(reply.body(), Reply::Frames(_)), Ordering::Release);
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a user with too many requests under way sees connections that break, and not why, nor that nothing was done.
    #[test]
    fn who_has_no_place_is_told_so() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (status, body) = runtime.block_on(async {
            let (own, other) = UnixStream::pair().expect("sockets");
            tokio::spawn(farewell(other, "too many connections of this user", Duration::from_secs(3600)));
            let (mut sender, driver) = hyper::client::conn::http1::handshake(TokioIo::new(own)).await.expect("a connection");
            tokio::spawn(driver);
            let request = hyper::Request::post(control_api::ROUTES[0].1).header("host", "z").body(Full::new(Bytes::from("{}")));
            let answer = sender.send_request(request.expect("a request")).await.expect("an answer");
            (answer.status(), answer.into_body().collect().await.expect("its body").to_bytes())
        });
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        let Ok(Response::Failed(failure)) = serde_json::from_slice(&body) else { panic!("no failure") };
        assert_eq!((failure.kind, failure.why.as_str()), (ErrorKind::Busy, "too many connections of this user"));
        assert!(failure.next.is_some_and(|next| next.starts_with("nothing was done")));
    }
}
