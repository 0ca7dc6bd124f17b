//! Questions of every local user (`zpool list`, `zfs get`, `zpool status` …), on a socket of their own that root's daemon opens to all.
//!
//! Whoever asks here is a stranger. [`Request::for_everyone`] says what is answered. The threads are not those that serve the owner,
//! and connections, their time and what they may send are bounded, so that a flood of strangers keeps strangers waiting and nobody else.

use crate::server;
use control::{Caller, Control};
use control_api::{ErrorKind, Failure, Request, Response, StateDir};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Runtime;

/// Number of requests that are worked on at a time.
const THREADS: usize = 4;
/// Number of connections at a time, of all and of one user.
const CONNECTIONS_MAX: usize = 64;
const CONNECTIONS_OF_A_USER_MAX: usize = 16;
/// Longest life of a connection, and of its first line.
const CONNECTION: Duration = Duration::from_secs(60);
const FIRST_LINE: Duration = Duration::from_secs(5);
/// Bytes of the largest request: a few names.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Pause after a connection could not be accepted (out of descriptors, most likely).
const PAUSE: Duration = Duration::from_millis(100);
/// Pause between looks whether the socket is still there.
const LOOK: Duration = Duration::from_secs(5);

/// Number of open connections, by user.
#[derive(Default)]
struct Guests(Mutex<BTreeMap<u32, usize>>);

/// Place of a connection among them.
struct Place(Arc<Guests>, u32);

impl Guests {
    fn enter(self: &Arc<Self>, uid: u32) -> Option<Place> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, own) = (places.values().sum::<usize>(), places.get(&uid).copied().unwrap_or(0));
        if all >= CONNECTIONS_MAX || own >= CONNECTIONS_OF_A_USER_MAX {
            return None;
        }
        places.insert(uid, own + 1);
        Some(Place(self.clone(), uid))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = places.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                places.remove(&self.1);
            }
        }
    }
}

/// Begins to answer; ends when what is returned is dropped. None where this is not root's daemon: an ordinary user's pools are that user's own.
pub fn serve(state: &StateDir, control: Arc<Control>) -> Result<Option<Runtime>, Failure> {
    let socket = state.reader_socket();
    // Of a daemon that died; the lock is ours.
    let _ = std::fs::remove_file(&socket);
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let failed = |error: std::io::Error| Failure::new(ErrorKind::Io, "cannot serve requests", format!("{}: {error}", socket.display()));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(THREADS)
        .thread_name("z-everyone")
        .enable_all()
        .build()
        .map_err(failed)?;
    let listener = {
        let _inside = runtime.enter();
        listen(&socket).map_err(failed)?
    };
    runtime.spawn(accept(listener, socket, control));
    Ok(Some(runtime))
}

fn listen(socket: &Path) -> std::io::Result<UnixListener> {
    let listener = UnixListener::bind(socket)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

async fn accept(mut listener: UnixListener, socket: PathBuf, control: Arc<Control>) {
    let guests = Arc::new(Guests::default());
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
        let Ok(peer) = stream.peer_cred() else { continue };
        // One who has too many already is turned away: the connection ends.
        let Some(place) = guests.enter(peer.uid()) else { continue };
        tokio::spawn(connection(stream, place, control.clone()));
    }
}

async fn connection(stream: UnixStream, place: Place, control: Arc<Control>) {
    let uid = place.1;
    let service = service_fn(move |request| answer(request, control.clone(), uid));
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(FIRST_LINE).keep_alive(false);
    // A client that goes away, or takes too long, is its own business.
    let _ = tokio::time::timeout(CONNECTION, builder.serve_connection(TokioIo::new(stream), service)).await;
}

async fn answer(request: hyper::Request<Incoming>, control: Arc<Control>, uid: u32) -> Result<hyper::Response<Full<Bytes>>, Infallible> {
    if (request.method(), request.uri().path()) != (&Method::POST, control_api::ROUTES[0].1) {
        return Ok(server::json(StatusCode::NOT_FOUND, b"{}".to_vec()));
    }
    Ok(server::reply_with(&perform(request, control, uid).await))
}

async fn perform(request: hyper::Request<Incoming>, control: Arc<Control>, uid: u32) -> Response {
    let invalid = |why: String| Response::Failed(Failure::new(ErrorKind::Invalid, "cannot read the request", why));
    let body = match Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return invalid(error.to_string()),
    };
    match serde_json::from_slice::<Request>(&body) {
        Err(error) => invalid(error.to_string()),
        Ok(request) => match request.for_everyone() {
            // Nothing of theirs is written into a pool's history.
            Some(request) => server::execute(control, request, Caller { command: None, uid, attached: None }).await,
            None => Response::Failed(request.refusal()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, one user keeps all others from asking.
    #[test]
    fn one_user_cannot_take_every_place() {
        let guests = Arc::new(Guests::default());
        let mut places: Vec<Place> = (0..CONNECTIONS_OF_A_USER_MAX).filter_map(|_| guests.enter(1000)).collect();
        assert_eq!(places.len(), CONNECTIONS_OF_A_USER_MAX);
        assert!(guests.enter(1000).is_none());
        places.extend((1001..2000).filter_map(|uid| guests.enter(uid)));
        assert_eq!(places.len(), CONNECTIONS_MAX);
        places.clear();
        assert!(guests.enter(1000).is_some());
        assert!(guests.0.lock().expect("no panic").is_empty(), "who left is forgotten");
    }
}
