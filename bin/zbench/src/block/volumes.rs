//! Volumes of a pool in this process, used as a library uses them: requests in flight, past the cache or through it.

use super::args::Args;
use super::load::{Load, Outcome, beside_each_other};
use crate::measure::{measure, text};
use crate::pipeline::{self, Direction, Stream, part};
use crate::subject::{Config, Opener, Subject};
use abd::Abd;
use direct_io::Direct;
use dmu::{Objset, Tx};
use dsl::CreateDataset;
use ondisk::ObjsetType;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use zvol::{Access, Settings, Volume};

/// Access through the cache.
pub const CACHED: Access = Access { flagged: false, ..Access::DIRECT };

/// Pool with volumes of one size, which are filled.
pub struct Volumes {
    /// Pool of the volumes.
    pub subject: Subject,
    /// Volumes, open.
    pub volumes: Vec<Arc<Volume>>,
    bytes: u64,
}

/// Configuration of a pool for volumes.
pub fn config(args: &Args, devices: Vec<PathBuf>) -> Config {
    Config {
        layout: args.layout,
        devices,
        record: 128 << 10,
        checksum: "fletcher4".to_string(),
        compression: "off".to_string(),
        threads: args.threads,
        arc_max: 256 << 20,
    }
}

/// Makes a volume of `bytes` in blocks of `block` bytes, and opens it.
fn create(subject: &Subject, name: &str, bytes: u64, block: u64) -> Result<Arc<Volume>, String> {
    let sizes = [("volsize", bytes.to_string()), ("volblocksize", block.to_string())];
    let others = [("checksum", "fletcher4".to_string()), ("compression", "off".to_string())];
    let properties = sizes.into_iter().chain(others).map(|(name, value)| (name.to_string(), value)).collect();
    let init = Box::new(move |objset: &Arc<Objset>, tx: &Tx| dsl::volume::create(objset, bytes, block, tx));
    let dsl = subject.pool().dsl();
    dsl.create_dataset(name, CreateDataset { kind: ObjsetType::ZVOL, properties, init }).map_err(text)?;
    let handle = dsl.hold(name).map_err(text)?;
    let settings = Settings::of(&handle).map_err(text)?;
    Volume::open(handle, settings, Direct::default()).map_err(text)
}

/// Runs requests of a load on one volume, in one stream.
pub fn run_one(volume: &Arc<Volume>, load: Load, access: Access, data: &Abd, offsets: impl Iterator<Item = u64>) -> Result<Stream, String> {
    pipeline::keep_in_flight(load.depth, load.bytes, offsets, |offset, number, ending| {
        match load.direction {
            Direction::Read => {
                let then = move |result: Result<Abd, zvol::VolumeError>| ending.tell(result.map(drop).map_err(text));
                volume.read_then(offset, load.bytes, access, Box::new(then));
            }
            Direction::Write => {
                let then = move |result: Result<(), zvol::VolumeError>| ending.tell(result.map_err(text));
                volume.write_then(offset, part(data, load.bytes, number), access, false, Box::new(then));
            }
        }
        Ok(())
    })
}

impl Volumes {
    /// Makes a pool with `count` volumes of `bytes` in blocks of `block` bytes, and fills them.
    pub fn create(config: &Config, opener: Opener, [count, bytes, block]: [u64; 3], data: &Abd) -> Result<Volumes, String> {
        let subject = Subject::create_with(config, opener)?;
        let name = |number: u64| format!("zbench/v{number:02}");
        let volumes = (0..count).map(|number| create(&subject, &name(number), bytes, block)).collect::<Result<Vec<_>, _>>()?;
        let all = Volumes { subject, volumes, bytes };
        let size = block.max(1 << 20).min(bytes);
        let load = Load { title: "fill", direction: Direction::Write, is_random: false, bytes: size, depth: 4, streams: 1 };
        for volume in &all.volumes {
            run_one(volume, load, Access::DIRECT, data, (0..bytes).step_by(size as usize))?;
        }
        all.subject.settle()?;
        Ok(all)
    }

    /// Runs a load until `deadline`, but at most so many times over all the volumes as `passes` says: freed space rests for two txgs. Each stream has a
    /// volume of its own; there are as many volumes as streams.
    pub fn run(&self, load: Load, access: Access, data: &Abd, deadline: Instant, passes: u64) -> Result<Outcome, String> {
        let most = (self.bytes * passes / load.bytes) as usize;
        let alone = Load { streams: 1, ..load };
        let stream = |index: usize, volume: &Arc<Volume>| {
            run_one(volume, load, access, data, alone.offsets(self.bytes, if load.is_random { index } else { 0 }, deadline).take(most))
        };
        let volumes: Vec<&Arc<Volume>> = self.volumes.iter().take(load.streams).collect();
        let copied = abd::copied();
        let (streams, cost) = measure(|| beside_each_other(volumes, stream))?;
        Ok(Outcome { copied: Some(abd::copied() - copied), ..Outcome::of(streams, cost) })
    }

    /// Exports the pool.
    pub fn end(self) -> Result<(), String> {
        let Volumes { subject, volumes, .. } = self;
        drop(volumes);
        subject.export()
    }
}
