//! Frames on a Unix socket, and files that come with them.

use crate::frame::{HEADER_BYTES, Header};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Sends a frame; a file goes with its first byte.
///
/// # Errors
/// Those of the socket.
pub fn send_frame(stream: &UnixStream, frame: &[u8], file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !with.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let sent = loop {
        match sendmsg(stream, &[IoSlice::new(frame)], &mut with, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            result => break result?,
        }
    };
    let mut rest = stream;
    rest.write_all(frame.get(sent..).unwrap_or_default())
}

/// Receiving end of a socket.
#[derive(Debug)]
pub struct Inlet {
    stream: UnixStream,
    /// Files that came with the frame that is being received.
    files: Vec<OwnedFd>,
}

impl Inlet {
    /// Receives from a socket.
    pub fn new(stream: UnixStream) -> Inlet {
        Inlet { stream, files: Vec::new() }
    }

    fn fill(&mut self, out: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < out.len() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut with = RecvAncillaryBuffer::new(&mut space);
            let count = match recvmsg(&self.stream, &mut [IoSliceMut::new(&mut out[filled..])], &mut with, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => received.bytes,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            for message in with.drain() {
                if let RecvAncillaryMessage::ScmRights(files) = message {
                    self.files.extend(files);
                }
            }
            // Whoever sends one with every byte has none of them kept for long.
            self.files.truncate(2);
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            filled += count;
        }
        Ok(())
    }

    /// Receives bytes of a header.
    ///
    /// # Errors
    /// Those of the socket; `UnexpectedEof` at its end.
    pub fn header(&mut self) -> io::Result<[u8; HEADER_BYTES]> {
        let mut bytes = [0; HEADER_BYTES];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// Receives the body behind a header, with the files that came.
    ///
    /// # Errors
    /// As of [`Inlet::header`].
    pub fn body(&mut self, header: &Header) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        let mut body = vec![0; header.length as usize];
        self.fill(&mut body)?;
        Ok((body, std::mem::take(&mut self.files)))
    }
}
