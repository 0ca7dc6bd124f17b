//! One connection: the handshake, then sealed frames in, on this thread; answers go out on another ([`crate::outlet`]).

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
    Channel, Connection, ExecutePlaces, Frame, Header, Hello, Kind, Limits, NoiseError, Opener, Proof, ReadError, Received, Refusal,
    Refused, Region, RegionAnswer, RegionOffer, SHARED_MEMORY, Sealer, VERSION, Welcome, WithFile, read_frame, respond, write_frame,
};

/// Time that a host may take for the handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Bytes that are read at a time, but for what is longer.
const READ_BYTES: usize = 16 << 10;

type Link = BufReader<Connection>;

/// A connection behind its handshake.
struct Way {
    link: Link,
    channel: Channel,
}

/// Sixteen bytes that nobody can guess.
pub(crate) fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    let count = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if count == bytes.len() { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// The message of a sealed frame of the handshake; None for anything else.
fn open(opener: &mut Opener, link: &mut impl Read, kind: Kind) -> Option<Frame> {
    opener.read(link, &Limits::HANDSHAKE).ok().filter(|frame| frame.header.kind == kind)
}

fn say(sealer: &mut Sealer, link: &mut impl Write, header: Header, message: &[u8]) -> Option<()> {
    sealer.write(link, &header, message, &Abd::default()).ok().map(|_| ())
}

/// Reason for which a host is not let in; None when it is gone, or was not understood because its words came damaged.
type Rejection = Option<Refusal>;

/// Takes the memory that a host offers, or says that it is not used; None when the host is gone.
fn share(link: &mut Link, channel: &mut Channel) -> Option<Option<Arc<Region>>> {
    // The file comes with the frame's first byte, which must not be read without it. An honest host has said nothing yet.
    if !link.buffer().is_empty() {
        return None;
    }
    let mut from = WithFile { connection: link.get_ref(), file: None };
    let frame = open(&mut channel.opener, &mut from, Kind::Region)?;
    let offer = RegionOffer::decode(&frame.message).ok()?;
    let region = Region::accept(from.file, offer.bytes).ok().map(Arc::new);
    let answer = RegionAnswer { is_taken: region.is_some() }.encode();
    say(&mut channel.sealer, link.get_mut(), Header::of(Kind::Region), &answer)?;
    Some(region)
}

/// The part of the handshake that is in the open: keys of the connection, with a host that has, or once had heard somebody who had, the secret.
fn agree(target: &Target, link: &mut Link) -> Result<Channel, Rejection> {
    let Ok(Received::Whole(frame)) = read_frame(link, &Limits::HANDSHAKE) else { return Err(None) };
    if frame.header.kind != Kind::Hello {
        return Err(None);
    }
    match Hello::version(&frame.message) {
        Ok(VERSION) => {}
        Ok(_) => return Err(Some(Refusal::Version)),
        Err(_) => return Err(Some(Refusal::Protocol)),
    }
    let hello = Hello::decode(&frame.message).map_err(|_| Some(Refusal::Protocol))?;
    let (challenge, channel) = respond(&target.setup.secret, &hello).map_err(|error| match error {
        NoiseError::Secret => {
            target.counters.refused.fetch_add(1, Ordering::Relaxed);
            Some(Refusal::Secret)
        }
        NoiseError::System => None,
    })?;
    let written = write_frame(link.get_mut(), &Header::of(Kind::Challenge), &challenge.encode(), &Abd::default());
    written.map(|_| channel).map_err(|_| None)
}

/// The sealed part: the session of a host that is there now, and the memory that both share.
fn admit(target: &Arc<Target>, link: &mut Link, channel: &mut Channel) -> Result<(Arc<Session>, Option<Arc<Region>>), Rejection> {
    let frame = open(&mut channel.opener, link, Kind::Proof).ok_or(None)?;
    let proof = Proof::decode(&frame.message).map_err(|_| Some(Refusal::Protocol))?;
    let session = target.session(proof.session).map_err(Some)?;
    let welcome = Welcome {
        session: session.number,
        epoch: session.epoch,
        lease_ns: target.setup.lease_ns,
        memory_bytes_max: target.setup.memory_bytes_max,
        about: format!("zirconia-target {} on {}", env!("CARGO_PKG_VERSION"), target.device.name()),
        capabilities: target.capabilities(),
    };
    let shares = target.setup.shares_memory && link.get_ref().is_local() && frame.header.has_feature(SHARED_MEMORY);
    let header = Header::with_features(Kind::Welcome, if shares { SHARED_MEMORY } else { 0 });
    let welcomed = say(&mut channel.sealer, link.get_mut(), header, &welcome.encode());
    match welcomed.and_then(|()| if shares { share(link, channel) } else { Some(None) }) {
        Some(region) => Ok((session, region)),
        None => {
            if proof.session.is_none() {
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
    let mut channel = match agree(target, &mut link) {
        Ok(channel) => channel,
        Err(why) => {
            if let Some(why) = why {
                // It may be gone.
                let _ = write_frame(link.get_mut(), &Header::of(Kind::Refused), &Refused { why }.encode(), &Abd::default());
            }
            return out.shut_down();
        }
    };
    let admitted = admit(target, &mut link, &mut channel);
    drop((in_time, stranger));
    match admitted {
        Ok((session, region)) => target.serve_host(|| exchange(target, &session, region, Way { link, channel }, out)),
        Err(why) => {
            if let Some(why) = why {
                // It may be gone.
                let _ = say(&mut channel.sealer, link.get_mut(), Header::of(Kind::Refused), &Refused { why }.encode());
            }
            out.shut_down();
        }
    }
}

/// Takes programs and gives answers until the connection ends.
fn exchange(target: &Arc<Target>, session: &Arc<Session>, region: Option<Arc<Region>>, way: Way, out: Connection) {
    let Way { mut link, channel: Channel { sealer, mut opener } } = way;
    let lease = Duration::from_nanos(target.setup.lease_ns.max(1));
    let (Ok(()), Ok(writing)) = (link.get_ref().set_timeouts(None, Some(lease)), out.try_clone()) else { return out.shut_down() };
    let outlet = Outlet::new(out, region.clone());
    let own = outlet.clone();
    let writer = target.exec.spawn_operation("z-target-answers", Box::new(move || own.write_all(writing, sealer)));
    session.attach(&outlet);
    let mut next = || opener.read(&mut link, &Limits::SESSION);
    if receive(target, session, &outlet, region.as_ref(), &mut next).is_err() {
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
    next: &mut dyn FnMut() -> Result<Frame, ReadError>,
) -> Result<(), Violation> {
    loop {
        let frame = match next() {
            Ok(frame) => frame,
            // Somebody on the link, or damage: the host connects anew, and says again what has no answer.
            Err(ReadError::NotAuthentic) => {
                target.counters.damaged.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            Err(_) => return Ok(()),
        };
        let header = frame.header;
        if header.epoch != session.epoch {
            return Err(Violation);
        }
        if !session.lease.renew(target.exec.now_ns()) {
            return Ok(());
        }
        match header.kind {
            Kind::Execute => session.execute(frame, None)?,
            Kind::ExecutePlaces => match fetch(frame, region)? {
                Some((frame, room)) => session.execute(frame, room)?,
                None => session.note_damaged(outlet, header.op),
            },
            Kind::Goodbye => {
                target.end(session);
                return Ok(());
            }
            _ => return Err(Violation),
        }
    }
}
