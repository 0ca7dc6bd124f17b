//! Answers that are streams, as they come over the daemon's socket: frames are handed on one by one, and nothing is kept.

use crate::closed::worded;
use control_api::{ErrorKind, Failure, Frames, Piece, Response, STREAM_TYPE};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use std::time::Duration;

/// Time without anything after which `take` is called all the same: whoever shows progress does it once a second.
const IDLE: Duration = Duration::from_secs(1);

/// Failure of a stream whose connection ended in the middle.
fn cut_off() -> Failure {
    Failure::new(ErrorKind::Disconnected, "the stream is cut off", "the daemon ended, or was replaced")
        .advise("take it again, or, where it is received with '-s', go on with 'zfs send -t'")
}

/// Sends a request over a connection, and hands on the pieces of the answer.
pub(crate) async fn receive(
    stream: tokio::net::UnixStream,
    request: hyper::http::request::Builder,
    body: Vec<u8>,
    take: &mut dyn FnMut(Piece<'_>) -> Result<(), Failure>,
    failed: &dyn Fn(String) -> Failure,
) -> Result<(), Failure> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(worded(&error)))?;
    // It runs whenever this waits: a reader that takes its time makes the daemon wait.
    tokio::spawn(connection);
    let request = request.header("host", "zirconia").body(Full::new(Bytes::from(body))).map_err(|error| failed(error.to_string()))?;
    let response = sender.send_request(request).await.map_err(|error| failed(worded(&error)))?;
    let is_stream = response.headers().get("content-type").is_some_and(|kind| kind == STREAM_TYPE);
    let body = response.into_body();
    if is_stream { pieces(body, take).await } else { Err(refusal(body, failed).await) }
}

/// Failure in an answer that is no stream.
async fn refusal(body: Incoming, failed: &dyn Fn(String) -> Failure) -> Failure {
    match body.collect().await {
        Ok(whole) => match serde_json::from_slice(&whole.to_bytes()) {
            Ok(Response::Failed(failure)) => failure,
            Ok(other) => Failure::new(ErrorKind::Internal, "cannot send", format!("the daemon gave an unexpected answer: {other:?}")),
            Err(error) => failed(error.to_string()),
        },
        Err(error) => failed(worded(&error)),
    }
}

async fn pieces(mut body: Incoming, take: &mut dyn FnMut(Piece<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut frames = Frames::default();
    loop {
        match tokio::time::timeout(IDLE, body.frame()).await {
            Err(_) => take(Piece::Idle)?,
            Ok(None) => return Ok(()),
            Ok(Some(Ok(frame))) => {
                if let Ok(bytes) = frame.into_data() {
                    frames.push(&bytes, take)?;
                }
            }
            Ok(Some(Err(_))) => return Err(cut_off()),
        }
    }
}
