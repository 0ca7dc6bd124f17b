//! Answers that are streams: made by a thread that may wait, at the pace of whoever reads them. None is ever whole in memory.

use crate::hands::{self, Asker};
use crate::server::reply_with;
use control::{Caller, Control, Outlet};
use control_api::{ErrorKind, FRAME_HEAD_BYTES, Failure, Response, STREAM_TYPE, SendNote, SendRequest, data_head, note_frame};
use http_body_util::Full;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};

/// Bytes of a frame, about.
const FRAME_BYTES: usize = 256 << 10;
/// Frames that wait for their reader.
const FRAMES_MAX: usize = 4;

/// True once whoever gives the pool up has ended the stream.
type Cut = Arc<watch::Sender<bool>>;

/// Frames, as they are made.
pub struct Frames {
    made: mpsc::Receiver<Bytes>,
    /// None once the last frame was taken.
    cut: Option<Cut>,
}

impl Frames {
    /// Frame behind all that were made: of a stream that was ended it says so.
    fn last(&mut self) -> Option<Bytes> {
        let is_cut = self.cut.take().is_some_and(|cut| *cut.borrow());
        let failure = Failure::new(ErrorKind::Busy, "the stream is cut off", "its pool was given up ('zpool export -f')")
            .advise("take it again, or, where it is received with '-s', go on with 'zfs send -t'");
        is_cut.then(|| Bytes::from(note_frame(&SendNote::Failed(failure))))
    }
}

/// Body of an answer.
pub enum Reply {
    /// All of it.
    Whole(Full<Bytes>),
    /// Stream.
    Frames(Frames),
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Reply::Whole(body) => Pin::new(body).poll_frame(context),
            Reply::Frames(frames) => {
                let next = ready!(frames.made.poll_recv(context)).or_else(|| frames.last());
                Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
            }
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
    cut: Cut,
    runtime: Handle,
}

impl Pipe {
    fn new(frames: mpsc::Sender<Bytes>, cut: Cut, runtime: Handle) -> Pipe {
        Pipe { frames, gathered: vec![0; FRAME_HEAD_BYTES], cut, runtime }
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
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let mut cut = self.cut.subscribe();
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                _ = cut.wait_for(|is_cut| *is_cut) => Err(gone()),
                sent = self.frames.send(Bytes::from(frame)) => sent.map_err(|_| gone()),
            }
        })
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
    let cut = Cut::new(watch::channel(false).0);
    let own = cut.clone();
    let (exec, runtime) = (control.exec().clone(), Handle::current());
    let asker = if caller.user.is_none() { Asker::Owner } else { Asker::Delegate };
    let begun = hands::begin(&exec, asker, move || {
        let _kept = kept;
        let ends = own.clone();
        match control.send(&request, &caller, Arc::new(move || _ = ends.send_replace(true))) {
            Ok(outgoing) => {
                if ready.send(Ok(())).is_ok() {
                    outgoing.run(&mut Pipe::new(frames, own, runtime));
                }
            }
            // Who asked may be gone.
            Err(failure) => drop(ready.send(Err(failure))),
        }
    });
    if let Err(failure) = begun {
        return reply_with(&Response::Failed(failure)).map(Reply::Whole);
    }
    let failure = match is_ready.await {
        Ok(Ok(())) => {
            let mut response = hyper::Response::new(Reply::Frames(Frames { made: taken, cut: Some(cut) }));
            response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static(STREAM_TYPE));
            return response;
        }
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(ErrorKind::Internal, "cannot send", "a defect in the daemon"),
    };
    reply_with(&Response::Failed(failure)).map(Reply::Whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a reader that stands still keeps its pool from being exported by force, and is not told why its stream has no end.
    #[test]
    fn whoever_waits_for_a_reader_can_be_ended() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
        let (frames, made) = mpsc::channel(1);
        let cut = Cut::new(watch::channel(false).0);
        let pipe = Pipe::new(frames, cut.clone(), runtime.handle().clone());
        pipe.send(vec![1]).expect("there is room");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| pipe.send(vec![2]).is_err());
            cut.send_replace(true);
            assert_eq!(waits.join().ok(), Some(true));
        });
        let mut frames = Frames { made, cut: Some(cut) };
        assert!(frames.last().is_some_and(|frame| frame.windows(7).any(|part| part == b"cut off")));
        assert!(frames.last().is_none(), "it is said once");
    }

    /// If this fails, whoever reads a stream to its end is told that it was cut off.
    #[test]
    fn a_stream_with_an_end_has_nothing_behind_it() {
        let (_, made) = mpsc::channel(1);
        assert!(Frames { made, cut: Some(Cut::new(watch::channel(false).0)) }.last().is_none());
    }
}
