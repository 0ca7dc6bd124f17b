//! One request: read, served, answered by the same thread, so nothing is handed between threads. Only the answer of a READ,
//! WRITE or LSEEK may be sent later by another ([`Answer`]), so that many direct requests are under way with few threads, and
//! what waits for a whole pool (SYNCFS, DESTROY) is done by threads of its own; what is too much of one [`Lane`], by the lane's.
//!
//! Buffers belong to threads. One whose payload the handler kept is left to it and replaced; otherwise it is used again.

use crate::abi::{self, op};
use crate::answer::Debt;
use crate::counts;
use crate::dispatch::{HEAD_BYTES, Output, Request, Transfer, dispatch, take_name, transfer};
use crate::handler::{Caller, Handler, NodeId};
use crate::lane::{Kept, Lane};
use crate::lasting::{Done, Rest, done_before};
use crate::repeat::repeat;
use crate::sent_again::Look;
use crate::served::{Mount, Serving};
use crate::uring::Turn;
use crate::{Answer, Reply};
use abd::Abd;
use exec::Exec;
use rustix::fd::OwnedFd;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

pub(crate) const HEAD: usize = size_of::<abi::OutHeader>();
/// Number of slices in one writev(2) at most: the kernel refuses more (UIO_MAXIOV is 1024).
const SLICES_MAX: usize = 1000;

/// Bytes of an answer that comes later, at most, besides its head and data.
const RECORD_BYTES_MAX: usize = 8;
/// Bytes of WRITEs up to which what came to a seat goes to a buffer that its thread keeps: what is larger is worth one of its own, which may be kept.
const SMALL_BYTES: usize = 4 << 10;

/// Time in nanoseconds for which memory that was just used is there: nobody takes it away so soon, and to look at all of its pages costs as much
/// as a small request.
const PRESENT_NS: u64 = 10_000_000;

/// Buffers that a thread keeps between requests.
pub(crate) struct Reader {
    /// Buffer of the first bytes of a request: a WRITE's records.
    head: [u8; HEAD_BYTES],
    /// Buffer of the rest: a WRITE's payload, page-aligned; of requests in seats, that of a small one.
    payload: Abd,
    /// Request other than WRITE whose bytes went to both buffers.
    joined: Vec<u8>,
    out: Vec<u8>,
    /// Time up to which the memory of the payload is there, in nanoseconds.
    present_until: u64,
}

/// Outcome of a look for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looked {
    /// One was there, and is served or handed on.
    Served,
    /// None was there, or another thread was faster.
    Nothing,
    /// The connection is gone.
    Gone,
}

/// Way on which the answer of one request goes.
enum Link {
    /// Connection to which it is written.
    Device(Arc<OwnedFd>),
    /// Seat in which the request lies.
    Seat(Turn),
}

impl Link {
    /// Sends the answer, whose first [`HEAD`] bytes are left for its head; false when the connection is gone.
    fn send(self, out: &mut [u8], data: Option<&Abd>, unique: u64, error: i32) -> bool {
        match self {
            Link::Device(device) => send(&device, out, data, unique, error),
            Link::Seat(turn) => {
                turn.answer(&out[HEAD..], data, error);
                true
            }
        }
    }

    fn answer_read(self, Duty { rest, debt }: Duty, unique: u64) -> Answer<Abd> {
        Answer::new(move |reply| {
            rest.settle(move |settled| {
                let _debt = debt;
                let mut head = [0; HEAD];
                match settled.and(reply) {
                    Ok(data) => self.send(&mut head, Some(&data), unique, 0),
                    Err(errno) => self.send(&mut head, None, unique, -errno.0),
                };
            });
        })
    }

    /// Makes an answer whose bytes `encode` makes.
    fn answer<T: Send + 'static, R: IntoBytes + zerocopy::Immutable>(
        self,
        Duty { rest, debt }: Duty,
        unique: u64,
        encode: impl FnOnce(T) -> R + Send + 'static,
    ) -> Answer<T> {
        Answer::new(move |reply: Reply<T>| {
            rest.settle(move |settled| {
                let _debt = debt;
                const { assert!(size_of::<R>() <= RECORD_BYTES_MAX, "there is room for the record") };
                let (mut out, mut length) = ([0; HEAD + RECORD_BYTES_MAX], HEAD);
                let error = match settled.and(reply) {
                    Ok(value) => {
                        length += size_of::<R>();
                        out[HEAD..length].copy_from_slice(encode(value).as_bytes());
                        0
                    }
                    Err(errno) => -errno.0,
                };
                self.send(&mut out[..length], None, unique, error);
            });
        })
    }
}

