//! Puts an open pool together: its rooms, and the list of steps that its sync consists of.

use super::Pool;
use crate::PoolError;
use crate::caches::Caches;
use crate::expand::run::Expansions;
use crate::expand::step::ExpandStep;
use crate::heartbeat::Heartbeat;
use crate::open::base::{Base, Runtime};
use crate::outliers::Outliers;
use crate::rebuild::Rebuilds;
use crate::rebuild::sync::RebuildStep;
use crate::removal::condense::CondenseStep;
use crate::removal::obsolete::WriteObsolete;
use crate::removal::run::Removals;
use crate::removal::step::RemovalStep;
use crate::scans::{self, Resilvers, ScanStep};
use crate::spa::takeover::ArenaOutcome;
use crate::spa::{Spa, props};
use crate::sweep::sync::SweepStep;
use crate::sync::Syncer;
use crate::sync::brt::{AddReferences, GiveUpReferences};
use crate::sync::changes::Changes;
use crate::sync::checkpoint::{CheckpointControl, CheckpointStep};
use crate::sync::datasets::{Datasets, Frees, SettleLogs, SyncLogs, SyncTasks, WriteHistory};
use crate::sync::dedup::SyncDedup;
use crate::sync::flushing::LogControl;
use crate::sync::mos::{AfterImport, DirtyTimeLogs, WriteConfig, WriteMos, WriteSpace};
use crate::sync::step::Steps;
use crate::sync::tree::{ApplyChanges, TreeWriter};
use crate::vdev_ops::VdevOps;
use crate::vdev_ops::leaves::Leaves;
use crate::zia::Followed;
use exec::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use zio::Dirty;

/// The pool of `base`; nothing of it runs yet.
pub(super) fn assemble(base: Base, runtime: &Runtime) -> Result<Pool, PoolError> {
    let (damaged_labels, damaged_uberblocks, dedup) = (base.damaged_labels, base.damaged_uberblocks, base.dedup.clone());
    let Base { spa, maps, config_object, deferred, logged, space_log, shared, kept, new_salt, logs, .. } = base;
    let spa = Arc::new(spa);
    attach_queues(&spa)?;
    let scan = scans::open(&spa)?;
    let rebuilds = Rebuilds::open(&spa, &scan, runtime.arc_max);
    let removals = Removals::open(&spa)?;
    let sweeps = crate::sweep::open(&spa);
    let expansions = Expansions::open(&spa, &scan, &sweeps);
    let (changes, tree) = (Arc::<Changes>::default(), Arc::new(TreeWriter::new(spa.clone())));
    let (shared, kept) = (Arc::new(Mutex::new(shared)), Arc::new(Mutex::new(kept)));
    let checkpoints = Arc::<CheckpointControl>::default();
    let (dsl, frees_max, log_control) = (&spa.dsl, Arc::<AtomicU64>::default(), Arc::<LogControl>::default());
    let steps = Steps {
        once: vec![
            Box::new(CheckpointStep { spa: spa.clone(), control: checkpoints.clone(), kept: kept.clone() }),
            Box::new(ApplyChanges { changes: changes.clone(), tree: tree.clone() }),
            Box::new(AddReferences { spa: spa.clone(), shared: shared.clone(), reader: dedup.clone() }),
            Box::new(SettleLogs { dsl: dsl.clone(), logs }),
            Box::new(SyncLogs(dsl.clone())),
            Box::new(Datasets(dsl.clone())),
            Box::new(SyncTasks(dsl.clone())),
            Box::new(Datasets(dsl.clone())),
            Box::new(Frees { dsl: dsl.clone(), services: spa.services.clone(), most: frees_max.clone() }),
            Box::new(CondenseStep { removals: removals.clone(), spa: spa.clone(), has_taken_over: false }),
            Box::new(RemovalStep::new(removals.clone(), spa.clone(), tree.clone())),
            Box::new(ExpandStep::new(expansions.clone(), spa.clone(), tree.clone())),
            Box::new(ScanStep(scan.clone())),
            Box::new(RebuildStep(rebuilds.clone())),
            Box::new(SweepStep(sweeps.clone())),
            Box::new(AfterImport { spa: spa.clone(), deferred, logged, new_salt, has_zaps: false }),
            Box::new(WriteHistory(spa.services.clone())),
        ],
        passes: vec![
            Box::new(DirtyTimeLogs { spa: spa.clone(), tree: tree.clone() }),
            Box::new(WriteConfig { spa: spa.clone(), object: config_object }),
            Box::new(SyncDedup { spa: spa.clone(), reader: dedup, is_stale: false }),
            Box::new(GiveUpReferences { spa: spa.clone(), shared }),
            Box::new(WriteObsolete { spa: spa.clone(), removals: removals.clone() }),
            Box::new(WriteSpace { spa: spa.clone(), log: space_log, control: log_control.clone(), kept }),
            Box::new(WriteMos(spa.clone())),
        ],
    };
    Ok(Pool {
        syncer: Arc::new(Syncer::new(spa.clone(), tree, maps, steps)),
        vdevs: VdevOps::new(spa.clone(), changes.clone()),
        leaves: Leaves::new(spa.clone()),
        heartbeat: Heartbeat::new(spa.clone()),
        outliers: Outliers::new(spa.clone()),
        caches: Caches::new(spa.clone()),
        resilvers: Resilvers { spa: spa.clone(), scan: scan.clone(), changes },
        spa,
        scan,
        rebuilds,
        removals,
        expansions,
        sweeps,
        zia: Followed::new(runtime.providers.clone()),
        frees_max,
        log_control,
        checkpoints,
        damaged_labels,
        damaged_uberblocks,
        files: runtime.replay.clone(),
        replayed: Vec::new(),
        arena_outcome: ArenaOutcome::None,
        rewound: None,
    })
}

/// Lets the leaves' schedulers look at the pool's dirty data, and follow its property; and the pipeline name datasets.
fn attach_queues(spa: &Spa) -> Result<(), PoolError> {
    let target = props::latency_target(&spa.mos)?;
    spa.zio().tune_queues(|tunables| tunables.latency_target = target);
    let txgs = Arc::downgrade(&spa.txgs);
    let source = move || {
        txgs.upgrade().map_or_else(Dirty::default, |txgs| Dirty {
            bytes: txgs.dirty_bytes(),
            max_bytes: txgs.config().dirty_data_max,
            sync_task_waits: false,
        })
    };
    spa.zio().set_dirty_source(Box::new(source));
    let dsl = Arc::downgrade(&spa.dsl);
    spa.zio().set_names(Box::new(move |objset| dsl.upgrade()?.known_name(objset.0)));
    Ok(())
}
