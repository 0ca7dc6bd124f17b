//! Going back to an older state of a pool whose newest one cannot be opened, or is not wanted (OpenZFS: `spa_load_best`, `spa_load_retry`,
//! `spa_load_verify`), or to the one that a checkpoint keeps (`spa_ld_checkpoint_rewind`).
//!
//! A state is taken only when it opened once, read-only, and, where the pool is to be written, its space maps agree with its blocks and all of its
//! metadata can be read, unless `LoadVerify` says otherwise; contents that are damaged are only counted. Then its root is written to every ring as
//! the state of a txg that is newer than any that was left behind, in an order that is safe against a crash at any point, and those are taken off
//! the rings. Only after that is the pool opened, and anything allocated: at whatever point power goes off, either nothing was changed, or the pool
//! is what an import finds without being told to go back.

use super::activity::{newest, nobody};
use super::base::{Base, Runtime};
use super::find::{FoundPool, Member};
use super::{ImportOptions, Rewind, Start, check_dedup, check_host, check_label_features, check_version, read};
use crate::PoolError;
use crate::label::{ConfigBlock, Device, LabelWrite, flush_all, forgetting_writes, uberblock_writes, write_all};
use crate::spa::checkpoint;
use crate::verify::{Reading, Verifier};
use dsl::DslPool;
use exec::Exec;
use ondisk::{Txg, Uberblock};
use std::sync::Arc;
use vdev::LeafId;
use zio::FailMode;

/// Number of txgs for which what was freed is not used again (OpenZFS: `TXG_DEFER_SIZE`).
const DEFERRED_TXGS: u64 = 2;
/// Distance from the newest txg on disk to the one that a pool goes on with: those between may have been open, and intent logs may be of them.
/// Without changes txgs pass and no uberblock is written: logs can be as far ahead as any that is taken for one.
const BEYOND_TXGS: u64 = zil::LOST_TXGS_MAX + 4;
/// Labels are written in two halves, by the parity of their numbers.
const HALVES: usize = 2;

/// State that a pool went back to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewound {
    /// Txg of the state.
    pub txg: Txg,
    /// Time of the state, in seconds since 1970.
    pub timestamp: u64,
    /// Seconds from it to the newest state.
    pub lost_seconds: u64,
    /// Number of blocks of files and volumes that were read and are damaged (OpenZFS: `ZPOOL_CONFIG_LOAD_DATA_ERRORS`).
    pub data_errors: u64,
}

/// Dataset or snapshot of an older state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptDataset {
    /// Full name of the dataset.
    pub name: String,
    /// Txg of its last change.
    pub changed: Txg,
}

/// State that a pool could go back to.
#[derive(Clone, Debug)]
pub struct RewindPoint {
    /// Txg and time of the state.
    pub state: Rewound,
    /// Reason why it is not taken; None when it would be.
    pub problem: Option<PoolError>,
    /// Datasets and snapshots that it has; none where it cannot be opened.
    pub datasets: Vec<KeptDataset>,
}

/// Pool as it is to be opened, and the state that this is.
pub(crate) struct Returned {
    pub found: FoundPool,
    pub state: Rewound,
}

impl FoundPool {
    /// The states that an import may take, newest first: those that all rings together have, each root once.
    fn states(&self, rewind: Rewind) -> Vec<Uberblock> {
        let newest = self.best.as_ref().map_or(0, |ub| ub.ub_txg);
        let is_within = |ub: &&Uberblock| match rewind {
            // What a checkpoint keeps is in no ring.
            Rewind::Never | Rewind::Checkpoint => ub.ub_txg == newest,
            Rewind::Recent => ub.ub_txg >= newest.saturating_sub(DEFERRED_TXGS),
            Rewind::Any => true,
            Rewind::To(txg) => ub.ub_txg <= txg.0,
        };
        let known = self.members.iter().flat_map(|member| &member.labels.uberblocks).filter(|ub| ub.ub_txg != 0);
        let mut known: Vec<&Uberblock> = known.filter(is_within).collect();
        known.sort_by_key(|ub| std::cmp::Reverse(ub.preference()));
        // Uberblocks that repeat a root are one state.
        known.dedup_by_key(|ub| ub.ub_rootbp);
        let most = if matches!(rewind, Rewind::To(_)) { 1 } else { known.len() };
        known.into_iter().take(most).cloned().collect()
    }

    fn is_newest(&self, ub: &Uberblock) -> bool {
        self.best.as_ref().is_some_and(|best| best.preference() == ub.preference())
    }

    /// Names a state, and what it costs; in it so many blocks of contents were found damaged.
    fn described(&self, ub: &Uberblock, data_errors: u64) -> Rewound {
        let newest = self.best.as_ref().map_or(0, |best| best.ub_timestamp);
        Rewound { txg: ub.txg(), timestamp: ub.ub_timestamp, lost_seconds: newest.saturating_sub(ub.ub_timestamp), data_errors }
    }

