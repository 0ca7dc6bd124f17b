//! The link: one operation that writes frames and connects anew when that is needed, and one that reads, for each connection.

use crate::connect::{ConnectError, Link, open_link};
use crate::encode::{all, results};
use crate::slots::Slots;
use crate::state::{Next, Outgoing, Shared, Work};
use crate::stats::add;
use abd::Abd;
use dpusm::OpError;
use std::io::BufReader;
use std::sync::Arc;
use std::time::Duration;
use target_wire::{
    CompletionRoom, Connection, ExecutePlaces, Frame, Header, Kind, Limits, Opener, Place, ReadError, Refusal, WireCompletion, sealed_bytes,
};

/// Pauses between attempts to connect, in nanoseconds.
const PAUSE_NS_MIN: u64 = 2_000_000;
const PAUSE_NS_MAX: u64 = 200_000_000;

/// Keeps the session alive until nobody needs it, or it is lost.
pub(crate) fn run(shared: &Arc<Shared>, first: Link) {
    let mut link = first;
    loop {
        serve(shared, link);
        match reconnect(shared) {
            Some(next) => link = next,
            None => return shared.go_down(),
        }
    }
}

/// Uses a connection until it fails or the provider is closed.
fn serve(shared: &Arc<Shared>, link: Link) {
    let Link { reader, mut writer, mut sealer, opener, slots } = link;
    let (own, own_slots) = (shared.clone(), slots.clone());
    let reading = shared.exec.spawn_operation("z-target-read", Box::new(move || read_all(&own, reader, opener, own_slots.as_ref())));
    loop {
        let (header, message, payload) = match shared.next(slots.as_ref()) {
            Next::Broken => break,
            Next::Closed => {
                let header = Header { kind: Kind::Goodbye, epoch: shared.welcome.epoch, op: 0, floor: 0 };
                // If it does not arrive, the lease frees what is there.
                let _ = sealer.write(&mut writer, &header, &[], &Abd::default());
                break;
            }
            Next::Frame(outgoing) => pack(shared, *outgoing, slots.as_deref()),
        };
        // Counted before its answer can come.
        shared.counters.sent(sealed_bytes(message.len(), payload.len()));
        if sealer.write(&mut writer, &header, &message, &payload).is_err() {
            break;
        }
        shared.note_sent();
    }
    writer.shut_down();
    reading.join();
}

/// The frame of a program. What got a place in shared memory is put there.
fn pack(shared: &Shared, outgoing: Outgoing, slots: Option<&Slots>) -> (Header, Vec<u8>, Abd) {
    let Outgoing { mut header, program, payload, place, room } = outgoing;
    let message = program.encode();
    // Memory that cannot be had is no reason to fail: the payload stays in the frame.
    let put = |slots: &Slots, place: Place| slots.region.write(place.offset, &payload).ok().map(|crc| (place, crc));
    let places = ExecutePlaces { payload: slots.zip(place).and_then(|(slots, place)| put(slots, place)), room };
    if places == ExecutePlaces::default() {
        return (header, message, payload);
    }
    header.kind = Kind::ExecutePlaces;
    let left = match places.payload {
        Some((place, _)) => {
            add(&shared.counters.shared_out, place.bytes);
            Abd::default()
        }
        None => payload,
    };
    (header, places.encode(&message), left)
}

/// A new connection for the session; None when it is lost, or not needed any more.
fn reconnect(shared: &Shared) -> Option<Link> {
    let session = Some((shared.welcome.session, shared.welcome.epoch));
    let timeout = shared.options.timeout.min(Duration::from_nanos(shared.welcome.lease_ns)).max(Duration::from_millis(1));
    let mut pause_ns = PAUSE_NS_MIN;
    while shared.may_reconnect() {
        match open_link(&shared.options, session, timeout, &mut || shared.note_sent()) {
            Ok((link, _)) => {
                shared.note_connected();
                return Some(link);
            }
            // Sealed, so the target's own word.
            Err(ConnectError::Refused(Refusal::Session)) => return None,
            Err(error) => {
                // Whoever is there, it is not this target, or somebody on the link says so: it is waited for as for one that is away.
                let is_other = matches!(error, ConnectError::Refused(Refusal::Secret | Refusal::Version) | ConnectError::Impostor);
                if is_other || matches!(error, ConnectError::Unreachable(_)) {
                    shared.note_away();
                }
                shared.exec.sleep_ns(pause_ns);
            }
        }
        pause_ns = (pause_ns * 2).min(PAUSE_NS_MAX);
    }
    None
}

/// Reads until the connection ends.
fn read_all(shared: &Shared, mut link: BufReader<Connection>, mut opener: Opener, slots: Option<&Arc<Slots>>) {
    loop {
        let frame = match opener.read(&mut link, &Limits::SESSION) {
            Ok(frame) => frame,
            Err(error) => {
                if matches!(error, ReadError::NotAuthentic) {
                    add(&shared.counters.damaged, 1);
                }
                break;
            }
        };
        shared.note_heard();
        shared.counters.received(sealed_bytes(frame.message.len(), frame.payload.len()));
        let is_ours = frame.header.epoch == shared.welcome.epoch;
        match frame.header.kind {
            Kind::Completion if is_ours => complete(shared, &frame),
            Kind::CompletionRoom if is_ours => match fetch(shared, frame, slots) {
                Ok(Some(frame)) => complete(shared, &frame),
                Ok(None) => {}
                Err(Senseless) => break,
            },
            Kind::Damaged if is_ours => shared.again(frame.header.op),
            _ => break,
        }
    }
    shared.note_broken();
}

/// A target said what no target says.
struct Senseless;

/// A completion with its payload, which lies in the room that its program gave; None when it has been answered, or what lies there
/// is not what the target put there: then it is asked again, for an answer in a frame.
fn fetch(shared: &Shared, mut frame: Frame, slots: Option<&Arc<Slots>>) -> Result<Option<Frame>, Senseless> {
    let op = frame.header.op;
    let slots = slots.ok_or(Senseless)?;
    let (said, completion) = CompletionRoom::decode(&frame.message).map_err(|_| Senseless)?;
    let Some(room) = shared.room(op, slots) else {
        return if shared.is_pending(op) { Err(Senseless) } else { Ok(None) };
    };
    if said.bytes == 0 || said.bytes > room.bytes || !frame.payload.is_empty() {
        return Err(Senseless);
    }
    let taken = slots.region.read(Place { bytes: said.bytes, ..room });
    match taken {
        Ok((payload, crc)) if crc == said.crc => {
            add(&shared.counters.shared_in, said.bytes);
            frame.message = completion.to_vec();
            frame.payload = payload;
            Ok(Some(frame))
        }
        _ => {
            add(&shared.counters.damaged, 1);
            shared.again(op);
            Ok(None)
        }
    }
}

/// Hands an answer to whoever waits for it.
fn complete(shared: &Shared, frame: &Frame) {
    let Some(work) = shared.answered(frame.header.op) else { return };
    // It is authentic, so a message that makes no sense is the target's fault.
    let completion = WireCompletion::decode(&frame.message);
    match work {
        Work::Renew => {}
        Work::Open(_, completer) => {
            let answer = completion.ok().and_then(|completion| completion.opens.first().copied());
            completer.complete(answer.unwrap_or(Err(OpError::BadResult)));
        }
        Work::Program(program) => {
            let results = match completion {
                Ok(completion) => results(&program, &completion, &frame.payload),
                Err(_) => all(&program, OpError::BadResult),
            };
            program.finish(results);
        }
    }
}
