//! Every provider that works without special hardware × every set of stages × every layout: each is a small pool with a dataset for every
//! compression and checksum, written, read directly, resilvered and scrubbed with the provider, which must hold what software's does and be clean to
//! OpenZFS.
//!
//! Stages are compression (with decompression), checksum, parity (with reconstruction) and the writes to devices: all sixteen sets of them, so also
//! every combination of neighbours, and all of them once more one by one (`zia_mode=per-op`). The quick subset has every pair of choices
//! at least once.

use crate::Failure;
use crate::driver::{self, Layout, NewPool};
use crate::manifest::{self, Lines};
use crate::oracle::Oracle;
use crate::providers::{Makers, PROVIDERS};
use crate::report::Table;
use crate::shadow::{Expected, Kind, Shadow, content};
use crate::touch::{new_file, write};
use dpusm::{Feature, OpKind, Registry, Tally};
use exec::Exec;
use offload::{Accelerator, ZiaMode, ZiaPolicy};
use pool::{Pool, ScanState};
use std::path::PathBuf;
use std::sync::OnceLock;
use vdev::{Pairing, TopKind};

/// Layouts, with log2 of their sectors.
pub const LAYOUTS: [(&str, u32); 6] =
    [("stripe3", 12), ("mirror2", 9), ("raidz1x3", 12), ("raidz2x6", 9), ("raidz3x8", 12), ("draid2x7", 12)];
const COMPRESSIONS: [&str; 4] = ["gzip", "lz4", "zstd", "off"];
const CHECKSUMS: [&str; 2] = ["fletcher4", "sha256"];
const RECORD: (&str, usize) = ("32K", 32 << 10);
const DEVICE_BYTES: u64 = 256 << 20;
const VERIFY_PERCENT: f64 = 10.0;
/// Files of a dataset: their names, sizes and kinds.
const FILES: [(&str, usize, Kind); 5] = [
    ("text", 150_000, Kind::Text),
    ("random", 100_000, Kind::Random),
    ("half", 200_000, Kind::Half),
    ("zeros", 64 << 10, Kind::Zeros),
    ("tiny", 400, Kind::Letter),
];

/// Sets of stages.
const COMPRESS: u8 = 1;
const CHECKSUM: u8 = 2;
const PARITY: u8 = 4;
const STORE: u8 = 8;
const ALL: u8 = 15;

/// Pool of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Number of the provider in [`PROVIDERS`]; None: software, without any.
    provider: Option<usize>,
    /// Number of the layout in [`LAYOUTS`].
    layout: usize,
    /// Stages on the provider, as a mask.
    stages: u8,
    /// True when the stages are carried out one by one.
    is_per_op: bool,
}

impl Cell {
    /// Name `zia-PROVIDER-LAYOUT-STAGES`, with a letter for each stage: compression, sum, parity, write.
    pub fn name(&self) -> String {
        let Some(provider) = self.provider else { return format!("zia-none-{}", self.layout()) };
        let letters = [(COMPRESS, 'c'), (CHECKSUM, 's'), (PARITY, 'p'), (STORE, 'w')];
        let stages: String = letters.iter().filter(|(stage, _)| self.stages & stage != 0).map(|(_, letter)| letter).collect();
        let stages = if stages.is_empty() { "off" } else { &stages };
        format!("zia-{}-{}-{stages}{}", PROVIDERS[provider], self.layout(), if self.is_per_op { "-per-op" } else { "" })
    }

    /// Name of its layout.
    pub fn layout(&self) -> &'static str {
        LAYOUTS[self.layout].0
    }

    /// Choices that were made, all of them: provider, layout, each stage, mode.
    fn choices(&self) -> [(usize, usize); 7] {
        let stage = |index: usize| (2 + index, usize::from(self.stages >> index & 1));
        [
            (0, self.provider.map_or(0, |provider| 1 + provider)),
            (1, self.layout),
            stage(0),
            stage(1),
            stage(2),
            stage(3),
            (6, usize::from(self.is_per_op)),
        ]
    }

    fn pairs(&self) -> Vec<((usize, usize), (usize, usize))> {
        let choices = self.choices();
        (0..choices.len()).flat_map(|left| (left + 1..choices.len()).map(move |right| (choices[left], choices[right]))).collect()
    }
}

