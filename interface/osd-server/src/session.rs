//! What a client has, and its requests: each is done when its reply is given.

use crate::context::{Context, Opened, Seat};
use crate::errors::{errno_of, fid};
use crate::memory::{MEMORIES_MAX, Memories};
use crate::outbox::Outbox;
use crate::read::read;
use crate::transact::{self, transact};
use osd::{Commit, Device, Object};
use osd_client::{
    Attributes, ENTRIES_MAX, Entries, Fid, Limits, OPERATIONS_MAX, Operation, PIECES_MAX, Piece, Reply, Request, Space, VERSION,
};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;

fn number(errno: Errno) -> u32 {
    errno.raw_os_error().unsigned_abs()
}

/// Reply with a content, or an error.
fn replied(result: Result<Vec<u8>, Errno>) -> Reply {
    result.map_or_else(|errno| Reply::failed(number(errno)), Reply::of)
}

/// State of a connection.
pub(crate) struct Session {
    context: Arc<Context>,
    seat: Arc<Seat>,
    outbox: Arc<Outbox>,
    /// True once the client said which version it speaks.
    is_greeted: bool,
    memories: Memories,
    opened: Option<Arc<dyn Opened>>,
}

impl Session {
    pub(crate) fn new(context: &Arc<Context>, seat: Arc<Seat>, outbox: &Arc<Outbox>) -> Session {
        let memories = Memories::new(context.options.memory_bytes_max);
        Session { context: context.clone(), seat, outbox: outbox.clone(), is_greeted: false, memories, opened: None }
    }

    /// Does what a request asks for.
    pub(crate) fn perform(&mut self, tag: u64, request: &Request, file: Option<OwnedFd>) -> Reply {
        match request {
            Request::Hello(version) => replied(self.greet(*version)),
            _ if !self.is_greeted => Reply::failed(number(Errno::PROTO)),
            Request::Open(name) => replied(self.open(name)),
            Request::Share { memory, is_direct, bytes } => {
                replied(self.memories.share(*memory, file, *bytes, *is_direct).map(|()| Vec::new()))
            }
            Request::Unshare(memory) => replied(self.memories.unshare(*memory).map(|()| Vec::new())),
            Request::Transact { tells, spends, operations } => self.transact(tag, (*tells, *spends), operations),
            other => replied(self.device().and_then(|device| self.ask(&device, other))),
        }
    }

    fn greet(&mut self, version: u32) -> Result<Vec<u8>, Errno> {
        if version != VERSION {
            return Err(Errno::PROTONOSUPPORT);
        }
        self.is_greeted = true;
        let options = &self.context.options;
        let limits = Limits {
            version: VERSION,
            operations: OPERATIONS_MAX as u32,
            pieces: PIECES_MAX as u32,
            memories: MEMORIES_MAX,
            memory_bytes: options.memory_bytes_max,
            request_bytes: options.request_bytes_max,
        };
        Ok(limits.encode())
    }

    fn open(&mut self, name: &str) -> Result<Vec<u8>, Errno> {
        if self.opened.is_some() {
            return Err(Errno::ISCONN);
        }
        // Noted first: whoever takes the dataset away meanwhile finds it.
        *self.seat.dataset.lock() = Some(name.to_string());
        let opened = self.context.devices.open(name);
        if opened.is_err() {
            *self.seat.dataset.lock() = None;
        }
        let opened = opened?;
        let record = opened.device().record_size();
        self.opened = Some(opened);
        Ok(Reply::of_numbers(&[record]).content)
    }

    fn device(&self) -> Result<Arc<Device>, Errno> {
        self.opened.as_ref().map(|opened| opened.device().clone()).ok_or(Errno::NOTCONN)
    }

    fn transact(&mut self, tag: u64, (tells, spends): (bool, bool), operations: &[(Fid, Operation)]) -> Reply {
        let checked = self.device().and_then(|device| {
            let bytes = transact::bytes(&self.memories, operations, device.record_size(), &self.context.options)?;
            Ok((device, bytes))
        });
        let commit = tells.then(|| self.commit(tag));
        let (device, bytes) = match checked {
            Ok(checked) => checked,
            Err(errno) => {
                commit.into_iter().for_each(|commit| commit(false));
                return Reply::failed(number(errno));
            }
        };
        let _spent = self.context.budget.take(bytes);
        let (done, result) = transact(&device, &self.memories, spends.then_some(self.seat.number), operations, commit);
        Reply { status: result.err().map_or(0, number), done, content: Vec::new() }
    }

    /// Callback that tells the client of a transaction.
    fn commit(&self, tag: u64) -> Commit {
        self.outbox.owe();
        let outbox = self.outbox.clone();
        Box::new(move |is_on_disk| outbox.tell(tag, is_on_disk))
    }

    /// Answer to a question, or what changes without a transaction.
    fn ask(&self, device: &Arc<Device>, request: &Request) -> Result<Vec<u8>, Errno> {
        let object = |object: &Fid| device.object(fid(*object)).map_err(errno_of);
        match request {
            Request::Read { object: read, is_direct, pieces } => self.read(&object(read)?, *is_direct, pieces),
            Request::Attributes(asked) => attributes(&object(asked)?),
            Request::Xattr(asked, name) => object(asked)?.xattr(name).map_err(errno_of),
            Request::Xattrs(asked) => object(asked)?.xattrs().map(|names| Reply::of_texts(&names).content).map_err(errno_of),
            Request::Lookup(asked, key) => object(asked)?.lookup(key).map_err(errno_of)?.ok_or(Errno::NOENT),
            Request::Entries { object: asked, from, count } => {
                let count = (*count).clamp(1, ENTRIES_MAX) as usize;
                let found = object(asked)?.entries(*from, count).map_err(errno_of)?;
                Ok(Entries { entries: found.entries, next: found.next }.encode())
            }
            Request::Space => {
                let osd::Space { block_size, total, free, granted, objects } = device.space();
                Ok(Space { block_size, total, free, granted, objects }.encode())
            }
            Request::Grant(bytes) => Ok(Reply::of_numbers(&[device.grant(self.seat.number, *bytes)]).content),
            Request::GiveBack(bytes) => Ok(Reply::of_numbers(&[device.give_back(self.seat.number, *bytes)]).content),
            Request::Sync => device.sync().map(|()| Vec::new()).map_err(errno_of),
            Request::Hello(_) | Request::Open(_) | Request::Share { .. } | Request::Unshare(_) | Request::Transact { .. } => {
                Err(Errno::PROTO)
            }
        }
    }

    fn read(&self, object: &Arc<Object>, is_direct: bool, pieces: &[Piece]) -> Result<Vec<u8>, Errno> {
        let bytes = self.memories.check(pieces, self.context.options.request_bytes_max)?;
        let _spent = self.context.budget.take(bytes);
        let counts = read(&self.memories, object, pieces, is_direct)?;
        Ok(Reply::of_numbers(&counts).content)
    }
}

fn attributes(object: &Arc<Object>) -> Result<Vec<u8>, Errno> {
    let is_index = object.is_index().map_err(errno_of)?;
    let fields = object.attributes().map_err(errno_of)?;
    let attributes = Attributes {
        size: fields.size,
        mode: fields.mode as u32,
        uid: fields.uid as u32,
        gid: fields.gid as u32,
        is_index,
        times: fields.times,
    };
    Ok(attributes.encode())
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(opened) = &self.opened {
            opened.device().give_back(self.seat.number, u64::MAX);
        }
    }
}
