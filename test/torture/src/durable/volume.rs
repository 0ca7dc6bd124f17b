//! A volume under a program: in the model the file `volume`, the only one. What it reads as is asked of its object set: the way of a program's
//! requests is that of whoever serves volumes, the way back is not.

use super::program::{How, Op, Program};
use super::scribe::{Hands, Scribe};
use crate::machine::Trouble;
use crate::model::{Contents, Model, NodeId, State};
use abd::Abd;
use dsl::DslError;
use pool::Pool;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use zpl::direct::Direct;
use zvol::{Access, Settings, Volume};

/// Name of the dataset.
const VOLUME: &str = "tank/vol";
/// Name of the file that it is in the model.
const FILE: &str = "volume";
/// Node of that file: the first that was made.
pub(super) const NODE: NodeId = 1;
/// Bytes of a block.
pub(super) const BLOCK: usize = 8 << 10;
/// Number of blocks of the volume at first, and at most.
const BLOCKS: usize = 24;
const BLOCKS_MAX: usize = 32;
/// Bytes beside the blocks that a discard asks for too, in vain.
const RAGGED: usize = 700;

/// Model of a volume of zeros.
pub(super) fn model() -> Model {
    holding(vec![0; BLOCKS * BLOCK])
}

fn holding(bytes: Vec<u8>) -> Model {
    let mut model = Model::default();
    model.create(0, FILE, Contents::File(Arc::new(bytes)));
    model
}

/// Bytes of the volume and of its snapshots, as a model has them.
pub(super) fn state(pool: &Pool) -> Result<State, Trouble> {
    let read = |name: &str| -> Result<State, Trouble> {
        let objset = pool.dsl().hold(name)?.objset()?;
        let mut bytes = vec![0; dsl::volume::size(&objset)?.min((BLOCKS_MAX * BLOCK * 2) as u64) as usize];
        dsl::volume::data(&objset)?.read(0, &mut bytes).map_err(DslError::from)?;
        Ok(holding(bytes).state())
    };
    let mut state = State { head: read(VOLUME)?.head, snapshots: BTreeMap::new() };
    for snapshot in pool.dsl().snapshots(VOLUME)? {
        state.snapshots.insert(snapshot.name.clone(), read(&format!("{VOLUME}@{}", snapshot.name))?.head);
    }
    Ok(state)
}

fn open(pool: &Pool) -> Result<Arc<Volume>, Trouble> {
    let handle = pool.dsl().hold(VOLUME)?;
    let settings = Settings::of(&handle)?;
    Ok(Volume::open(handle, settings, Direct::default())?)
}

/// Volume of a program.
pub(super) struct VolumeHands<'a> {
    pool: &'a Pool,
    pub(super) volume: Arc<Volume>,
    pub(super) scribe: Arc<Scribe>,
    is_always: bool,
}

impl<'a> VolumeHands<'a> {
    /// Makes the volume and opens it; with `is_always` all that is done to it is durable at once.
    pub(super) fn new(pool: &'a Pool, scribe: Arc<Scribe>, is_always: bool) -> Result<VolumeHands<'a>, Trouble> {
        let mut new = interop::driver::volume((BLOCKS * BLOCK) as u64, BLOCK as u64);
        let properties = [("compression", "lz4"), ("sync", if is_always { "always" } else { "standard" })];
        new.properties.extend(properties.map(|(name, value)| (name.to_string(), value.to_string())));
        pool.dsl().create_dataset(VOLUME, new)?;
        Ok(VolumeHands { pool, volume: open(pool)?, scribe, is_always })
    }

    /// True when the end of the operation is that of a commit, which takes everything along.
    pub(super) fn commits(&self, op: &Op) -> bool {
        match op {
            Op::Write(_, _, _, how) => self.is_always || how.is_synchronous(),
            Op::Punch(..) | Op::Discard(..) => self.is_always,
            Op::SyncAll => true,
            _ => false,
        }
    }

    fn write(&self, offset: usize, bytes: &[u8], how: How) -> Result<(), Trouble> {
        let access = if how.is_direct() { Access::DIRECT } else { Access::default() };
        Ok(self.volume.write(offset as u64, Abd::from_slice(bytes), access, how.is_synchronous())?)
    }

    /// Range that has these whole blocks, and no others.
    pub(super) fn ragged(&self, offset: usize, length: usize) -> Range<u64> {
        offset.saturating_sub(RAGGED) as u64..((offset + length + RAGGED) as u64).min(self.volume.size())
    }

    fn discard(&self, offset: usize, length: usize) -> Result<(), Trouble> {
        let range = self.ragged(offset, length);
        Ok(self.volume.discard(range.start, range.end - range.start)?)
    }
}

impl Hands for VolumeHands<'_> {
    fn plan(&self, program: &mut Program, model: &Model) -> Op {
        program.plan_volume(model, NODE, (BLOCK, BLOCKS_MAX))
    }

    fn perform(&mut self, op: &Op, _: &Model) -> Result<(), Trouble> {
        let commits = self.commits(op);
        if commits {
            // Nothing else commits, so that it does not matter that the log begins a little later.
            self.scribe.offer(None);
        }
        match op {
            Op::Write(_, offset, bytes, how) => self.write(*offset, bytes, *how)?,
            Op::Truncate(_, size) => self.volume.resize(*size as u64)?,
            Op::Punch(_, offset, length) => self.volume.write_zeroes(*offset as u64, *length as u64)?,
            Op::Discard(_, offset, length) => self.discard(*offset, *length)?,
            Op::SyncAll => self.volume.flush()?,
            Op::Snapshot(name) => self.pool.dsl().snapshot(&[format!("{VOLUME}@{name}")], Vec::new())?,
            Op::Txg => self.pool.sync()?,
            // Nobody plans what a volume does not have.
            _ => return Err(DslError::Unsupported.into()),
        }
        if commits {
            self.scribe.acknowledge();
        }
        Ok(())
    }

    fn promise(&self, op: &Op) -> Option<Option<NodeId>> {
        (self.commits(op) || matches!(op, Op::Truncate(..) | Op::Snapshot(_) | Op::Txg)).then_some(None)
    }
}

/// Makes the volume larger, so that what lay behind its end would be seen, and bytes of it durable.
pub(super) fn go_on(pool: &Pool, wanted: &mut State) -> Result<(), Trouble> {
    let volume = open(pool)?;
    let bytes = b"written after the power came back ".repeat(700);
    let size = 2 * BLOCKS_MAX * BLOCK;
    volume.resize(size as u64)?;
    let places = [BLOCK + 1, size - bytes.len()];
    for place in places {
        volume.write(place as u64, Abd::from_slice(&bytes), Access::default(), true)?;
    }
    if let Some(seen) = Arc::make_mut(&mut wanted.head).get_mut(FILE) {
        let data = Arc::make_mut(&mut seen.data);
        data.resize(size, 0);
        places.iter().for_each(|place| data[*place..place + bytes.len()].copy_from_slice(&bytes));
    }
    Ok(())
}
