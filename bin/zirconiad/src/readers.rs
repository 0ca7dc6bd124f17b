//! The port of the metrics: whoever reaches it may read them, and nothing else. One that has not asked gives its place up for the next, of the same
//! address or of another one; one that is answered, only for an address with fewer.

use crate::server::{self, ACCEPT_PAUSE, SAYING_MAX};
use control::Control;
use crowd::{Crowd, Origin, Place};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Time that somebody who only reads metrics may take for all of it.
const READING_MAX: Duration = Duration::from_secs(30);
/// Bytes of the head of a question for metrics, at most.
const HEAD_BYTES: usize = 16 << 10;

/// Answer about metrics.
type Reply = hyper::Response<Full<Bytes>>;

/// Limits of the port.
#[derive(Clone, Copy)]
struct Limits {
    connections: usize,
    /// Time for the question …
    saying: Duration,
    /// … and for all of a connection.
    reading: Duration,
}

/// Serves the metrics, and nothing else, to the network.
pub async fn serve(listener: TcpListener, control: Arc<Control>) {
    let limits = Limits { connections: server::readers_max(), saying: SAYING_MAX, reading: READING_MAX };
    serve_within(listener, limits, move || server::metrics(control.clone())).await;
}

async fn serve_within<A, F>(listener: TcpListener, limits: Limits, answer: A)
where
    A: Fn() -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Reply> + Send + 'static,
{
    let crowd = Crowd::new("connections to the metrics ask nothing");
    let mut readers = JoinSet::new();
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        while readers.try_join_next().is_some() {}
        let is_full = readers.len() >= limits.connections;
        let Some(place) = crowd.enter(Origin::Address(peer.ip()), limits.connections, is_full) else { continue };
        readers.spawn(connection(stream, place, limits, answer.clone()));
        // Who made room goes first.
        while readers.len() > limits.connections {
            readers.join_next().await;
        }
    }
}

async fn connection<A, F>(stream: TcpStream, place: Place, limits: Limits, answer: A)
where
    A: Fn() -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Reply> + Send + 'static,
{
    let (leave, place) = (place.leave(), Arc::new(place));
    let own = place.clone();
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let (place, answer) = (own.clone(), answer.clone());
        async move {
            place.admitting();
            let is_it = request.method() == Method::GET && request.uri().path() == control_api::ROUTES[2].1;
            let reply = if is_it { answer().await } else { server::json(StatusCode::NOT_FOUND, b"{}".to_vec()) };
            // It only has to be read.
            place.comes_in();
            Ok::<_, Infallible>(reply)
        }
    });
    let served = server::http(limits.saying).max_buf_size(HEAD_BYTES).serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        _ = tokio::time::timeout(limits.reading, served) => {}
        () = leave.notified() => {}
    }
    drop(place);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, connections that say nothing keep whoever watches the machine from its numbers: this would never end.
    #[test]
    fn who_says_nothing_makes_room_for_who_asks() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("its address");
            let hour = Duration::from_secs(3600);
            let limits = Limits { connections: 2, saying: hour, reading: hour };
            tokio::spawn(serve_within(listener, limits, || async { server::json(StatusCode::OK, b"7".to_vec()) }));
            let mut silent = Vec::new();
            for _ in 0..5 {
                silent.push(TcpStream::connect(address).await.expect("a connection"));
            }
            let stream = TcpStream::connect(address).await.expect("a connection");
            let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("a connection");
            tokio::spawn(connection);
            let request = hyper::Request::get(control_api::ROUTES[2].1).header("host", "z").body(Full::new(Bytes::new()));
            let answer = sender.send_request(request.expect("a request")).await.expect("an answer");
            assert_eq!(answer.status(), StatusCode::OK);
            drop(silent);
        });
    }
}
