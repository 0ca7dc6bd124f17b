//! A client: one connection, one request at a time. What the server says meanwhile of transactions that are on disk is kept.

use crate::fields::{Fields, Malformed};
use crate::frame::{COMMITTED, Header, REFUSED, REPLY};
use crate::memory::Memory;
use crate::operation::{Fid, Operation, Piece};
use crate::reply::{self, Attributes, Entries, Limits, Reply, Space};
use crate::request::{Request, VERSION};
use crate::socket::{Inlet, send_frame};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Reason why a request was not done.
#[derive(Debug)]
pub enum ClientError {
    /// Connection failed, or ended.
    Io(io::Error),
    /// One of the two does not speak the protocol.
    Protocol(Malformed),
    /// Server says no.
    Failed {
        /// Error number of Linux.
        errno: u32,
        /// Number of operations of the transaction that were performed, and stay.
        done: u32,
    },
}

impl ClientError {
    /// Error number of the server; none where it is not the server that says no.
    pub fn errno(&self) -> Option<u32> {
        if let ClientError::Failed { errno, .. } = self { Some(*errno) } else { None }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Io(error) => write!(f, "the connection failed: {error}"),
            ClientError::Protocol(error) => write!(f, "the protocol was not kept: {error}"),
            ClientError::Failed { errno, .. } => write!(f, "{}", io::Error::from_raw_os_error(*errno as i32)),
        }
    }
}

impl std::error::Error for ClientError {}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> ClientError {
        ClientError::Io(error)
    }
}

impl From<Malformed> for ClientError {
    fn from(error: Malformed) -> ClientError {
        ClientError::Protocol(error)
    }
}

/// Outcome of a transaction, which comes when its txg is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Number that [`Client::transact`] gave the transaction.
    pub transaction: u64,
    /// True when it is on disk; false when it never will be.
    pub is_on_disk: bool,
}

/// Connection to an object storage device.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    inlet: Inlet,
    last: u64,
    limits: Limits,
    committed: VecDeque<Committed>,
}

impl Client {
    /// Connects to the socket at a path.
    ///
    /// # Errors
    /// Those of the system; the server speaks no version that is known.
    pub fn connect(path: &Path) -> Result<Client, ClientError> {
        Client::over(UnixStream::connect(path)?)
    }

    /// Begins on a connection.
    ///
    /// # Errors
    /// As of [`Client::connect`].
    pub fn over(stream: UnixStream) -> Result<Client, ClientError> {
        let inlet = Inlet::new(stream.try_clone()?);
        let mut client = Client { stream, inlet, last: 0, limits: Limits::default(), committed: VecDeque::new() };
        client.limits = Limits::decode(&client.ask(&Request::Hello(VERSION))?)?;
        Ok(client)
    }

    /// Limits that the server has.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Opens the device on a dataset; returns the bytes of a record.
    ///
    /// # Errors
    /// Those of the server: no such dataset, a mounted one, one without objects.
    pub fn open(&mut self, dataset: &str) -> Result<u64, ClientError> {
        let content = self.ask(&Request::Open(dataset.to_string()))?;
        one(&content)
    }

    /// Shares memory under a number. With `is_direct` the devices may get these pages themselves: then nobody changes what is being written, or what is
    /// on disk is what it was at some moment.
    ///
    /// # Errors
    /// Those of the server: too much, or not sealed.
    pub fn share(&mut self, number: u32, memory: &Memory, is_direct: bool) -> Result<(), ClientError> {
        self.share_file(number, memory.as_fd(), memory.len(), is_direct)
    }

    /// Does [`Client::share`] with a file of the caller's.
    ///
    /// # Errors
    /// As of [`Client::share`].
    pub fn share_file(&mut self, number: u32, file: BorrowedFd<'_>, bytes: u64, is_direct: bool) -> Result<(), ClientError> {
        let tag = self.send(&Request::Share { memory: number, is_direct, bytes }, Some(file))?;
        self.finish(tag).map(drop)
    }

    /// Ends the sharing of memory.
    ///
    /// # Errors
    /// Those of the server.
    pub fn unshare(&mut self, number: u32) -> Result<(), ClientError> {
        self.ask(&Request::Unshare(number)).map(drop)
    }

    /// Performs a transaction that is told of when it is on disk ([`Client::committed`]); returns its number.
    ///
    /// # Errors
    /// Those of the server: operations before the one that failed were performed.
    pub fn transact(&mut self, operations: Vec<(Fid, Operation)>) -> Result<u64, ClientError> {
        let tag = self.send(&Request::Transact { tells: true, spends: false, operations }, None)?;
        self.finish(tag).map(|_| tag)
    }

    /// Performs a transaction that uses what was granted; nobody is told of it.
    ///
    /// # Errors
    /// As of [`Client::transact`].
    pub fn spend(&mut self, operations: Vec<(Fid, Operation)>) -> Result<(), ClientError> {
        self.ask(&Request::Transact { tells: false, spends: true, operations }).map(drop)
    }

