//! Random lives of pools: devices fail, lie, are wiped, taken out, brought back, attached, replaced and detached, spares stand in for
//! them and go again, free space is initialized and trimmed, between writes, scrubs, resilvers, rebuilds, crashes and imports.
//!
//! The model ([`survival`]) knows which devices hold everything that they should. It lets only those things happen after which every
//! block can still be had from them; so whatever was promised must be there, at any time. After each *healing* ([`heal`]: faults end,
//! devices come back, dead ones are replaced or left to their spares, resilver and scrub run to their ends) every device counts as
//! whole again: any that the layout can do without are left out, and everything must be read. Where the engine knew of all that was
//! missing, that is done after the resilver, and the scrub must find nothing to repair.
//!
//! * [`life`]: the pool and its devices; [`written`]: what was written to it;
//! * [`verbs`]: what can happen; [`crash`]: exports, crashes, power cuts, imports.

mod crash;
mod heal;
mod life;
mod survival;
mod verbs;
mod written;

use crate::machine::write_image;
use life::Life;
use ondisk::Guid;
use sim::Image;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use vdev::{DraidConfig, TopKind};
use written::said;

/// Bytes of a device. With 64 MiB the part that a distributed spare has of them is less than OpenZFS opens (`SPA_MINDEVSIZE`).
const DEVICE_BYTES: usize = 72 << 20;

/// Shape of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Kind of the only top-level vdev.
    pub kind: TopKind,
    /// Number of devices at first.
    pub count: usize,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            TopKind::Mirror => write!(f, "mirror:{}", self.count),
            TopKind::Raidz(parity) => write!(f, "raidz{parity}:{}", self.count),
            TopKind::Draid(config) => write!(f, "draid{}:{}d:{}c:{}s", config.parity(), config.data(), self.count, config.spares()),
            _ => write!(f, "disk:{}", self.count),
        }
    }
}

/// Shapes that lives begin with.
pub fn shapes() -> Vec<Shape> {
    let mut shapes = vec![
        Shape { kind: TopKind::Leaf, count: 1 },
        Shape { kind: TopKind::Mirror, count: 2 },
        Shape { kind: TopKind::Mirror, count: 3 },
        Shape { kind: TopKind::Raidz(1), count: 3 },
        Shape { kind: TopKind::Raidz(2), count: 5 },
        Shape { kind: TopKind::Raidz(3), count: 6 },
    ];
    for (parity, data, spares, count) in [(1, 2, 1, 5), (1, 2, 2, 7), (2, 2, 1, 6), (3, 1, 0, 5)] {
        if let Ok(config) = DraidConfig::new(parity, data, spares, count) {
            shapes.push(Shape { kind: TopKind::Draid(config), count });
        }
    }
    shapes
}

/// Number of times that each thing happened.
#[derive(Clone, Debug, Default)]
pub struct Report(BTreeMap<&'static str, u64>);

impl Report {
    fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    /// Adds the counts of other lives.
    pub fn add(&mut self, other: &Report) {
        for (what, count) in &other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }

    /// Counts since `before`.
    fn since(&self, before: &Report) -> Report {
        let more = self.0.iter().map(|(what, count)| (*what, count - before.of(what))).filter(|(_, count)| *count > 0);
        Report(more.collect())
    }

    /// Number of times that this happened.
    pub fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list: Vec<String> = self.0.iter().map(|(what, count)| format!("{count} {what}")).collect();
        f.write_str(&list.join(", "))
    }
}

/// End of a life.
#[derive(Debug)]
pub struct Ended {
    /// Counts of what happened in it.
    pub report: Report,
    /// Names and images of the devices of the exported pool `tank`.
    pub images: Vec<(String, Image)>,
}

impl Ended {
    /// Writes the devices into sparse files in `folder`.
    pub fn write_to(&self, folder: &Path) -> std::io::Result<()> {
        self.images.iter().try_for_each(|(name, image)| write_image(image, &folder.join(name)))
    }
}

/// Shape that the life with this seed begins with: each has its turn.
pub fn shape_of(seed: u64) -> Shape {
    let shapes = shapes();
    shapes[(seed % shapes.len() as u64) as usize]
}

/// Lives one life of `steps` steps, healed in the end.
pub fn live(shape: Shape, seed: u64, steps: u64) -> Result<Ended, String> {
    story(shape, seed, steps, &|_| ())
}

/// Does [`live`], and tells what happens in each step.
pub fn story(shape: Shape, seed: u64, steps: u64, tell: &dyn Fn(&str)) -> Result<Ended, String> {
    let mut life = Life::begin(shape, seed)?;
    for step in 0..steps {
        let before = life.report.clone();
        let result = life.step();
        tell(&format!(
            "{step}: {}; hurt {:?}, tainted {:?}, dead {:?}",
            life.report.since(&before),
            life.harm.hurt,
            life.harm.tainted,
            life.harm.dead
        ));
        result.map_err(|error| format!("step {step}: {error}"))?;
    }
    life.heal().map_err(|error| format!("the end: {error}"))?;
    let members = life.members()?;
    if let Some(pool) = life.pool.take() {
        said("export", pool.export())?;
    }
    let image = |(device, _): &(usize, Guid)| (format!("d{device}"), life.devices[*device].image());
    Ok(Ended { images: members.iter().map(image).collect(), report: std::mem::take(&mut life.report) })
}

/// Number of references to the executor that are left of a life which ended in the middle, after so many steps, and what happened in it.
pub fn left_behind(shape: Shape, seed: u64, steps: u64) -> Result<(usize, String), String> {
    let mut life = Life::begin(shape, seed)?;
    for _ in 0..steps {
        life.step()?;
    }
    let (executor, report) = (Arc::downgrade(&life.inline), life.report.to_string());
    drop(life);
    Ok((executor.strong_count(), report))
}
