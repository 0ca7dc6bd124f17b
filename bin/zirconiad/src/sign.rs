//! The pipe by which a daemon that begins tells whoever waits for that how it went ([`crate::launch`]).

use control_api::Failure;
use rustix::fs::FileType;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Byte by which a daemon says that it serves requests; no message has it.
pub const LISTENS: u8 = 0;

/// Pipe at which a process waits for this daemon, until it is told how the daemon's beginning went.
#[derive(Debug)]
pub struct Sign(Option<OwnedFd>);

impl Sign {
    /// Keeps the pipe that standard output is as long as somebody waits; it is the log's later.
    ///
    /// # Errors
    /// Those of the system.
    pub fn keep() -> io::Result<Sign> {
        let output = io::stdout();
        let is_pipe = rustix::fs::fstat(&output).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Fifo);
        Ok(Sign(if is_pipe { Some(output.as_fd().try_clone_to_owned()?) } else { None }))
    }

    /// Sign to whoever reads from this pipe.
    #[cfg(test)]
    pub fn at(pipe: OwnedFd) -> Sign {
        Sign(Some(pipe))
    }

    /// Sign to nobody.
    pub fn none() -> Sign {
        Sign(None)
    }

    /// Tells whoever waits that this daemon serves requests.
    pub fn announce(&mut self) {
        self.tell(&[LISTENS]);
    }

    /// Tells whoever still waits why this daemon does not come: the log has it too.
    pub fn fail(&mut self, why: &Failure) {
        self.tell(format!("zirconiad: {why}\n").as_bytes());
    }

    fn tell(&mut self, bytes: &[u8]) {
        if let Some(pipe) = self.0.take() {
            let _ = rustix::io::write(&pipe, bytes);
        }
    }
}