/// Cells of the whole matrix, software first; true for the cells of the quick subset.
pub fn cells() -> Vec<(Cell, bool)> {
    let software = (0..LAYOUTS.len()).map(|layout| Cell { provider: None, layout, stages: 0, is_per_op: false });
    let mut cells = Vec::new();
    for provider in 0..PROVIDERS.len() {
        for layout in 0..LAYOUTS.len() {
            let cell = |stages, is_per_op| Cell { provider: Some(provider), layout, stages, is_per_op };
            cells.extend((0..=ALL).map(|stages| cell(stages, false)));
            cells.push(cell(ALL, true));
        }
    }
    let quick = covering(&cells);
    software.map(|cell| (cell, false)).chain(cells.into_iter().map(|cell| (cell, quick.contains(&cell)))).collect()
}

/// Cells, few, that have every pair of choices which any of them has: the one with most new pairs first.
fn covering(cells: &[Cell]) -> Vec<Cell> {
    let mut missing: std::collections::BTreeSet<_> = cells.iter().flat_map(Cell::pairs).collect();
    let mut chosen = Vec::new();
    while !missing.is_empty() {
        let news = |cell: &&Cell| cell.pairs().iter().filter(|pair| missing.contains(pair)).count();
        let Some(best) = cells.iter().max_by_key(news) else { break };
        for pair in best.pairs() {
            missing.remove(&pair);
        }
        chosen.push(*best);
    }
    chosen
}

/// State that the cells share: ways to make providers, and what software's pools hold.
pub struct Shared {
    exec: Exec,
    makers: Makers,
    references: [OnceLock<Result<Lines, String>>; LAYOUTS.len()],
}

impl Shared {
    /// Makes it for pools of `exec`.
    pub fn new(exec: &Exec) -> Shared {
        Shared { exec: exec.clone(), makers: Makers::new(exec), references: Default::default() }
    }
}

/// Cell at work.
pub struct Work<'a> {
    /// Cell that is worked on.
    pub cell: Cell,
    /// State that it shares with others.
    pub shared: &'a Shared,
    /// Oracle that judges.
    pub oracle: &'a Oracle,
    /// Folder of its devices.
    pub folder: PathBuf,
    /// Layout of its devices.
    pub layout: Layout,
}

