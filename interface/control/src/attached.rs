//! Descriptor that a command hands to the daemon with its request, as its standard input or output, and the news that the command is gone.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Descriptor of a command. Whoever reads or writes it hears when the command ended, also one that was killed, and when somebody in the daemon ends it.
#[derive(Clone, Debug)]
pub struct Attached {
    descriptor: Arc<OwnedFd>,
    /// End of a pipe whose other end goes with the command's connection.
    gone: Arc<OwnedFd>,
    /// Descriptors that came along, which nobody needs.
    _others: Arc<Vec<OwnedFd>>,
    /// End of a pipe whose other end goes when the daemon does not want it any more.
    ended: Option<Arc<OwnedFd>>,
}

impl Attached {
    /// Descriptor of a command whose end closes the other end of the pipe `gone`.
    pub fn new(descriptor: OwnedFd, gone: OwnedFd) -> Attached {
        Attached { descriptor: Arc::new(descriptor), gone: Arc::new(gone), _others: Arc::default(), ended: None }
    }

    /// Descriptor with others that are closed when it is: that may last.
    #[must_use]
    pub fn with(self, others: Vec<OwnedFd>) -> Attached {
        Attached { _others: Arc::new(others), ..self }
    }

    /// Makes another one of the same descriptor, which can be read and written until what comes with it is dropped.
    ///
    /// # Errors
    /// Those of the system: there are no descriptors left.
    pub(crate) fn endable(&self) -> io::Result<(Attached, OwnedFd)> {
        let (ended, lasts) = io::pipe()?;
        Ok((Attached { ended: Some(Arc::new(ended.into())), ..self.clone() }, lasts.into()))
    }

    /// Waits until the descriptor can be read or written.
    fn wait(&self, wanted: PollFlags) -> io::Result<()> {
        loop {
            let ended = self.ended.as_ref().unwrap_or(&self.gone);
            let [descriptor, gone, ended] = [&self.descriptor, &self.gone, ended];
            let mut polled =
                [PollFd::new(&**descriptor, wanted), PollFd::new(&**gone, PollFlags::IN), PollFd::new(&**ended, PollFlags::IN)];
            match poll(&mut polled, None) {
                Ok(_) if !polled[1].revents().is_empty() => {
                    return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the command was ended"));
                }
                Ok(_) if !polled[2].revents().is_empty() => {
                    return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "it was ended, since its pool is given up"));
                }
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl io::Read for Attached {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.wait(PollFlags::IN)?;
            match rustix::io::read(&*self.descriptor, &mut *buffer) {
                // The command may have it in its own mode.
                Err(Errno::AGAIN | Errno::INTR) => {}
                result => return Ok(result?),
            }
        }
    }
}

impl io::Write for Attached {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        loop {
            self.wait(PollFlags::OUT)?;
            match rustix::io::write(&*self.descriptor, buffer) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                result => return Ok(result?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    /// If this fails, a receive whose command was killed waits for its sender for ever, and keeps the dataset.
    #[test]
    fn the_end_of_a_command_ends_what_it_waits_for() {
        let (input, mut sender) = std::io::pipe().expect("a pipe");
        let (gone, alive) = std::io::pipe().expect("a pipe");
        let mut attached = Attached::new(input.into(), gone.into());
        sender.write_all(b"data").expect("written");
        let mut buffer = [0; 8];
        assert_eq!(attached.read(&mut buffer).expect("read"), 4);
        drop(alive);
        assert_eq!(attached.read(&mut buffer).map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionAborted));
        drop(sender);
    }

    /// If this fails, `zpool export -f` waits for a sender that sends nothing.
    #[test]
    fn the_daemon_can_end_what_it_waits_for() {
        let (input, sender) = std::io::pipe().expect("a pipe");
        let (gone, alive) = std::io::pipe().expect("a pipe");
        let (mut attached, lasts) = Attached::new(input.into(), gone.into()).endable().expect("a pipe");
        drop(lasts);
        let refused = attached.read(&mut [0; 8]).map_err(|error| error.kind());
        assert_eq!(refused, Err(io::ErrorKind::ConnectionAborted));
        drop((sender, alive));
    }
}
