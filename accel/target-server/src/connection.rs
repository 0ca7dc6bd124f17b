//! One connection: the handshake, then frames in, on this thread; answers go out on another ([`crate::outlet`]).

use crate::outlet::{Outgoing, Outlet, Room};
use crate::session::{Session, Violation};
use crate::strangers::Stranger;
use crate::target::Target;
use abd::Abd;
use exec::{OperationHandle, TaskClass};
use std::io::{self, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use target_wire::{
    Challenge, Connection, ExecutePlaces, Frame, Header, Hello, Kind, Limits, Nonce, Proof, Received, Refusal, Refused, Region,
    RegionAnswer, RegionOffer, SHARED_MEMORY, Side, VERSION, Welcome, WithFile, read_frame, write_frame,
};

/// Time that a host may take for the handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Bytes that are read at a time, but for what is longer.
const READ_BYTES: usize = 16 << 10;

type Link = BufReader<Connection>;

/// A number that nobody can guess.
pub(crate) fn nonce() -> io::Result<Nonce> {
    let mut nonce = [0; 32];
    let count = rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty())?;
    if count == nonce.len() { Ok(nonce) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// A frame of the handshake; None for anything else.
fn read(link: &mut impl Read, kind: Kind) -> Option<Frame> {
    match read_frame(link, &Limits::HANDSHAKE) {
        Ok(Received::Whole(frame)) if frame.header.kind == kind => Some(frame),
        _ => None,
    }
}

fn write(link: &mut impl Write, header: Header, message: &[u8]) -> Option<()> {
    write_frame(link, &header, message, &Abd::default()).ok().map(|_| ())
}

/// Outcome of a handshake: why a host is not let in; None when it is gone, or was not understood because its words came damaged.
type Handshake = Result<(Arc<Session>, Option<Arc<Region>>), Option<Refusal>>;

/// Takes the memory that a host offers, or says that it is not used; None when the host is gone.
fn share(link: &mut Link) -> Option<Option<Arc<Region>>> {
    // The file comes with the frame's first byte, which must not be read without it. An honest host has said nothing yet.
    if !link.buffer().is_empty() {
        return None;
    }
    let mut from = WithFile { connection: link.get_ref(), file: None };
    let frame = read(&mut from, Kind::Region)?;
    let offer = RegionOffer::decode(&frame.message).ok()?;
    let region = Region::accept(from.file, offer.bytes).ok().map(Arc::new);
    write(link.get_mut(), Header::of(Kind::Region), &RegionAnswer { is_taken: region.is_some() }.encode())?;
    Some(region)
}

fn handshake(target: &Arc<Target>, link: &mut Link) -> Handshake {
    let hello_frame = read(link, Kind::Hello).ok_or(None)?;
    let hello = Hello::decode(&hello_frame.message).map_err(|_| Some(Refusal::Protocol))?;
    if hello.version != VERSION {
        return Err(Some(Refusal::Version));
    }
    let challenge = Challenge { nonce: nonce().map_err(|_| None)? }.encode();
    write(link.get_mut(), Header::of(Kind::Challenge), &challenge).ok_or(None)?;
    let proof = read(link, Kind::Proof).ok_or(None)?;
    let proof = Proof::decode(&proof.message).map_err(|_| Some(Refusal::Protocol))?;
    let secret = &target.setup.secret;
    if !secret.accepts(&proof.mac, Side::Host, &hello_frame.message, &challenge) {
        target.counters.refused.fetch_add(1, Ordering::Relaxed);
        return Err(Some(Refusal::Secret));
    }
    let session = target.session(hello.session).map_err(Some)?;
    let welcome = Welcome {
        mac: secret.proof(Side::Target, &hello_frame.message, &challenge),
        session: session.number,
        epoch: session.epoch,
        lease_ns: target.setup.lease_ns,
        memory_bytes_max: target.setup.memory_bytes_max,
        about: format!("zirconia-target {} on {}", env!("CARGO_PKG_VERSION"), target.device.name()),
        capabilities: target.capabilities(),
    };
    let shares = target.setup.shares_memory && link.get_ref().is_local() && hello_frame.header.has_feature(SHARED_MEMORY);
    let header = Header::with_features(Kind::Welcome, if shares { SHARED_MEMORY } else { 0 });
    let welcomed = write(link.get_mut(), header, &welcome.encode());
    match welcomed.and_then(|()| if shares { share(link) } else { Some(None) }) {
        Some(region) => Ok((session, region)),
        None => {
            if hello.session.is_none() {
                // Nobody goes on with it.
                target.end(&session);
            }
            Err(None)
        }
    }
}

/// Ends the connection of a host that takes too long for the handshake, however it spreads its bytes; unless dropped before.
struct InTime {
    /// Held, not read.
    _connection: Option<Arc<Connection>>,
}

impl InTime {
    fn new(target: &Target, connection: &Connection) -> InTime {
        let own = connection.try_clone().ok().map(Arc::new);
        if let Some(weak) = own.as_ref().map(Arc::downgrade) {
            let look = move || weak.upgrade().into_iter().for_each(|connection| connection.shut_down());
            target.exec.spawn_after(HANDSHAKE.as_nanos() as u64, TaskClass::Interrupt, Box::new(look));
        }
        InTime { _connection: own }
    }
}

/// Serves a connection to its end.
pub(crate) fn serve(target: &Arc<Target>, connection: Connection, stranger: Stranger) {
    let Ok(out) = connection.try_clone() else { return };
    if connection.set_timeouts(Some(HANDSHAKE), Some(HANDSHAKE)).is_err() {
        return;
    }
    let mut link = BufReader::with_capacity(READ_BYTES, connection);
    let in_time = InTime::new(target, &out);
    let shaken = handshake(target, &mut link);
    drop((in_time, stranger));
    let (session, region) = match shaken {
        Ok(shaken) => shaken,
        Err(why) => {
            if let Some(why) = why {
                // It may be gone.
                let _ = write(link.get_mut(), Header::of(Kind::Refused), &Refused { why }.encode());
            }
            return out.shut_down();
        }
    };
    target.serve_host(|| exchange(target, &session, region, link, out));
}

/// Takes programs and gives answers until the connection ends.
fn exchange(target: &Arc<Target>, session: &Arc<Session>, region: Option<Arc<Region>>, mut link: Link, out: Connection) {
    let lease = Duration::from_nanos(target.setup.lease_ns.max(1));
    let (Ok(()), Ok(writing)) = (link.get_ref().set_timeouts(None, Some(lease)), out.try_clone()) else { return out.shut_down() };
    let outlet = Outlet::new(out, region.clone());
    let own = outlet.clone();
    let writer = target.exec.spawn_operation("z-target-answers", Box::new(move || own.write_all(writing)));
    session.attach(&outlet);
    if receive(target, session, &outlet, region.as_ref(), &mut link).is_err() {
        outlet.send(Outgoing::message(Header::of(Kind::Refused), Refused { why: Refusal::Protocol }.encode()));
        target.end(session);
    }
    session.detach(&outlet);
    outlet.close();
    OperationHandle::join(writer);
}

/// A program's bytes, if they are not in its frame, and the room for those of its answer. The bytes are a copy, which nobody changes any
/// more; None when the copy is not what the host put there.
fn fetch(mut frame: Frame, region: Option<&Arc<Region>>) -> Result<Option<(Frame, Option<Room>)>, Violation> {
    let region = region.ok_or(Violation)?;
    let (places, program) = ExecutePlaces::decode(&frame.message).map_err(|_| Violation)?;
    let room = match places.room {
        Some(place) if !region.has(place) => return Err(Violation),
        other => other.map(|place| Room { region: region.clone(), place }),
    };
    if let Some((place, crc)) = places.payload {
        let is_possible = region.has(place) && place.bytes <= u64::from(Limits::SESSION.payload_bytes_max) && frame.payload.is_empty();
        if !is_possible {
            return Err(Violation);
        }
        match region.read(place) {
            Ok((payload, own)) if own == crc => frame.payload = payload,
            _ => return Ok(None),
        }
    }
    frame.message = program.to_vec();
    Ok(Some((frame, room)))
}

/// Takes frames until the connection ends; an error when the host does what no host does.
fn receive(
    target: &Arc<Target>,
    session: &Arc<Session>,
    outlet: &Outlet,
    region: Option<&Arc<Region>>,
    link: &mut Link,
) -> Result<(), Violation> {
    while let Ok(received) = read_frame(link, &Limits::SESSION) {
        let header = match &received {
            Received::Whole(frame) => frame.header,
            Received::Damaged(header, _) => *header,
        };
        if header.epoch != session.epoch {
            return Err(Violation);
        }
        if !session.lease.renew(target.exec.now_ns()) {
            return Ok(());
        }
        match (header.kind, received) {
            (Kind::Execute, Received::Whole(frame)) => session.execute(frame, None)?,
            (Kind::ExecutePlaces, Received::Whole(frame)) => match fetch(frame, region)? {
                Some((frame, room)) => session.execute(frame, room)?,
                None => session.note_damaged(outlet, header.op),
            },
            (Kind::Execute | Kind::ExecutePlaces, Received::Damaged(header, _)) => session.note_damaged(outlet, header.op),
            (Kind::Goodbye, _) => {
                target.end(session);
                return Ok(());
            }
            _ => return Err(Violation),
        }
    }
    Ok(())
}