    /// Reads bytes into shared memory; returns how many of each piece there were.
    ///
    /// # Errors
    /// Those of the server.
    pub fn read(&mut self, object: Fid, pieces: Vec<Piece>) -> Result<Vec<u64>, ClientError> {
        let content = self.ask(&Request::Read { object, is_direct: false, pieces })?;
        Ok(reply::numbers(&content)?)
    }

    /// Attributes of an object.
    ///
    /// # Errors
    /// Those of the server.
    pub fn attributes(&mut self, object: Fid) -> Result<Attributes, ClientError> {
        Ok(Attributes::decode(&self.ask(&Request::Attributes(object))?)?)
    }

    /// Value of an extended attribute.
    ///
    /// # Errors
    /// Those of the server.
    pub fn xattr(&mut self, object: Fid, name: &[u8]) -> Result<Vec<u8>, ClientError> {
        self.ask(&Request::Xattr(object, name.to_vec()))
    }

    /// Names of the extended attributes.
    ///
    /// # Errors
    /// Those of the server.
    pub fn xattrs(&mut self, object: Fid) -> Result<Vec<Vec<u8>>, ClientError> {
        Ok(reply::texts(&self.ask(&Request::Xattrs(object))?)?)
    }

    /// Record of a key; `ENOENT` when there is no such key.
    ///
    /// # Errors
    /// Those of the server.
    pub fn lookup(&mut self, object: Fid, key: &[u8]) -> Result<Vec<u8>, ClientError> {
        self.ask(&Request::Lookup(object, key.to_vec()))
    }

    /// Keys from a cookie on; 0 begins.
    ///
    /// # Errors
    /// Those of the server.
    pub fn entries(&mut self, object: Fid, from: u64, count: u32) -> Result<Entries, ClientError> {
        Ok(Entries::decode(&self.ask(&Request::Entries { object, from, count })?)?)
    }

    /// Space of the device.
    ///
    /// # Errors
    /// Those of the server.
    pub fn space(&mut self) -> Result<Space, ClientError> {
        Ok(Space::decode(&self.ask(&Request::Space)?)?)
    }

    /// Reserves bytes; returns how many of them. They go back with the connection.
    ///
    /// # Errors
    /// Those of the server.
    pub fn grant(&mut self, bytes: u64) -> Result<u64, ClientError> {
        one(&self.ask(&Request::Grant(bytes))?)
    }

    /// Gives bytes back that were reserved; returns how many still are.
    ///
    /// # Errors
    /// Those of the server.
    pub fn give_back(&mut self, bytes: u64) -> Result<u64, ClientError> {
        one(&self.ask(&Request::GiveBack(bytes))?)
    }

    /// Waits until everything so far is on disk: then all its transactions are told of ([`Client::committed`]).
    ///
    /// # Errors
    /// Those of the server.
    pub fn sync(&mut self) -> Result<(), ClientError> {
        self.ask(&Request::Sync).map(drop)
    }

    /// Takes the next outcome of a transaction that has come, in the order in which they ended.
    pub fn committed(&mut self) -> Option<Committed> {
        self.committed.pop_front()
    }

    /// Waits for the next outcome of a transaction.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn wait_committed(&mut self) -> Result<Committed, ClientError> {
        loop {
            if let Some(committed) = self.committed() {
                return Ok(committed);
            }
            if self.receive()?.is_some() {
                return Err(Malformed::Kind.into());
            }
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Vec<u8>, ClientError> {
        let tag = self.send(request, None)?;
        self.finish(tag)
    }

    fn send(&mut self, request: &Request, file: Option<BorrowedFd<'_>>) -> Result<u64, ClientError> {
        self.last += 1;
        send_frame(&self.stream, &request.encode(self.last)?, file)?;
        Ok(self.last)
    }

    /// Waits for the reply to a request.
    fn finish(&mut self, tag: u64) -> Result<Vec<u8>, ClientError> {
        loop {
            let Some((header, reply)) = self.receive()? else { continue };
            return match reply.status {
                _ if header.tag != tag => Err(Malformed::Value.into()),
                0 => Ok(reply.content),
                errno => Err(ClientError::Failed { errno, done: reply.done }),
            };
        }
    }

    /// Receives a frame: a reply, or an outcome, which is kept.
    fn receive(&mut self) -> Result<Option<(Header, Reply)>, ClientError> {
        let header = Header::decode(&self.inlet.header()?)?;
        let (body, _) = self.inlet.body(&header)?;
        match header.kind {
            COMMITTED => {
                let is_on_disk = Fields::of(&body).flag()?;
                self.committed.push_back(Committed { transaction: header.tag, is_on_disk });
                Ok(None)
            }
            REFUSED => Err(io::Error::from(io::ErrorKind::ConnectionAborted).into()),
            kind if kind & REPLY != 0 => Ok(Some((header, Reply::decode(&body)?))),
            _ => Err(Malformed::Kind.into()),
        }
    }
}

/// Number that is a content.
fn one(content: &[u8]) -> Result<u64, ClientError> {
    match reply::numbers(content)?[..] {
        [number] => Ok(number),
        _ => Err(Malformed::Length.into()),
    }
}