    /// The uberblock with which the pool goes on from a state: of a txg after all that are left behind, also those that were open.
    fn continued(&self, state: &Uberblock) -> Uberblock {
        let Some(newest) = &self.best else { return state.clone() };
        Uberblock {
            ub_txg: newest.ub_txg.saturating_add(BEYOND_TXGS),
            // Other hosts go by what was promised last.
            ub_mmp_magic: newest.ub_mmp_magic,
            ub_mmp_delay: newest.ub_mmp_delay,
            ub_mmp_config: newest.ub_mmp_config,
            ..state.clone()
        }
    }

    /// The pool as it is with this uberblock as the newest; devices that left it may be its own again.
    fn at(&self, ub: Uberblock) -> FoundPool {
        let members = self.members.iter().chain(&self.left).cloned().collect();
        FoundPool { best: Some(ub), members, left: Vec::new(), ..self.clone() }
    }

    /// Tries every state that an import with these options may take, newest first, and changes nothing. The first one without a problem is the
    /// one that the import takes.
    ///
    /// # Errors
    /// Those of a pool that another host may have open.
    pub fn rewind_points(&self, exec: &Exec, options: &ImportOptions, runtime: &Runtime) -> Result<Vec<RewindPoint>, PoolError> {
        let trial = Trial::new(exec, self, options, runtime)?;
        let point = |ub: &Uberblock| {
            let at = trial.found_at(ub);
            let (checked, datasets) = match trial.open(&at) {
                Ok(base) => (trial.check((ub, &at), &base), datasets_of(&base.spa.dsl, at.name())),
                Err(error) => (Err(error), Vec::new()),
            };
            let data_errors = checked.as_ref().copied().unwrap_or_default();
            RewindPoint { state: self.described(ub, data_errors), problem: checked.err(), datasets }
        };
        Ok(self.states(options.rewind).iter().map(point).collect())
    }
}

/// Attempts at states of one pool.
struct Trial<'a> {
    exec: &'a Exec,
    found: &'a FoundPool,
    /// Options of the import that is to come.
    wanted: &'a ImportOptions,
    /// Options of an attempt.
    options: ImportOptions,
    runtime: Runtime,
}

