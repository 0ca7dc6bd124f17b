//! The host's side of the handshake: a connection on which both have proved that they have the secret.

use crate::options::TargetOptions;
use crate::slots::Slots;
use abd::Abd;
use std::fmt;
use std::io::{self, BufReader};
use std::sync::Arc;
use std::time::Duration;
use target_wire::{
    Challenge, Channel, Connection, Frame, Header, Initiator, Kind, Limits, NoiseError, Opener, Proof, ReadError, Received, Refusal,
    Refused, RegionAnswer, SHARED_MEMORY, Sealer, Welcome, read_frame, write_frame,
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
    pub(crate) sealer: Sealer,
    pub(crate) opener: Opener,
    /// Memory that the target shares on this connection.
    pub(crate) slots: Option<Arc<Slots>>,
}

fn broken(error: io::Error) -> ConnectError {
    ConnectError::Broken(ReadError::Io(error))
}

/// Error of a handshake's keys: those of the other side, or none to be had here.
fn unkeyed(error: NoiseError) -> ConnectError {
    match error {
        NoiseError::Secret => ConnectError::Impostor,
        NoiseError::System => broken(io::Error::other(error)),
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

/// Reason of a refusal. Those in the open anybody on the link can have said: only what a target says there is taken from there.
fn refusal(message: &[u8], is_sealed: bool) -> ConnectError {
    match Refused::decode(message) {
        Ok(Refused { why: Refusal::Session | Refusal::Busy }) if !is_sealed => ConnectError::NotATarget,
        Ok(Refused { why }) => ConnectError::Refused(why),
        Err(_) => ConnectError::NotATarget,
    }
}

/// The target's answer in the open.
fn hear(link: &mut BufReader<Connection>, timeout: Duration) -> Result<Challenge, ConnectError> {
    match read_frame(link, &Limits::HANDSHAKE) {
        Ok(Received::Whole(frame)) if frame.header.kind == Kind::Challenge => {
            Challenge::decode(&frame.message).map_err(|_| ConnectError::NotATarget)
        }
        Ok(Received::Whole(frame)) if frame.header.kind == Kind::Refused => Err(refusal(&frame.message, false)),
        Ok(Received::Whole(_)) => Err(ConnectError::NotATarget),
        Ok(Received::Damaged(_)) => Err(ConnectError::Broken(ReadError::NoHeader)),
        Err(error) => Err(unread(error, timeout)),
    }
}

/// A sealed answer.
fn read(opener: &mut Opener, link: &mut BufReader<Connection>, kind: Kind, timeout: Duration) -> Result<Frame, ConnectError> {
    let frame = opener.read(link, &Limits::HANDSHAKE).map_err(|error| unread(error, timeout))?;
    match frame.header.kind {
        own if own == kind => Ok(frame),
        Kind::Refused => Err(refusal(&frame.message, true)),
        _ => Err(ConnectError::NotATarget),
    }
}

/// Offers memory to a target that would use it; None when it does not after all.
fn share(slots: Arc<Slots>, link: &mut Link, timeout: Duration) -> Result<Option<Arc<Slots>>, ConnectError> {
    slots.region.offer(link.reader.get_ref(), &mut link.sealer).map_err(broken)?;
    let answer = read(&mut link.opener, &mut link.reader, Kind::Region, timeout)?;
    let answer = RegionAnswer::decode(&answer.message).map_err(|_| ConnectError::NotATarget)?;
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
    let mut writer = connection;
    writer.set_timeouts(Some(timeout), Some(timeout)).map_err(broken)?;
    let mut reader = BufReader::with_capacity(READ_BYTES, writer.try_clone().map_err(broken)?);
    // Without such memory everything goes in frames.
    let slots = if writer.is_local() && options.shared_bytes > 0 { Slots::new(options.shared_bytes).ok() } else { None };
    let (initiator, hello) = Initiator::new(&options.secret).map_err(unkeyed)?;
    write_frame(&mut writer, &Header::of(Kind::Hello), &hello.encode(), &Abd::default()).map_err(broken)?;
    let challenge = hear(&mut reader, timeout)?;
    let Channel { sealer, opener } = initiator.finish(&challenge).map_err(unkeyed)?;
    let mut link = Link { reader, writer, sealer, opener, slots: None };
    proved();
    let header = Header::with_features(Kind::Proof, if slots.is_some() { SHARED_MEMORY } else { 0 });
    link.sealer.write(&mut link.writer, &header, &Proof { session }.encode(), &Abd::default()).map_err(broken)?;
    let answer = read(&mut link.opener, &mut link.reader, Kind::Welcome, timeout)?;
    let welcome = Welcome::decode(&answer.message).map_err(|_| ConnectError::NotATarget)?;
    link.slots = match slots {
        Some(slots) if answer.header.has_feature(SHARED_MEMORY) => share(slots, &mut link, timeout)?,
        _ => None,
    };
    // A target that takes nothing for so long is not there.
    let patience = Duration::from_nanos(welcome.lease_ns / 3).max(Duration::from_millis(10));
    link.writer.set_timeouts(None, Some(patience)).map_err(broken)?;
    Ok((link, welcome))
}
