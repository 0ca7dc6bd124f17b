//! One connection: the handshake, then frames in, on this thread; answers go out on another ([`crate::outlet`]).

use crate::outlet::{Outgoing, Outlet};
use crate::session::{Session, Violation};
use crate::{Target, nonce};
use abd::Abd;
use exec::OperationHandle;
use std::io::{BufReader, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use target_wire::{
    Challenge, Connection, Frame, Header, Hello, Kind, Limits, Proof, Received, Refusal, Refused, Side, VERSION, Welcome, read_frame,
    write_frame,
};

/// How long a host may take for each frame of the handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Bytes that are read at a time, but for what is longer.
const READ_BYTES: usize = 16 << 10;

type Link = BufReader<Connection>;

/// A frame of the handshake; None for anything else.
fn read(link: &mut Link, kind: Kind) -> Option<Frame> {
    match read_frame(link, &Limits::HANDSHAKE) {
        Ok(Received::Whole(frame)) if frame.header.kind == kind => Some(frame),
        _ => None,
    }
}

fn write(link: &mut impl Write, kind: Kind, message: &[u8]) -> Option<()> {
    write_frame(link, &Header::of(kind), message, &Abd::default()).ok().map(|_| ())
}

/// Why a host is not let in; None when it is gone, or was not understood because its words came damaged.
type Handshake = Result<Arc<Session>, Option<Refusal>>;

fn handshake(target: &Arc<Target>, link: &mut Link) -> Handshake {
    let hello_frame = read(link, Kind::Hello).ok_or(None)?;
    let hello = Hello::decode(&hello_frame.message).map_err(|_| Some(Refusal::Protocol))?;
    if hello.version != VERSION {
        return Err(Some(Refusal::Version));
    }
    let challenge = Challenge { nonce: nonce().map_err(|_| None)? }.encode();
    write(link.get_mut(), Kind::Challenge, &challenge).ok_or(None)?;
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
    if write(link.get_mut(), Kind::Welcome, &welcome.encode()).is_none() && hello.session.is_none() {
        // Nobody knows of it.
        target.end(&session);
    }
    Ok(session)
}

/// Serves a connection to its end.
pub(crate) fn serve(target: &Arc<Target>, connection: Connection) {
    let Ok(out) = connection.try_clone() else { return };
    if connection.set_timeouts(Some(HANDSHAKE), Some(HANDSHAKE)).is_err() {
        return;
    }
    let mut link = BufReader::with_capacity(READ_BYTES, connection);
    let session = match handshake(target, &mut link) {
        Ok(session) => session,
        Err(why) => {
            if let Some(why) = why {
                // It may be gone.
                let _ = write(link.get_mut(), Kind::Refused, &Refused { why }.encode());
            }
            return out.shut_down();
        }
    };
    let lease = Duration::from_nanos(target.setup.lease_ns.max(1));
    let (Ok(()), Ok(writing)) = (link.get_ref().set_timeouts(None, Some(lease)), out.try_clone()) else { return out.shut_down() };
    let outlet = Outlet::new(out);
    let own = outlet.clone();
    let writer = target.exec.spawn_operation("z-target-answers", Box::new(move || own.write_all(writing)));
    session.attach(&outlet);
    if receive(target, &session, &outlet, &mut link).is_err() {
        let message = Arc::new(Refused { why: Refusal::Protocol }.encode());
        outlet.send(Outgoing { header: Header::of(Kind::Refused), message, payload: Abd::default() });
        target.end(&session);
    }
    session.detach(&outlet);
    outlet.close();
    OperationHandle::join(writer);
}

/// Takes frames until the connection ends; an error when the host does what no host does.
fn receive(target: &Arc<Target>, session: &Arc<Session>, outlet: &Outlet, link: &mut Link) -> Result<(), Violation> {
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
            (Kind::Execute, Received::Whole(frame)) => session.execute(frame)?,
            (Kind::Execute, Received::Damaged(header, _)) => session.note_damaged(outlet, header.op),
            (Kind::Goodbye, _) => {
                target.end(session);
                return Ok(());
            }
            _ => return Err(Violation),
        }
    }
    Ok(())
}
