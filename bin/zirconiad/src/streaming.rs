//! Answers that are streams: made by a thread that may wait, at the pace of whoever reads them. None is ever whole in memory.

use crate::server::reply_with;
use control::{Caller, Control, Outlet};
use control_api::{ErrorKind, FRAME_HEAD_BYTES, Failure, Response, STREAM_TYPE, SendNote, SendRequest, data_head, note_frame};
use http_body_util::Full;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::{mpsc, oneshot};

/// Bytes of a frame, about.
const FRAME_BYTES: usize = 256 << 10;
/// Frames that wait for their reader.
const FRAMES_MAX: usize = 4;

/// Body of an answer.
pub enum Reply {
    /// All of it.
    Whole(Full<Bytes>),
    /// Frames, as they are made.
    Frames(mpsc::Receiver<Bytes>),
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Reply::Whole(body) => Pin::new(body).poll_frame(context),
            Reply::Frames(frames) => frames.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Reply::Whole(body) => body.is_end_stream(),
            Reply::Frames(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Reply::Whole(body) => body.size_hint(),
            Reply::Frames(_) => SizeHint::default(),
        }
    }
}

/// Way of a stream to the connection: bytes are gathered to frames, and who makes them waits when too many are on their way.
struct Pipe {
    frames: mpsc::Sender<Bytes>,
    gathered: Vec<u8>,
}

impl Pipe {
    fn new(frames: mpsc::Sender<Bytes>) -> Pipe {
        Pipe { frames, gathered: vec![0; FRAME_HEAD_BYTES] }
    }

    fn flush(&mut self) -> io::Result<()> {
        let bytes = self.gathered.len() - FRAME_HEAD_BYTES;
        if bytes == 0 {
            return Ok(());
        }
        let mut frame = std::mem::replace(&mut self.gathered, vec![0; FRAME_HEAD_BYTES]);
        frame[..FRAME_HEAD_BYTES].copy_from_slice(&data_head(bytes as u32));
        self.send(frame)
    }

    fn send(&self, frame: Vec<u8>) -> io::Result<()> {
        self.frames.blocking_send(Bytes::from(frame)).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }
}

impl Outlet for Pipe {
    fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.gathered.extend_from_slice(bytes);
        if self.gathered.len() >= FRAME_BYTES { self.flush() } else { Ok(()) }
    }

    fn note(&mut self, note: &SendNote) -> io::Result<()> {
        self.flush()?;
        self.send(note_frame(note))
    }
}

/// Answers with the stream that is asked for, or says why there is none; `kept` lives as long as it is worked on.
pub async fn send<K: Send + 'static>(request: SendRequest, caller: Caller, control: Arc<Control>, kept: K) -> hyper::Response<Reply> {
    let (frames, taken) = mpsc::channel(FRAMES_MAX);
    let (ready, is_ready) = oneshot::channel();
    tokio::task::spawn_blocking(move || {
        let _kept = kept;
        match control.send(&request, &caller) {
            Ok(outgoing) => {
                if ready.send(Ok(())).is_ok() {
                    outgoing.run(&mut Pipe::new(frames));
                }
            }
            // Who asked may be gone.
            Err(failure) => drop(ready.send(Err(failure))),
        }
    });
    let failure = match is_ready.await {
        Ok(Ok(())) => {
            let mut response = hyper::Response::new(Reply::Frames(taken));
            response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static(STREAM_TYPE));
            return response;
        }
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(ErrorKind::Internal, "cannot send", "a defect in the daemon"),
    };
    reply_with(&Response::Failed(failure)).map(Reply::Whole)
}