/// Duty to answer a request later.
struct Duty {
    rest: Rest,
    debt: Debt,
}

impl Reader {
    pub fn new() -> Reader {
        Reader { head: [0; HEAD_BYTES], payload: Abd::default(), joined: Vec::new(), out: Vec::new(), present_until: 0 }
    }

    /// Reads a request of the mount, if there is one, and serves it; `exec` has the time.
    pub fn serve(&mut self, mount: &Arc<Mount>, exec: &Exec) -> Looked {
        let Some(serving) = mount.begin() else { return if mount.is_paused() { Looked::Nothing } else { Looked::Gone } };
        if self.payload.len() != mount.capacity || self.payload.get_mut().is_none() {
            self.payload = Abd::scratch(mount.capacity);
            self.present_until = 0;
        }
        let Some(room) = self.payload.get_mut() else { return Looked::Nothing };
        if mount.lasting.is_some() {
            let now_ns = exec.now_ns();
            if now_ns >= self.present_until {
                make_present(room);
                self.present_until = now_ns + PRESENT_NS;
            }
        }
        let look = mount.sent_again.look();
        let received = match rustix::io::readv(&mount.device, &mut [IoSliceMut::new(&mut self.head), IoSliceMut::new(room)]) {
            Ok(count) => count,
            // Another thread was faster.
            Err(rustix::io::Errno::AGAIN) => {
                look.iter().for_each(Look::note_read);
                return Looked::Nothing;
            }
            // ENOENT: the request was interrupted before we got it.
            Err(rustix::io::Errno::INTR | rustix::io::Errno::NOENT) => return Looked::Nothing,
            Err(_) => return Looked::Gone,
        };
        counts::came_by_read();
        if self.serve_one(mount, (serving, look), received) { Looked::Served } else { Looked::Gone }
    }

