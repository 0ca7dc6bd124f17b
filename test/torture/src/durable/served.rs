//! A volume behind the door of NBD: requests go in and answers come out as bytes of the protocol, through the daemon's own code; only the socket and the
//! threads are not there. A change that was answered with FUA, and all that was answered before a flush was, has to be there.

use super::program::{How, Op, Program};
use super::scribe::{Hands, Scribe};
use super::volume::{self, VolumeHands};
use crate::machine::Trouble;
use crate::model::{Contents, Model, NodeId};
use abd::Abd;
use dsl::DslError;
use nbd::testing::Client;
use nbd::{Done, Export, Exports, Listed, Opened, Piece, Refusal, Run, Shape};
use pool::Pool;
use std::ops::Range;
use std::sync::Arc;

/// Name of the export.
const NAME: &str = "tank/vol";
/// Bytes of a sector.
const SECTOR: usize = 512;
/// Sectors of which writes that begin at one in so many are zeros that take space.
const ZEROS_EVERY: usize = 5;

/// The only export.
struct Only(Arc<dyn Export>);

impl Exports for Only {
    fn list(&self, then: Listed) {
        then(vec![NAME.to_string()]);
    }

    fn open(&self, name: &str, then: Opened) {
        then(if name == NAME { Ok(self.0.clone()) } else { Err(Refusal::Unknown) });
    }
}

/// Export that says of everything that it is durable, and makes nothing so.
struct Liar(Arc<dyn Export>);

impl Export for Liar {
    fn shape(&self) -> Shape {
        self.0.shape()
    }

    fn read(&self, range: Range<u64>, is_whole: bool, done: Done<Vec<Piece>>) {
        self.0.read(range, is_whole, done);
    }

    fn write(&self, at: u64, data: Abd, _: bool, done: Done<()>) {
        self.0.write(at, data, false, done);
    }

    fn trim(&self, range: Range<u64>, _: bool, done: Done<()>) {
        self.0.trim(range, false, done);
    }

    fn write_zeroes(&self, range: Range<u64>, keeps_space: bool, _: bool, done: Done<()>) {
        self.0.write_zeroes(range, keeps_space, false, done);
    }

    fn flush(&self, done: Done<()>) {
        done(Ok(()));
    }

    fn cache(&self, range: Range<u64>, done: Done<()>) {
        self.0.cache(range, done);
    }

    fn status(&self, range: Range<u64>, runs_max: usize, done: Done<Vec<Run>>) {
        self.0.status(range, runs_max, done);
    }
}

/// Volume of a program, and the client that uses it.
pub(super) struct ServedHands<'a> {
    volume: VolumeHands<'a>,
    client: Client,
}

/// Range of bytes that an operation is about.
fn range(offset: usize, length: usize) -> Range<u64> {
    offset as u64..(offset + length) as u64
}

/// True for what frees or zeroes, and is to be durable: every second one.
fn is_durable(offset: usize, length: usize) -> bool {
    !((offset + length) / volume::BLOCK).is_multiple_of(2)
}

impl<'a> ServedHands<'a> {
    /// Makes the volume and its client; of a liar's nothing is durable that is said to be.
    pub(super) fn new(pool: &'a Pool, scribe: Arc<Scribe>, is_always: bool, is_liar: bool) -> Result<ServedHands<'a>, Trouble> {
        let volume = VolumeHands::new(pool, scribe, is_always)?;
        let honest = control::testing::nbd_export(pool.exec(), volume.volume.clone());
        let honest = honest.ok_or_else(|| Trouble::Answer("there is no export".into()))?;
        let export: Arc<dyn Export> = if is_liar { Arc::new(Liar(honest)) } else { honest };
        let client = Client::new(&Arc::new(Only(export)), NAME).map_err(Trouble::Answer)?;
        Ok(ServedHands { volume, client })
    }

    /// True when the end of the operation is that of a commit, which takes everything along.
    fn commits(&self, op: &Op) -> bool {
        self.volume.commits(op)
            || matches!(op, Op::Punch(_, offset, length) | Op::Discard(_, offset, length) if is_durable(*offset, *length))
    }

    fn ask(&mut self, op: &Op) -> Result<(), Trouble> {
        let client = &mut self.client;
        let answer = match op {
            Op::Write(_, offset, bytes, how) if abd::slice_is_zero(bytes) => {
                client.write_zeroes(range(*offset, bytes.len()), true, how.is_synchronous())
            }
            Op::Write(_, offset, bytes, how) => client.write(*offset as u64, bytes, how.is_synchronous()),
            Op::Punch(_, offset, length) => client.write_zeroes(range(*offset, *length), false, is_durable(*offset, *length)),
            Op::Discard(_, offset, length) => client.trim(self.volume.ragged(*offset, *length), is_durable(*offset, *length)),
            Op::SyncAll => client.flush(),
            // Nobody plans what a client cannot ask for.
            _ => return Err(DslError::Unsupported.into()),
        };
        answer.map_err(Trouble::Answer)
    }

    /// Fails unless the client reads what the model has.
    fn compare(&mut self, model: &Model) -> Result<(), Trouble> {
        let Contents::File(wanted) = model.contents(volume::NODE) else { return Err(DslError::Unsupported.into()) };
        let read = self.client.read(0, wanted.len()).map_err(Trouble::Answer)?;
        if read == **wanted { Ok(()) } else { Err(Trouble::Answer("other bytes than were written".into())) }
    }
}

impl Hands for ServedHands<'_> {
    fn plan(&self, program: &mut Program, model: &Model) -> Op {
        match self.volume.plan(program, model) {
            Op::Write(node, offset, bytes, how) => {
                let how = if how.is_synchronous() { How::Synchronous } else { How::Buffered };
                let is_zeros = (offset / SECTOR).is_multiple_of(ZEROS_EVERY);
                Op::Write(node, offset, if is_zeros { vec![0; bytes.len()] } else { bytes }, how)
            }
            op => op,
        }
    }

    fn perform(&mut self, op: &Op, after: &Model) -> Result<(), Trouble> {
        if matches!(op, Op::Truncate(..) | Op::Snapshot(_) | Op::Txg) {
            return self.volume.perform(op, after);
        }
        let commits = self.commits(op);
        if commits {
            self.volume.scribe.offer(None);
        }
        self.ask(op)?;
        if commits {
            self.volume.scribe.acknowledge();
        }
        if matches!(op, Op::SyncAll) { self.compare(after) } else { Ok(()) }
    }

    fn promise(&self, op: &Op) -> Option<Option<NodeId>> {
        self.volume.promise(op).or_else(|| self.commits(op).then_some(None))
    }
}