impl Work<'_> {
    /// Runs all checks of the cell; the files of one that failed are kept.
    pub fn run(&self, table: &Table) {
        if self.checks(table).is_some() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    fn checks(&self, table: &Table) -> Option<()> {
        let name = self.cell.name();
        let pool = pool_name(&name);
        let lines = table.check(&format!("write {name}: the same as software"), || self.same(&pool))?;
        table.check(&format!("write {name}: zdb finds no error, no leak"), || self.oracle.zdb_clean(&self.folder, &pool))?;
        table.check(&format!("write {name}: real engine scrubs, lists"), || match self.oracle.check(&self.folder, &pool)? {
            Some(theirs) => manifest::compare("the real engine's", &lines, &theirs),
            None => Ok(()),
        })
    }

    /// Makes the pool; what it holds is what software's pool of this layout holds.
    fn same(&self, pool: &str) -> Result<Lines, Failure> {
        let lines = self.make(pool, self.cell)?;
        let reference = self.shared.references[self.cell.layout].get_or_init(|| {
            let software = Cell { provider: None, stages: 0, is_per_op: false, ..self.cell };
            let name = format!("reference_{}", self.cell.layout());
            let folder = self.folder.with_file_name(&name);
            let work = Work { cell: software, folder: folder.clone(), ..*self };
            let lines = work.make(&name, software).map_err(|error| error.to_string())?;
            let _ = std::fs::remove_dir_all(folder);
            Ok(normal(&lines, &name))
        });
        let reference = reference.as_ref().map_err(|error| format!("software's pool: {error}"))?;
        manifest::compare("compared with software's, its", reference, &normal(&lines, pool))?;
        Ok(lines)
    }

    fn make(&self, name: &str, cell: Cell) -> Result<Lines, Failure> {
        let _ = std::fs::remove_dir_all(&self.folder);
        std::fs::create_dir_all(&self.folder)?;
        let exec = &self.shared.exec;
        let ashift = LAYOUTS[cell.layout].1;
        let new = NewPool { name, layout: self.layout, ashift, device_bytes: DEVICE_BYTES, no_features: false, small_memory: false };
        let registry = Registry::new(exec);
        let session = || cell.provider.map(|provider| registry.get(PROVIDERS[provider])).transpose();
        if let Some(provider) = cell.provider {
            self.shared.makers.register(&registry, provider)?;
        }
        let pool = driver::create(exec, &self.folder, new)?;
        offload(&pool, session()?, cell);
        let expected = fill(&pool)?;
        pool.sync()?;
        self.check_stages(cell, session()?.as_ref(), &WRITTEN)?;
        let before = manifest::of_pool(&pool)?;
        expected.check(&before)?;
        pool.export()?;
        // Again, with nothing in the cache.
        let pool = driver::import(exec, &self.folder, name, false)?;
        offload(&pool, session()?, cell);
        read_directly(&pool)?;
        self.check_stages(cell, session()?.as_ref(), &[(COMPRESS, OpKind::Decompress)])?;
        if self.layout.kind != TopKind::Leaf {
            self.resilver(&pool)?;
            self.check_stages(cell, session()?.as_ref(), &[(PARITY, OpKind::RaidReconstruct)])?;
        }
        pool.scrub_start()?;
        wait_clean(&pool)?;
        manifest::compare("after resilver and scrub, ours", &before, &manifest::of_pool(&pool)?)?;
        pool.export()?;
        match session()? {
            Some(session) if session.stats().total(Tally::VerifyFailures) + session.stats().total(Tally::Restarts) > 0 => {
                Err("results were wrong, or blocks began again".into())
            }
            _ => Ok(before),
        }
    }

    /// Replaces the first device, which is gone, by another: what it had is computed.
    fn resilver(&self, pool: &Pool) -> Result<(), Failure> {
        let (old, new) = (self.folder.join("d00"), self.folder.join("n00"));
        let first = pool.tree().leaves[0].guid;
        pool.fault(first, false)?;
        pool.attach(first, &driver::new_leaf(&new, DEVICE_BYTES)?, Pairing::Replacing, true)?;
        wait_clean(pool)?;
        if pool.tree().is_replacing() {
            return Err("the device was not replaced".into());
        }
        Ok(std::fs::remove_file(old)?)
    }

    /// Checks that stages that were wished for and that the provider has went there; those that were not did not.
    fn check_stages(&self, cell: Cell, session: Option<&dpusm::Session>, stages: &[(u8, OpKind)]) -> Result<(), Failure> {
        let Some(session) = session else { return Ok(()) };
        let device = session.device()?;
        let parity = match self.layout.kind {
            TopKind::Raidz(parity) => usize::from(parity),
            TopKind::Draid(config) => config.parity(),
            _ => 0,
        };
        for (stage, kind) in stages {
            let needs_parity = matches!(kind, OpKind::RaidGenerate | OpKind::RaidReconstruct);
            let has = device.capabilities().list.iter().any(|capability| does(&capability.feature, *kind, parity));
            let wanted = has && cell.stages & stage != 0 && (parity > 0 || !needs_parity);
            let went = session.stats().get(*kind, Tally::Blocks) > 0;
            // Writes need the sum, and whatever else is on the provider to stay there: they are not always to be had.
            if wanted != went && !(*kind == OpKind::Store && (wanted || cell.stages & STORE != 0)) {
                let fallbacks =
                    dpusm::FallbackReason::ALL.map(|reason| (reason.name(), session.stats().get(*kind, Tally::Fallback(reason))));
                return Err(format!("{}: wanted {wanted}, went {went}, {fallbacks:?}", kind.name()).into());
            }
        }
        Ok(())
    }
}

/// True for the feature that an operation needs.
fn does(feature: &Feature, kind: OpKind, parity: usize) -> bool {
    match (kind, *feature) {
        (OpKind::Compress, Feature::Compress { .. })
        | (OpKind::Decompress, Feature::Decompress { .. })
        | (OpKind::Checksum, Feature::Checksum { .. })
        | (OpKind::Store, Feature::Store { .. }) => true,
        (OpKind::RaidGenerate, Feature::RaidGenerate { parity: own, .. })
        | (OpKind::RaidReconstruct, Feature::RaidReconstruct { parity: own, .. }) => usize::from(own) == parity,
        _ => false,
    }
}

const WRITTEN: [(u8, OpKind); 4] =
    [(COMPRESS, OpKind::Compress), (CHECKSUM, OpKind::Checksum), (PARITY, OpKind::RaidGenerate), (STORE, OpKind::Store)];

fn pool_name(cell: &str) -> String {
    format!("ours_{cell}")
}

/// Gives stages of a pool to a provider.
fn offload(pool: &Pool, session: Option<dpusm::Session>, cell: Cell) {
    let has = |stage: u8| cell.stages & stage != 0;
    let policy = ZiaPolicy {
        compress: has(COMPRESS),
        decompress: has(COMPRESS),
        checksum: has(CHECKSUM),
        raidz_gen: [has(PARITY); 3],
        raidz_rec: [has(PARITY); 3],
        file_write: has(STORE),
        mode: if cell.is_per_op { ZiaMode::PerOp } else { ZiaMode::Offload },
        verify_percent: VERIFY_PERCENT,
        bytes_min: 4096,
        deadline_ns: 60_000_000_000,
        ..ZiaPolicy::default()
    };
    pool.zio().set_stage(session.map(|session| Accelerator::new(session, policy).into_stage()));
    pool.zio().open_stores();
}