    /// Serves the request that was received; false when the connection is gone.
    fn serve_one(&mut self, mount: &Arc<Mount>, begun: (Serving, Option<Look<'_>>), received: usize) -> bool {
        let Reader { head, payload, joined, out, .. } = self;
        let Ok((header, _)) = abi::InHeader::read_from_prefix(&head[..]) else { return true };
        let payload_bytes = received.saturating_sub(HEAD_BYTES);
        let mut body = head.get(size_of::<abi::InHeader>()..received.min(HEAD_BYTES)).unwrap_or_default();
        if payload_bytes > 0 && header.opcode != op::WRITE {
            joined.clear();
            joined.extend_from_slice(body);
            joined.extend_from_slice(payload.as_contiguous().and_then(|bytes| bytes.get(..payload_bytes)).unwrap_or_default());
            body = joined;
        }
        serve_request(mount, begun, &Request { header, payload, payload_bytes, body }, out, Link::Device(mount.device.clone()))
    }

    /// Serves the request that came to a seat.
    pub fn serve_turn(&mut self, turn: Turn) {
        counts::came_by_ring();
        let Reader { payload: small, joined, out, .. } = self;
        let mount = turn.mount().clone();
        let header = turn.head();
        // Who has no turn any more has answered: with EIO.
        let Some((serving, (records, rest))) = mount.begin().zip(turn.body()) else { return };
        joined.clear();
        joined.extend_from_slice(records);
        let (mut large, mut payload_bytes) = (Abd::default(), 0);
        // The seat takes the next request as soon as this one is answered; whoever keeps the bytes longer has them to himself.
        match header.opcode {
            op::WRITE if rest.len() <= SMALL_BYTES => {
                if small.len() != SMALL_BYTES || small.get_mut().is_none() {
                    *small = Abd::scratch(SMALL_BYTES);
                }
                small.copy_from(0, rest);
                payload_bytes = rest.len();
            }
            op::WRITE => {
                large = Abd::from_slice(rest);
                payload_bytes = rest.len();
            }
            _ => joined.extend_from_slice(rest),
        }
        let payload = if large.is_empty() { &*small } else { &large };
        let request = Request { header, payload, payload_bytes, body: joined };
        serve_request(&mount, (serving, None), &request, out, Link::Seat(turn));
    }
}

/// Lane of a request; None for what never waits, and where the handler has none. FLUSH is among these: a program that is executed closes what it
/// was not to have, and nobody can look at it, nor at what waits for it, before that is answered.
fn lane_of(handler: &dyn Handler, request: &Request<'_>) -> Option<Arc<Lane>> {
    let node = NodeId(request.header.nodeid);
    match request.header.opcode {
        op::FORGET | op::BATCH_FORGET | op::INTERRUPT | op::FLUSH | op::SYNCFS | op::DESTROY => None,
        op::LOOKUP => handler.lane(node, take_name(&mut { request.body }).unwrap_or_default()),
        _ => handler.lane(node, &[]),
    }
}

/// Serves a request on this thread, or has a thread of its lane's own do so where the lane has enough of those that read; false when the
/// connection is gone.
fn serve_request(
    mount: &Arc<Mount>,
    (serving, look): (Serving, Option<Look<'_>>),
    request: &Request<'_>,
    out: &mut Vec<u8>,
    link: Link,
) -> bool {
    // What outlives this server goes by the thread that began it.
    let has_lanes = look.is_none() && mount.lasting.is_none();
    let lane = if has_lanes { lane_of(serving.handler(), request) } else { None };
    let Some(lane) = lane else {
        return serve_here(mount, (serving, look), request, out, link);
    };
    let place = lane.enter(&mount.in_lanes);
    let kept = if place.is_none() { lane.keep(request.body.len() + request.payload_bytes) } else { None };
    let Some(kept) = kept else {
        // Without a place, too: there is no room for more that waits.
        return serve_here(mount, (serving, look), request, out, link);
    };
    hand_over(kept, mount, serving, request, link);
    true
}

/// Has a thread of the lane's own serve a request, with bytes of its own: those that it came with belong to the thread that read it.
fn hand_over(kept: Kept, mount: &Arc<Mount>, serving: Serving, request: &Request<'_>, link: Link) {
    let (mount, header, body) = (mount.clone(), request.header, request.body.to_vec());
    let payload = match header.opcode {
        op::WRITE => payload_alone(request),
        _ => Abd::default(),
    };
    kept.hand_over(move || {
        let request = Request { header, payload: &payload, payload_bytes: payload.len(), body: &body };
        // Those who read notice that the connection is gone.
        serve_here(&mount, (serving, None), &request, &mut Vec::new(), link);
    });
}

/// Payload of a WRITE that waits for its turn; the buffer around it is kept only where it is not much larger.
fn payload_alone(request: &Request<'_>) -> Abd {
    let (buffer, length) = (request.payload, request.payload_bytes);
    let small = if length * 2 < buffer.len() { buffer.as_contiguous().and_then(|bytes| bytes.get(..length)) } else { None };
    small.map_or_else(|| buffer.slice(0..length), Abd::from_slice)
}

/// Serves a request, whose answer is made in `out` where it is small; false when the connection is gone.
fn serve_here(mount: &Mount, (serving, look): (Serving, Option<Look<'_>>), request: &Request<'_>, out: &mut Vec<u8>, link: Link) -> bool {
    let header = request.header;
    let unique = header.unique;
    let done = done_before(mount.lasting.as_ref(), unique);
    let rest = Rest::begin(mount.lasting.as_ref(), &mount.settling, unique);
    if let Some(look) = look {
        look.begun(&header, &mount.device);
    }
    let result = match header.opcode {
        op::READ | op::WRITE | op::LSEEK => match transfer(request) {
            Ok((caller, transfer)) => {
                let duty = Duty { rest, debt: mount.owed.owe() };
                hand_on(link, duty, serving.handler(), &caller, unique, (transfer, done));
                mount.lasting.iter().for_each(|lasting| lasting.left());
                return true;
            }
            Err(errno) => Err(errno),
        },
        op::SYNCFS | op::DESTROY => {
            let duty = Duty { rest, debt: mount.owed.owe() };
            sync_later(mount, link.answer(duty, unique, |()| ()), serving, &header);
            mount.lasting.iter().for_each(|lasting| lasting.left());
            return true;
        }
        _ => {
            out.clear();
            out.resize(HEAD, 0);
            let repeated = done.and_then(|done| repeat(serving.handler(), request, done, out));
            repeated.unwrap_or_else(|| dispatch(serving.handler(), request, out))
        }
    };
    mount.lasting.iter().for_each(|lasting| lasting.left());
    if !rest.waits() {
        let is_connected = answer(link, &result, out, unique);
        drop(rest);
        return is_connected;
    }
    let mut out = std::mem::take(out);
    rest.settle(move |settled| {
        answer(link, &settled.and(result), &mut out, unique);
        drop(serving);
    });
    true
}

/// Gives the answer of a request; false when the connection is gone.
fn answer(link: Link, result: &Reply<Output>, out: &mut [u8], unique: u64) -> bool {
    match result {
        Ok(Output::Small) => link.send(out, None, unique, 0),
        Ok(Output::Nothing) => match link {
            Link::Device(_) => true,
            // What has no answer does not come to seats; one is given back all the same.
            seat @ Link::Seat(_) => seat.send(&mut [0; HEAD], None, unique, -libc::ENOSYS),
        },
        Err(errno) => link.send(&mut [0; HEAD], None, unique, -errno.0),
    }
}

fn hand_on(link: Link, duty: Duty, handler: &dyn Handler, caller: &Caller, unique: u64, (transfer, done): (Transfer, Option<Done>)) {
    match transfer {
        Transfer::Read(read) => handler.read_then(caller, &read, link.answer_read(duty, unique)),
        Transfer::Write(write) => {
            let answer = link.answer(duty, unique, |size| abi::WriteOut { size, padding: 0 });
            match done {
                // Another server wrote all of it; part of it is written once more with the rest.
                Some(done) if done.bytes == write.data.len() as u64 => answer.send(Ok(done.bytes as u32)),
                _ => handler.write_then(caller, write, answer),
            }
        }
        Transfer::Seek(seek) => handler.lseek_then(caller, &seek, link.answer(duty, unique, |offset| abi::LseekOut { offset })),
    }
}

/// Has the memory of a buffer be there before the kernel copies into it: it fails a request that it cannot copy because the server is being killed.
fn make_present(buffer: &mut [u8]) {
    buffer.iter_mut().step_by(abd::PAGE_BYTES).for_each(|byte| *byte = std::hint::black_box(*byte));
}

/// Serves SYNCFS, and DESTROY, which umount(2) of a mount on a block device waits for: whoever asks waits for the pool, no reader does.
fn sync_later(mount: &Mount, answer: Answer<()>, serving: Serving, header: &abi::InHeader) {
    let caller = Caller { uid: header.uid, gid: header.gid, pid: header.pid };
    let ends = header.opcode == op::DESTROY;
    mount.note_synced();
    mount.syncs.give(Box::new(move || {
        let reply = serving.handler().syncfs(&caller);
        drop(serving);
        // There is nobody who could hear why an unmount did not make everything durable.
        answer.send(if ends { Ok(()) } else { reply });
    }));
}

fn send(device: &OwnedFd, out: &mut [u8], data: Option<&Abd>, unique: u64, error: i32) -> bool {
    let length = out.len() + data.map_or(0, Abd::len);
    let head = abi::OutHeader { len: length as u32, error, unique };
    out[..HEAD].copy_from_slice(head.as_bytes());
    let sent = match data {
        None => rustix::io::write(device, out),
        Some(data) => {
            let mut slices = Vec::with_capacity(4);
            slices.push(IoSlice::new(out));
            slices.extend(data.chunks().map(IoSlice::new));
            if slices.len() > SLICES_MAX {
                let flat = data.to_contiguous();
                rustix::io::writev(device, &[IoSlice::new(out), IoSlice::new(flat.as_contiguous().unwrap_or_default())])
            } else {
                rustix::io::writev(device, &slices)
            }
        }
    };
    // ENOENT: the caller was killed and no longer waits for this reply. ENODEV: unmounted.
    match sent {
        Ok(_) | Err(rustix::io::Errno::NOENT) => true,
        Err(rustix::io::Errno::NODEV) => false,
        Err(_) if error == 0 => {
            // The kernel refused the reply itself; an error reply frees the caller.
            let head = abi::OutHeader { len: HEAD as u32, error: -libc::EIO, unique };
            rustix::io::write(device, head.as_bytes()).is_ok()
        }
        Err(_) => true,
    }
}
