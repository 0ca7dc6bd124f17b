//! The host's side of the handshake: a connection on which both have proved that they have the secret.

use crate::options::TargetOptions;
use crate::slots::Slots;
use abd::Abd;
use std::fmt;
use std::io::{self, BufReader};
use std::sync::Arc;
use std::time::Duration;
use target_wire::{
    Connection, Frame, Header, Hello, Kind, Limits, Nonce, Proof, ReadError, Received, Refusal, Refused, RegionAnswer, SHARED_MEMORY, Side,
    VERSION, Welcome, read_frame, write_frame,
};

/// Bytes that are read at a time, but for what is longer.
const READ_BYTES: usize = 16 << 10;

/// Reason why there is no session with a target.
#[derive(Debug)]
pub enum ConnectError {
    /// The target is not there: nobody listens, or it cannot be reached.
    Unreachable(io::Error),
    /// The connection was lost, or what came over it was damaged.
    Broken(ReadError),
    /// The target did not answer for so long.
    Silent(Duration),
    /// The target refused.
    Refused(Refusal),
    /// The target did not prove that it has the secret: it is another one, or somebody in its place.
    Impostor,
    /// The words that came were no answer to what was said.
    NotATarget,
    /// The executor has no threads.
    NoThreads,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Unreachable(error) => write!(f, "the target cannot be reached: {error}"),
            ConnectError::Broken(error) => write!(f, "the handshake was not completed: {error}"),
            ConnectError::Silent(time) => write!(f, "the target did not answer within {} s", time.as_secs_f64()),
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
    /// Memory that the target shares on this connection.
    pub(crate) slots: Option<Arc<Slots>>,
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

/// Error of reading, where each answer may take `timeout`.
fn unread(error: ReadError, timeout: Duration) -> ConnectError {
    match error {
        ReadError::Io(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
            ConnectError::Silent(timeout)
        }
        error => ConnectError::Broken(error),
    }
}

fn read(link: &mut BufReader<Connection>, kind: Kind, timeout: Duration) -> Result<Frame, ConnectError> {
    match read_frame(link, &Limits::HANDSHAKE) {
        Ok(Received::Whole(frame)) if frame.header.kind == kind => Ok(frame),
        Ok(Received::Whole(frame)) if frame.header.kind == Kind::Refused => match Refused::decode(&frame.message) {
            Ok(refused) => Err(ConnectError::Refused(refused.why)),
            Err(_) => Err(ConnectError::NotATarget),
        },
        Ok(Received::Whole(_)) => Err(ConnectError::NotATarget),
        Ok(Received::Damaged(..)) => Err(ConnectError::Broken(ReadError::NoHeader)),
        Err(error) => Err(unread(error, timeout)),
    }
}

/// Offers memory to a target that would use it; None when it does not after all.
fn share(slots: Arc<Slots>, reader: &mut BufReader<Connection>, timeout: Duration) -> Result<Option<Arc<Slots>>, ConnectError> {
    slots.region.offer(reader.get_ref()).map_err(broken)?;
    let answer = RegionAnswer::decode(&read(reader, Kind::Region, timeout)?.message).map_err(|_| ConnectError::NotATarget)?;
    Ok(answer.is_taken.then_some(slots))
}

/// Connects and shakes hands: for a new session, or to go on with one. `proved` is called when the target may have renewed the lease.
pub(crate) fn open_link(
    options: &TargetOptions,
    session: Option<(u64, u64)>,
    timeout: Duration,
    proved: &mut dyn FnMut(),
) -> Result<(Link, Welcome), ConnectError> {
    let connection = Connection::open(&options.address, timeout).map_err(ConnectError::Unreachable)?;
    shake_hands(options, connection, session, timeout, proved)
}

/// Shakes hands on a connection that is there.
pub(crate) fn shake_hands(
    options: &TargetOptions,
    connection: Connection,
    session: Option<(u64, u64)>,
    timeout: Duration,
    proved: &mut dyn FnMut(),
) -> Result<(Link, Welcome), ConnectError> {
    let secret = &options.secret;
    let mut writer = connection;
    writer.set_timeouts(Some(timeout), Some(timeout)).map_err(broken)?;
    let mut reader = BufReader::with_capacity(READ_BYTES, writer.try_clone().map_err(broken)?);
    // Without such memory everything goes in frames.
    let slots = if writer.is_local() && options.shared_bytes > 0 { Slots::new(options.shared_bytes).ok() } else { None };
    let hello = Hello { version: VERSION, session, nonce: nonce()? }.encode();
    let mut say = |header, message: &[u8]| write_frame(&mut writer, &header, message, &Abd::default()).map_err(broken);
    say(Header::with_features(Kind::Hello, if slots.is_some() { SHARED_MEMORY } else { 0 }), &hello)?;
    let challenge = read(&mut reader, Kind::Challenge, timeout)?.message;
    proved();
    say(Header::of(Kind::Proof), &Proof { mac: secret.proof(Side::Host, &hello, &challenge) }.encode())?;
    let answer = read(&mut reader, Kind::Welcome, timeout)?;
    let welcome = Welcome::decode(&answer.message).map_err(|_| ConnectError::NotATarget)?;
    if !secret.accepts(&welcome.mac, Side::Target, &hello, &challenge) {
        return Err(ConnectError::Impostor);
    }
    let slots = match slots {
        Some(slots) if answer.header.has_feature(SHARED_MEMORY) => share(slots, &mut reader, timeout)?,
        _ => None,
    };
    // A target that takes nothing for so long is not there.
    let patience = Duration::from_nanos(welcome.lease_ns / 3).max(Duration::from_millis(10));
    writer.set_timeouts(None, Some(patience)).map_err(broken)?;
    Ok((Link { reader, writer, slots }, welcome))
}
