//! Where a target listens, `unix:PATH` or `tcp:HOST:PORT`, and connections of both kinds.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Address at which a target listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A socket in the file system.
    Unix(PathBuf),
    /// A host, by name or number, and a port.
    Tcp(String),
}

/// A text that is no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError {
    /// Text that is no address.
    pub text: String,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is neither unix:PATH nor tcp:HOST:PORT", self.text)
    }
}
impl std::error::Error for AddressError {}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let wrong = || AddressError { text: text.to_string() };
        match text.split_once(':').ok_or_else(wrong)? {
            ("unix", path) if !path.is_empty() => Ok(Address::Unix(path.into())),
            ("tcp", place) => {
                let (host, port) = place.rsplit_once(':').ok_or_else(wrong)?;
                if host.is_empty() || port.parse::<u16>().is_err() { Err(wrong()) } else { Ok(Address::Tcp(place.to_string())) }
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(place) => write!(f, "tcp:{place}"),
        }
    }
}

/// A connection between a host and a target.
#[derive(Debug)]
pub enum Connection {
    /// Over a socket in the file system.
    Unix(UnixStream),
    /// Over TCP.
    Tcp(TcpStream),
}

impl Connection {
    /// Connects; waits up to `timeout` for each address that a name has.
    ///
    /// # Errors
    /// Why not.
    pub fn open(address: &Address, timeout: Duration) -> io::Result<Connection> {
        match address {
            Address::Unix(path) => UnixStream::connect(path).map(Connection::Unix),
            Address::Tcp(place) => {
                let mut last = io::Error::from(io::ErrorKind::NotFound);
                for one in place.to_socket_addrs()? {
                    match TcpStream::connect_timeout(&one, timeout) {
                        Ok(stream) => return Connection::of_tcp(stream),
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }

    fn of_tcp(stream: TcpStream) -> io::Result<Connection> {
        // A program is one message: waiting for more to send with it only costs time.
        stream.set_nodelay(true)?;
        Ok(Connection::Tcp(stream))
    }

    /// Another handle of the same connection.
    ///
    /// # Errors
    /// Too many open files.
    pub fn try_clone(&self) -> io::Result<Connection> {
        match self {
            Connection::Unix(stream) => stream.try_clone().map(Connection::Unix),
            Connection::Tcp(stream) => stream.try_clone().map(Connection::Tcp),
        }
    }

    /// Sets the time that a read and a write may wait; none: for ever.
    ///
    /// # Errors
    /// A time of zero.
    pub fn set_timeouts(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()> {
        match self {
            Connection::Unix(stream) => stream.set_read_timeout(read).and_then(|()| stream.set_write_timeout(write)),
            Connection::Tcp(stream) => stream.set_read_timeout(read).and_then(|()| stream.set_write_timeout(write)),
        }
    }

    /// True when both ends can be on one machine only, so that files can be passed: over a socket in the file system.
    pub fn is_local(&self) -> bool {
        matches!(self, Connection::Unix(_))
    }

    fn local(&self) -> io::Result<&UnixStream> {
        match self {
            Connection::Unix(stream) => Ok(stream),
            Connection::Tcp(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Sends bytes with a file, which goes with the first of them.
    ///
    /// # Errors
    /// Those of the connection; `Unsupported` for one that is not local.
    pub fn send_with_file(&self, bytes: &[u8], file: BorrowedFd<'_>) -> io::Result<()> {
        let mut stream = self.local()?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let files = [file];
        if !ancillary.push(SendAncillaryMessage::ScmRights(&files)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let sent = loop {
            match sendmsg(stream, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other?,
            }
        };
        stream.write_all(&bytes[sent..])
    }

    /// Reads bytes, and the file that came with them. The file can be anything: see [`crate::Region::accept`].
    ///
    /// # Errors
    /// Those of the connection; `Unsupported` for one that is not local.
    pub fn read_with_file(&self, out: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
        let stream = self.local()?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let count = recvmsg(stream, &mut [IoSliceMut::new(out)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?.bytes;
        let files = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => files.last(),
            _ => None,
        });
        Ok((count, files.last()))
    }

    /// Ends the connection for all of its handles: whoever reads or writes wakes up.
    pub fn shut_down(&self) {
        // It may have ended already.
        let _ = match self {
            Connection::Unix(stream) => stream.shutdown(Shutdown::Both),
            Connection::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

/// Reads a connection and keeps the last file that comes.
#[derive(Debug)]
pub struct WithFile<'a> {
    /// Connection to read: nothing of it may lie in a buffer elsewhere.
    pub connection: &'a Connection,
    /// File that came last.
    pub file: Option<OwnedFd>,
}

impl Read for WithFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (count, file) = self.connection.read_with_file(buffer)?;
        if file.is_some() {
            self.file = file;
        }
        Ok(count)
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Connection::Unix(stream) => stream.read(buffer),
            Connection::Tcp(stream) => stream.read(buffer),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Connection::Unix(stream) => stream.write(buffer),
            Connection::Tcp(stream) => stream.write(buffer),
        }
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Connection::Unix(stream) => stream.write_vectored(buffers),
            Connection::Tcp(stream) => stream.write_vectored(buffers),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Socket at which connections come in.
#[derive(Debug)]
pub enum Listener {
    /// A socket in the file system, removed again with this.
    Unix(UnixListener, PathBuf),
    /// Socket of a port.
    Tcp(TcpListener),
}

impl Listener {
    /// Listens at an address. Only the owner may connect to a socket in the file system; one that a dead process left is replaced.
    ///
    /// # Errors
    /// Why not.
    pub fn bind(address: &Address) -> io::Result<Listener> {
        let path = match address {
            Address::Tcp(place) => return TcpListener::bind(place.as_str()).map(Listener::Tcp),
            Address::Unix(path) => path,
        };
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_deserted(path) => {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)?
            }
            other => other?,
        };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Listener::Unix(listener, path.clone()))
    }

    /// The next connection.
    ///
    /// # Errors
    /// Those of the system.
    pub fn accept(&self) -> io::Result<Connection> {
        match self {
            Listener::Unix(listener, _) => listener.accept().map(|(stream, _)| Connection::Unix(stream)),
            Listener::Tcp(listener) => listener.accept().and_then(|(stream, _)| Connection::of_tcp(stream)),
        }
    }

    /// Address at which it listens: with the port that the system chose, for port 0.
    ///
    /// # Errors
    /// Those of the system.
    pub fn address(&self) -> io::Result<Address> {
        match self {
            Listener::Unix(_, path) => Ok(Address::Unix(path.clone())),
            Listener::Tcp(listener) => listener.local_addr().map(|address| Address::Tcp(address.to_string())),
        }
    }
}

/// True for a socket on which nobody listens.
fn is_deserted(path: &std::path::Path) -> bool {
    UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            // Somebody may have removed it.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a user writes is what a user reads; anything else is refused by name.
    #[test]
    fn addresses_come_back_as_they_were_written() {
        for text in ["unix:/run/target", "unix:a:b", "tcp:localhost:4420", "tcp:[::1]:1", "tcp:10.0.0.1:65535"] {
            assert_eq!(text.parse::<Address>().map(|address| address.to_string()), Ok(text.to_string()));
        }
        for text in ["", "unix:", "tcp:", "tcp:host", "tcp::1", "tcp:host:65536", "tcp:host:", "udp:host:1", "host:1"] {
            assert_eq!(text.parse::<Address>().map_err(|error| error.text), Err(text.to_string()));
        }
    }
}