fn datasets(pool: &Pool) -> Vec<(String, &'static str, &'static str)> {
    let name = |compression, checksum| (format!("{}/{compression}-{checksum}", pool.name()), compression, checksum);
    COMPRESSIONS.iter().flat_map(|compression| CHECKSUMS.iter().map(move |checksum| name(*compression, *checksum))).collect()
}

/// Makes a dataset for every compression and checksum; one file of each is written over in a later txg.
fn fill(pool: &Pool) -> Result<Expected, Failure> {
    let mut expected = Expected::default();
    for (number, (name, compression, checksum)) in datasets(pool).into_iter().enumerate() {
        let properties = [("compression", compression), ("checksum", checksum), ("recordsize", RECORD.0)];
        pool.dsl().create_dataset(&name, driver::filesystem(&properties)).map_err(|error| format!("create {name}: {error}"))?;
        let zfs = driver::open(pool, &name)?;
        let root = zfs.node(zfs.root())?;
        let mut shadow = Shadow::default();
        for (index, (file, size, kind)) in FILES.into_iter().enumerate() {
            let bytes = content(size, (number * FILES.len() + index) as u64, kind);
            drop(new_file(&zfs, &root, file.as_bytes(), &bytes)?);
            shadow.files.insert(format!("/{file}"), bytes);
        }
        pool.sync()?;
        let over = content(RECORD.1 + 777, number as u64, Kind::Half);
        write(&zfs, &zfs.lookup(&root, b"text")?, 40_000, &over)?;
        let text = shadow.files.get_mut("/text").ok_or("no text")?;
        text[40_000..40_000 + over.len()].copy_from_slice(&over);
        expected.add(&name, &shadow);
        drop(root);
        zfs.sync()?;
    }
    Ok(expected)
}

/// Reads the whole records of every file past the cache, where providers decompress; the manifest has read all of it before.
fn read_directly(pool: &Pool) -> Result<(), Failure> {
    for (name, ..) in datasets(pool) {
        let handle = pool.dsl().hold(&name)?;
        let objset = handle.objset()?;
        let zfs = driver::open(pool, &name)?;
        let root = zfs.node(zfs.root())?;
        for (file, size, _) in FILES {
            let dnode = objset.hold(zfs.lookup(&root, file.as_bytes())?.object())?;
            let mut directly = vec![0; size / RECORD.1 * RECORD.1];
            dnode.read_direct_into(0, &mut directly)?;
            let mut cached = vec![0; directly.len()];
            dnode.read(0, &mut cached)?;
            if directly != cached {
                return Err(format!("{name}/{file}: a direct read finds other bytes").into());
            }
        }
    }
    Ok(())
}

/// Waits for the scan; an error when it found or left any.
fn wait_clean(pool: &Pool) -> Result<(), Failure> {
    pool.scrub_wait()?;
    pool.sync()?;
    match pool.scan_status() {
        Some(status) if status.state == ScanState::Finished && status.errors == 0 => Ok(()),
        other => Err(format!("the scan ended as {other:?}").into()),
    }
}

/// Lines without the pool's name and the times of files.
fn normal(lines: &Lines, pool: &str) -> Lines {
    let one = |line: &String| {
        let line = line.strip_prefix(pool).unwrap_or(line);
        line.split('\t').filter(|part| !part.starts_with("mtime=")).collect::<Vec<_>>().join("\t")
    };
    lines.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// A pair of choices that no quick pool has is a defect that the gate lets through.
    #[test]
    fn the_quick_subset_has_every_pair_of_choices() {
        let all = cells();
        let names: BTreeMap<String, bool> = all.iter().map(|(cell, is_quick)| (cell.name(), *is_quick)).collect();
        assert_eq!(names.len(), all.len(), "two cells have one name");
        assert_eq!(all.len(), LAYOUTS.len() * (1 + PROVIDERS.len() * 17));
        let pairs = |quick_only: bool| -> std::collections::BTreeSet<_> {
            let cells = all.iter().filter(|(cell, is_quick)| cell.provider.is_some() && (*is_quick || !quick_only));
            cells.flat_map(|(cell, _)| cell.pairs()).collect()
        };
        assert_eq!(pairs(true), pairs(false));
        let quick = all.iter().filter(|(_, is_quick)| *is_quick).count();
        assert!(quick <= 45, "{quick} pools are too many for the gate");
    }
}
