//! The host's side of the handshake: a connection on which both have proved that they have the secret.

use abd::Abd;
use std::fmt;
use std::io::{self, BufReader};
use std::time::Duration;
use target_wire::{
    Address, Connection, Frame, Header, Hello, Kind, Limits, Nonce, Proof, ReadError, Received, Refusal, Refused, Secret, Side, VERSION,
    Welcome, read_frame, write_frame,
};

/// Bytes that are read at a time, but for what is longer.
const READ_BYTES: usize = 16 << 10;

/// Why there is no session with a target.
#[derive(Debug)]
pub enum ConnectError {
    /// Nobody listens there, or it cannot be reached.
    Unreachable(io::Error),
    /// The connection was lost, or what came over it was damaged.
    Broken(ReadError),
    /// The target refused.
    Refused(Refusal),
    /// The target did not prove that it has the secret: it is another one, or somebody in its place.
    Impostor,
    /// What came was no answer to what was said.
    NotATarget,
    /// The executor has no threads.
    NoThreads,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Unreachable(error) => write!(f, "the target cannot be reached: {error}"),
            ConnectError::Broken(error) => write!(f, "the handshake was not completed: {error}"),
            ConnectError::Refused(why) => why.fmt(f),
            ConnectError::Impostor => f.write_str("who answered does not have the secret"),
            ConnectError::NotATarget => f.write_str("what answered is no target"),
            ConnectError::NoThreads => f.write_str("a target needs an executor with threads"),
        }
    }
}
impl std::error::Error for ConnectError {}

/// A connection after its handshake: answers may be in the reader already.
pub(crate) struct Link {
    pub(crate) reader: BufReader<Connection>,
    pub(crate) writer: Connection,
}

fn broken(error: io::Error) -> ConnectError {
    ConnectError::Broken(ReadError::Io(error))
}

fn nonce() -> Result<Nonce, ConnectError> {
    let mut nonce = [0; 32];
    match rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty()) {
        Ok(count) if count == nonce.len() => Ok(nonce),
        Ok(_) => Err(broken(io::ErrorKind::UnexpectedEof.into())),
        Err(errno) => Err(broken(errno.into())),
    }
}

fn read(link: &mut BufReader<Connection>, kind: Kind) -> Result<Frame, ConnectError> {
    match read_frame(link, &Limits::HANDSHAKE) {
        Ok(Received::Whole(frame)) if frame.header.kind == kind => Ok(frame),
        Ok(Received::Whole(frame)) if frame.header.kind == Kind::Refused => match Refused::decode(&frame.message) {
            Ok(refused) => Err(ConnectError::Refused(refused.why)),
            Err(_) => Err(ConnectError::NotATarget),
        },
        Ok(Received::Whole(_)) => Err(ConnectError::NotATarget),
        Ok(Received::Damaged(..)) => Err(ConnectError::Broken(ReadError::NoHeader)),
        Err(error) => Err(ConnectError::Broken(error)),
    }
}

/// Connects and shakes hands: for a new session, or to go on with one. `proved` is called when the target may have renewed the lease.
pub(crate) fn open_link(
    address: &Address,
    secret: &Secret,
    session: Option<(u64, u64)>,
    timeout: Duration,
    proved: &mut dyn FnMut(),
) -> Result<(Link, Welcome), ConnectError> {
    let mut writer = Connection::open(address, timeout).map_err(ConnectError::Unreachable)?;
    writer.set_timeouts(Some(timeout), Some(timeout)).map_err(broken)?;
    let mut reader = BufReader::with_capacity(READ_BYTES, writer.try_clone().map_err(broken)?);
    let hello = Hello { version: VERSION, session, nonce: nonce()? }.encode();
    let mut say = |kind, message: &[u8]| write_frame(&mut writer, &Header::of(kind), message, &Abd::default()).map_err(broken);
    say(Kind::Hello, &hello)?;
    let challenge = read(&mut reader, Kind::Challenge)?.message;
    proved();
    say(Kind::Proof, &Proof { mac: secret.proof(Side::Host, &hello, &challenge) }.encode())?;
    let welcome = Welcome::decode(&read(&mut reader, Kind::Welcome)?.message).map_err(|_| ConnectError::NotATarget)?;
    if !secret.accepts(&welcome.mac, Side::Target, &hello, &challenge) {
        return Err(ConnectError::Impostor);
    }
    // A target that takes nothing for so long is not there.
    let patience = Duration::from_nanos(welcome.lease_ns / 3).max(Duration::from_millis(10));
    writer.set_timeouts(None, Some(patience)).map_err(broken)?;
    Ok((Link { reader, writer }, welcome))
}
