//! HTTP with JSON bodies on the unix socket: `POST /v1/request`, `GET /v1/openapi.json`, `GET /metrics`. The engine works on its own threads.

use control::{Caller, Control};
use control_api::{ErrorKind, Failure, Request, Response, StateDir};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

/// Largest request body; a request is a few properties and paths.
const BODY_BYTES_MAX: usize = 4 << 20;
/// How often it is looked whether a request waits in vain.
const LOOK: Duration = Duration::from_millis(250);
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const OPENAPI: &str = include_str!("../../../docs/openapi.json");

/// Serves until a signal or a stop request.
pub fn serve(state: &StateDir, control: Arc<Control>, metrics: Option<SocketAddr>) -> Result<(), Failure> {
    let failed = |why: String| Failure::new(ErrorKind::Io, "cannot serve requests", why);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("z-control")
        .enable_all()
        .build()
        .map_err(|error| failed(error.to_string()))?;
    let socket = state.socket();
    let result = runtime.block_on(async {
        let listener = UnixListener::bind(&socket).map_err(|error| failed(format!("{}: {error}", socket.display())))?;
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600)).map_err(|error| failed(error.to_string()))?;
        let mut terminate = signal(SignalKind::terminate()).map_err(|error| failed(error.to_string()))?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| failed(error.to_string()))?;
        let stop = Arc::new(Notify::new());
        if let Some(address) = metrics {
            let listener = TcpListener::bind(address).await.map_err(|error| failed(format!("{address}: {error}")))?;
            tokio::spawn(serve_metrics(listener, control.clone()));
        }
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let (stream, _) = accepted.map_err(|error| failed(error.to_string()))?;
                    let (control, stop) = (control.clone(), stop.clone());
                    tokio::spawn(async move {
                        let service = service_fn(move |request| answer(request, control.clone(), stop.clone()));
                        // A client that goes away in the middle is its own business.
                        let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                    });
                }
                () = stop.notified() => break,
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
            }
        }
        Ok(())
    });
    // Requests that still run get to the end of what they do; the pools are closed after them.
    runtime.shutdown_timeout(Duration::from_secs(5));
    result
}

/// Serves the metrics, and nothing else, to the network.
async fn serve_metrics(listener: TcpListener, control: Arc<Control>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, most likely: others give some back.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let control = control.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request: hyper::Request<Incoming>| {
                let control = control.clone();
                async move {
                    let is_it = request.method() == Method::GET && request.uri().path() == control_api::ROUTES[2].1;
                    let reply = if is_it { metrics(control).await } else { json(StatusCode::NOT_FOUND, b"{}".to_vec()) };
                    Ok::<_, Infallible>(reply)
                }
            });
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn metrics(control: Arc<Control>) -> hyper::Response<Full<Bytes>> {
    let text = tokio::task::spawn_blocking(move || control.metrics()).await.unwrap_or_default();
    reply(StatusCode::OK, OPENMETRICS, text.into_bytes())
}

async fn answer(
    request: hyper::Request<Incoming>,
    control: Arc<Control>,
    stop: Arc<Notify>,
) -> Result<hyper::Response<Full<Bytes>>, Infallible> {
    let [(_, requests), (_, document), (_, numbers)] = control_api::ROUTES;
    let reply = match (request.method(), request.uri().path()) {
        (&Method::POST, path) if path == requests => {
            let response = perform(request, control, stop).await;
            let status = if matches!(response, Response::Failed(_)) { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
            json(status, serde_json::to_vec(&response).unwrap_or_default())
        }
        (&Method::GET, path) if path == document => json(StatusCode::OK, OPENAPI.as_bytes().to_vec()),
        (&Method::GET, path) if path == numbers => metrics(control).await,
        _ => json(StatusCode::NOT_FOUND, b"{}".to_vec()),
    };
    Ok(reply)
}

fn json(status: StatusCode, body: Vec<u8>) -> hyper::Response<Full<Bytes>> {
    reply(status, "application/json", body)
}

fn reply(status: StatusCode, kind: &'static str, body: Vec<u8>) -> hyper::Response<Full<Bytes>> {
    let mut response = hyper::Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static(kind));
    response
}

async fn perform(request: hyper::Request<Incoming>, control: Arc<Control>, stop: Arc<Notify>) -> Response {
    let invalid = |why: String| Response::Failed(Failure::new(ErrorKind::Invalid, "cannot read the request", why));
    let command = request.headers().get("zirconia-command").and_then(|value| value.to_str().ok()).map(String::from);
    let caller = Caller { command, uid: rustix::process::getuid().as_raw() };
    let body = match Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return invalid(error.to_string()),
    };
    let request: Request = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(error) => return invalid(error.to_string()),
    };
    if request == Request::Stop {
        // The answer goes out first: ending the loop ends the connections.
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            stop.notify_one();
        });
        return Response::Done { remarks: Vec::new() };
    }
    let (owner, asked) = (control.clone(), request.clone());
    let mut work = tokio::task::spawn_blocking(move || owner.execute(&asked, &caller));
    let mut in_vain = Duration::ZERO;
    loop {
        match tokio::time::timeout(LOOK, &mut work).await {
            Ok(Ok(response)) => return response,
            Ok(Err(error)) => {
                return Response::Failed(
                    Failure::new(ErrorKind::Internal, "the request failed", format!("a defect in the daemon: {error}"))
                        .advise("the daemon goes on; please report this with its log"),
                );
            }
            // The work goes on: nothing can take it back.
            Err(_) => match control.waits_in_vain(&request) {
                Some(failure) if in_vain >= Control::PATIENCE => return Response::Failed(failure),
                Some(_) => in_vain += LOOK,
                None => in_vain = Duration::ZERO,
            },
        }
    }
}