impl<'a> Trial<'a> {
    /// Makes sure that no other host has the pool, and begins.
    fn new(exec: &'a Exec, found: &'a FoundPool, wanted: &'a ImportOptions, runtime: &Runtime) -> Result<Trial<'a>, PoolError> {
        check_host(found, wanted)?;
        if !wanted.skip_activity {
            found.look_for_activity(exec, wanted.host.id, &runtime.multihost)?;
        }
        let options = ImportOptions {
            new_name: None,
            temporary: false,
            read_only: true,
            force: true,
            skip_activity: true,
            rewind: Rewind::Never,
            arena: None,
            ..wanted.clone()
        };
        // Nobody is told of what is wrong with a state that is not taken.
        let runtime = Runtime { events: Arc::new(kstat::NoEvents), providers: None, ..runtime.clone() };
        Ok(Trial { exec, found, wanted, options, runtime })
    }

    /// Makes sure that nobody else wrote to the devices since they were found: attempts take long, and nobody sees them.
    fn make_sure(&self) -> Result<(), PoolError> {
        let devices: Vec<Device> = self.found.devices().cloned().collect();
        let now = newest(self.exec, &devices);
        if now.as_ref().map(|newest| newest.mark) == self.found.best.as_ref().map(Uberblock::preference) {
            return Ok(());
        }
        let host = now.map_or_else(nobody, |newest| newest.host);
        Err(PoolError::Active { hostid: host.id, hostname: host.name })
    }

    /// The pool as an import finds it once this state is the newest on its devices; who only reads leaves them as they are.
    fn found_at(&self, ub: &Uberblock) -> FoundPool {
        let ub = if self.found.is_newest(ub) || self.wanted.read_only { ub.clone() } else { self.found.continued(ub) };
        self.found.at(ub)
    }

    /// Opens a state read-only.
    fn open(&self, at: &FoundPool) -> Result<Base, PoolError> {
        let base = read(self.exec, at, &self.options, &self.runtime)?;
        let mut config = base.spa.config.lock();
        // Nobody could bring a device back for it.
        config.fail_mode = FailMode::Never;
        base.spa.publish(&config);
        drop(config);
        Ok(base)
    }

    /// Blocks of a state that are read: of contents those of its last three txgs, or all of a state whose space may have been used again since,
    /// and with [`Rewind::To`] (OpenZFS: `spa_verify_min_txg`).
    fn reading(&self, state: &Uberblock) -> Reading {
        let verify = self.runtime.load_verify;
        if !verify.data {
            return Reading::Metadata;
        }
        let newest = self.found.best.as_ref().map_or(0, |best| best.ub_txg);
        let is_old = matches!(self.wanted.rewind, Rewind::To(_)) || state.ub_txg < newest.saturating_sub(DEFERRED_TXGS);
        let after = if is_old { Txg(0) } else { Txg(state.ub_txg.saturating_sub(DEFERRED_TXGS + 1)) };
        Reading::Since { after, bytes_max: self.runtime.arc_max.checked_shr(verify.shift).unwrap_or(0) }
    }

    /// Refuses an open state that the import that is to come could not write. Gives the number of blocks of contents that are damaged: they refuse
    /// none (OpenZFS: `zlp_maxmeta` is 0, and `zlp_maxdata` without limit).
    fn check(&self, (state, at): (&Uberblock, &FoundPool), base: &Base) -> Result<u64, PoolError> {
        if self.wanted.read_only {
            return Ok(0);
        }
        check_version(at.version())?;
        base.spa.services.features.check(false)?;
        check_dedup(&base.spa.mos)?;
        if let Some(problem) = at.examine(self.exec, &self.runtime).problem {
            return Err(problem);
        }
        if !self.runtime.load_verify.metadata {
            return Ok(0);
        }
        let mut report = Verifier(&base.spa).verify_blocks(self.reading(state))?;
        let data_errors = std::mem::take(&mut report.unreadable_data);
        report.unreadable -= data_errors;
        if data_errors > 0 {
            let name = at.name().escape_debug();
            tracing::warn!("pool '{name}': {data_errors} blocks of files are damaged in the state of txg {}", state.ub_txg);
        }
        if report.is_sound() {
            return Ok(data_errors);
        }
        // A broken space map is a block that cannot be used, too.
        let unreadable = report.unreadable + report.unknown;
        Err(PoolError::Unsound { unreadable, overlapping: report.overlapping, unallocated: report.unallocated })
    }
}

/// Datasets and snapshots below `root`, and it, as far as they can be read.
fn datasets_of(dsl: &Arc<DslPool>, root: &str) -> Vec<KeptDataset> {
    let (mut kept, mut waiting) = (Vec::new(), vec![root.to_string()]);
    while let Some(name) = waiting.pop() {
        let snapshots = dsl.snapshots(&name).unwrap_or_default();
        kept.extend(dsl.hold(&name).map(|held| KeptDataset { name: name.clone(), changed: held.root_block().birth() }));
        kept.extend(
            snapshots.iter().map(|snapshot| KeptDataset { name: format!("{name}@{}", snapshot.name), changed: Txg(snapshot.creation_txg) }),
        );
        waiting.extend(dsl.children(&name).unwrap_or_default().iter().rev().map(|child| format!("{name}/{child}")));
    }
    kept
}

/// True when an older state may lack what keeps this one from being opened, and nothing but going back helps: nobody is to lose what was written
/// for a device that is away. [`Rewind::To`] goes past that.
fn may_be_gone_before(error: &PoolError) -> bool {
    !matches!(
        error,
        PoolError::UnsupportedFeatures { .. }
            | PoolError::UnsupportedVersion(_)
            | PoolError::MissingDevices(_)
            | PoolError::MissingVdev(_)
            | PoolError::MissingLogs(_)
            | PoolError::IntentLogs(_)
            | PoolError::InUse { .. }
            | PoolError::Active { .. }
            | PoolError::NoHostid
            | PoolError::Closed
    )
}

/// Chooses the state that a checkpoint keeps. It was kept as it is, and is not verified (OpenZFS: `spa_ld_checkpoint_rewind`); the newest state need
/// not be one that could be written.
///
/// # Errors
/// [`PoolError::NoCheckpoint`]; those of opening the pool in its newest state or in that one; [`PoolError::Active`] and [`PoolError::Io`] as [`go_back`].
fn to_checkpoint(exec: &Exec, found: &FoundPool, options: &ImportOptions, runtime: &Runtime) -> Result<Returned, PoolError> {
    let mut trial = Trial::new(exec, found, options, runtime)?;
    trial.runtime.load_verify.metadata = false;
    let newest = found.best.as_ref().ok_or(PoolError::NoUberblock)?;
    check_version(newest.ub_version)?;
    check_label_features(found)?;
    let start = Start::new(exec, found, (&trial.runtime, 0), newest)?;
    let state = checkpoint::read(start.objset())?.ok_or(PoolError::NoCheckpoint)?;
    let at = found.at(found.continued(&state));
    let base = trial.open(&at)?;
    trial.check((&state, &at), &base)?;
    if !options.read_only {
        trial.make_sure()?;
        commit(exec, (found, &at), &base, &state)?;
    }
    Ok(Returned { found: at, state: found.described(&state, 0) })
}

/// Chooses the state that an import with these options takes. None: the newest one, or nothing but it may be taken. Of another one the devices
/// say, from then on, that it is the pool's, unless they are only to be read.
///
/// # Errors
/// Those of the newest state when none can be taken, [`PoolError::Active`] when somebody else wrote meanwhile, and [`PoolError::Io`] when a device
/// did not take the older one: whether it is the pool's from then on is not known, but nothing else was changed.
pub(crate) fn go_back(exec: &Exec, found: &FoundPool, options: &ImportOptions, runtime: &Runtime) -> Result<Option<Returned>, PoolError> {
    if options.rewind == Rewind::Never {
        return Ok(None);
    }
    if options.rewind == Rewind::Checkpoint {
        return to_checkpoint(exec, found, options, runtime).map(Some);
    }
    let trial = Trial::new(exec, found, options, runtime)?;
    let mut first = None;
    for state in found.states(options.rewind) {
        let at = trial.found_at(&state);
        let error = match trial.open(&at).and_then(|base| trial.check((&state, &at), &base).map(|errors| (base, errors))) {
            Ok(_) if found.is_newest(&state) => return Ok(None),
            Ok((base, data_errors)) => {
                if !options.read_only {
                    trial.make_sure()?;
                    commit(exec, (found, &at), &base, &state)?;
                }
                return Ok(Some(Returned { found: at, state: found.described(&state, data_errors) }));
            }
            Err(error) => error,
        };
        tracing::warn!("pool '{}': the state of txg {} is not taken: {error}", found.name().escape_debug(), state.ub_txg);
        let is_hopeless = !may_be_gone_before(&error);
        first = first.or(Some(error));
        if is_hopeless {
            break;
        }
    }
    Err(first.unwrap_or(PoolError::NoUberblock))
}

/// log2 of the sectors of the vdev that a device is of, by its label.
fn ashift_of(member: &Member) -> u32 {
    let config = member.labels.configs.first();
    let ashift = config.and_then(|config| config.get_nvlist("vdev_tree")?.get_u64("ashift"));
    ashift.and_then(|ashift| u32::try_from(ashift).ok()).unwrap_or(0)
}

/// The labels that devices have from then on, as the state that `base` is knows them.
fn labels_of(base: &Base, txg: Txg) -> Result<Vec<(Device, ConfigBlock)>, PoolError> {
    let config = base.spa.config.lock();
    let mut labels = Vec::new();
    for (index, device) in config.devices.iter().enumerate() {
        let Some(device) = device else { continue };
        let label = config.facts.label_config(&config.tree, LeafId(index as u32), txg);
        labels.push((device.clone(), ConfigBlock::new(&label)?));
    }
    Ok(labels)
}

/// Makes a state the newest one of all devices, and takes those after it off their rings. Half of the labels are written before the others: the
/// new uberblock may come to lie where the state's own was. Devices that left the pool and are of the state say so before its uberblock does.
fn commit(exec: &Exec, (found, at): (&FoundPool, &FoundPool), base: &Base, state: &Uberblock) -> Result<(), PoolError> {
    let continued = found.continued(state);
    let labels = labels_of(base, continued.txg())?;
    let is_own =
        |device: &Device| found.devices().any(|own| Arc::ptr_eq(own, device)) || labels.iter().any(|(own, _)| Arc::ptr_eq(own, device));
    let members: Vec<&Member> = at.members.iter().filter(|member| is_own(&member.device)).collect();
    let devices: Vec<Device> = members.iter().map(|member| member.device.clone()).collect();
    let written = |writes: Vec<LabelWrite>| -> Result<(), PoolError> {
        write_all(exec, writes).into_iter().collect::<Result<(), _>>()?;
        Ok(flush_all(exec, &devices).into_iter().collect::<Result<(), _>>()?)
    };
    tracing::warn!(
        "pool '{}' goes back to txg {} and on with txg {}: what was written between is given up",
        found.name().escape_debug(),
        state.ub_txg,
        continued.ub_txg
    );
    for half in 0..HALVES {
        written(labels.iter().flat_map(|(device, label)| label.writes(device, half)).collect())?;
        let of_member = |member: &&Member| {
            let writes = uberblock_writes(&member.device, &continued, ashift_of(member)).into_iter().enumerate();
            writes.filter(|(label, _)| label % HALVES == half).map(|(_, write)| write).collect::<Vec<LabelWrite>>()
        };
        written(members.iter().flat_map(of_member).collect())?;
    }
    // Should the newer one be damaged one day, none of those may be taken for what comes next: their space is another's by then.
    let is_left = |txg: u64| txg > state.ub_txg && txg < continued.ub_txg;
    let forgetting = |member: &&Member| forgetting_writes(exec, &member.device, ashift_of(member), &is_left);
    written(members.iter().flat_map(forgetting).collect())
}
