//! What the daemon can be asked, and what it answers: plain data that travels as JSON over HTTP on its unix socket.
//!
//! Every request is `POST /v1/request` with a [`Request`] as its body; the reply is a [`Response`]. Numbers are raw (bytes, counts,
//! seconds since the epoch); turning them into text for people is the commands' business.
#![forbid(unsafe_code)]

mod access;
mod allow;
mod dataset;
mod diff;
mod direct;
mod error;
mod events;
mod inject;
mod iscsi;
mod keys;
mod names;
mod nbd;
#[cfg(test)]
mod openapi;
mod pool;
mod project;
mod property;
mod provider;
mod reference;
mod remark;
mod rewind;
mod send;
mod shown;
mod spec;
mod state_dir;
mod sweep;
mod upgrade;
mod vdev;

pub use allow::*;
pub use dataset::*;
pub use diff::*;
pub use direct::*;
pub use error::{ErrorKind, FORCEABLE, Failure, WITHOUT_EFFECT, os_error};
pub use events::*;
pub use inject::*;
pub use iscsi::*;
pub use keys::*;
pub use names::{Named, name_objection, new_pool_name_objection, pool_name_objection};
pub use nbd::*;
pub use pool::*;
pub use project::*;
pub use property::{Property, Source, Value};
pub use provider::*;
pub use reference::*;
pub use remark::Remark;
pub use rewind::*;
pub use send::*;
pub use shown::{shown, shown_lines};
pub use spec::*;
pub use state_dir::{Interlude, StateDir, StateDirError, distrusted};
pub use sweep::*;
pub use upgrade::*;
pub use vdev::*;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Line that a descriptor comes with which is handed over before a request (RFC 9112, 2.2: empty lines may stand there).
pub const EMPTY_LINE: &[u8; 2] = b"\r\n";

/// Method and path of everything that the daemon serves.
pub const ROUTES: [(&str, &str); 3] = [("POST", "/v1/request"), ("GET", "/v1/openapi.json"), ("GET", "/metrics")];

/// Requests to the daemon: everything that it does when asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "op", content = "args", rename_all = "kebab-case")]
pub enum Request {
    /// Asks whether somebody is there; answers [`Response::Info`].
    Info,
    /// Ends the daemon: exports nothing, unmounts everything and syncs every pool.
    Stop,
    /// `zirconia upgrade`: another daemon takes the place of this one, and goes on with its mounts.
    Upgrade(Upgrade),
    /// `zpool create`.
    PoolCreate(PoolCreate),
    /// `zpool destroy`.
    PoolDestroy(PoolTarget),
    /// `zpool export`.
    PoolExport(PoolTarget),
    /// Looks for pools that could be imported; answers [`Response::Importable`].
    PoolImportScan(ImportSearch),
    /// `zpool import`; answers also [`Response::Rewound`].
    PoolImport(PoolImport),
    /// Properties, configuration, errors and scan state of pools; answers [`Response::Pools`].
    PoolQuery(PoolQuery),
    /// `zpool set`.
    PoolSet(PoolSet),
    /// `zpool reguid`.
    PoolReguid(PoolReguid),
    /// `zpool checkpoint`.
    PoolCheckpoint(PoolCheckpoint),
    /// `zpool split`.
    PoolSplit(PoolSplit),
    /// `zpool upgrade`; answers [`Response::Upgraded`] (also for a dry run).
    PoolUpgrade(PoolUpgrade),
    /// `zpool upgrade -v`; answers [`Response::Features`].
    FeatureList,
    /// `zpool scrub`.
    PoolScrub(PoolScrub),
    /// `zpool initialize`, `zpool trim`; answers [`Response::Swept`].
    PoolSweep(PoolSweep),
    /// `zpool offline`, `online`, `attach`, `replace`, `detach`.
    VdevChange(VdevChange),
    /// `zpool add`.
    PoolAdd(PoolAdd),
    /// `zpool remove`.
    VdevRemove(VdevRemove),
    /// `zpool remove -s`.
    VdevRemoveStop(PoolNames),
    /// `zpool reopen`.
    PoolReopen(PoolReopen),
    /// `zpool clear`; answers also [`Response::Rewound`].
    PoolClear(PoolClear),
    /// `zpool sync`: waits until everything written so far is on stable storage.
    PoolSync(PoolSync),
    /// `zpool freeze`: from now on only intent logs bring something to the devices.
    PoolFreeze(PoolFreeze),
    /// `zpool prefetch`: tables of deduplication are read into memory.
    PoolPrefetch(PoolPrefetch),
    /// `zpool history`; answers [`Response::History`].
    PoolHistory(PoolHistory),
    /// Counters for `zpool iostat`; answers [`Response::Iostat`].
    PoolIostat(PoolNames),
    /// `zpool events`; answers [`Response::Events`], or [`Response::EventsCleared`].
    PoolEvents(PoolEvents),
    /// `zinject`: lists the handlers; answers [`Response::Injections`].
    InjectList,
    /// `zinject`; answers [`Response::Injections`] with the new handler, if there is one.
    InjectAdd(InjectAdd),
    /// `zinject -c`: removes a handler by its number, or all; answers [`Response::Injections`] with those that are gone.
    InjectClear {
        /// Number of the handler; None for all.
        id: Option<u64>,
    },
    /// Waits for background activities; answers [`Response::Busy`] with those that still run at the deadline.
    PoolWait(PoolWait),
    /// `zpool labelclear`.
    LabelClear(LabelClear),
    /// `zfs create`; answers [`Response::Created`] (also for a dry run), or [`Response::Done`] when `-p` finds that it is there.
    DatasetCreate(DatasetCreate),
    /// `zfs destroy`; answers [`Response::Destroyed`] (also for a dry run).
    DatasetDestroy(DatasetDestroy),
    /// Properties of datasets; answers [`Response::Datasets`].
    DatasetQuery(DatasetQuery),
    /// `zfs userspace` and its kind; answers [`Response::Owners`].
    Userspace(UserspaceQuery),
    /// `zfs set`.
    DatasetSet(DatasetSet),
    /// `zfs inherit`.
    DatasetInherit(DatasetInherit),
    /// `zfs snapshot`.
    Snapshot(SnapshotCreate),
    /// `zfs rename`.
    DatasetRename(DatasetRename),
    /// `zfs hold`.
    Hold(SnapshotHold),
    /// `zfs release`.
    Release(SnapshotHold),
    /// `zfs holds`; answers [`Response::Holds`].
    Holds(HoldsQuery),
    /// `zfs bookmark`.
    Bookmark(BookmarkCreate),
    /// `zfs redact`.
    Redact(RedactRequest),
    /// `zfs clone`.
    DatasetClone(DatasetClone),
    /// `zfs promote`.
    DatasetPromote(DatasetPromote),
    /// `zfs rollback`.
    DatasetRollback(DatasetRollback),
    /// `zfs allow` of a dataset; answers [`Response::Allowed`], the dataset's own permissions first.
    Allow(AllowQuery),
    /// `zfs allow` and `zfs unallow` with permissions.
    AllowChange(AllowChange),
    /// `zfs wait`; answers [`Response::Busy`] with what still goes on at the deadline.
    DatasetWait(DatasetWait),
    /// `zfs project`; answers [`Response::Projects`], for each file.
    Project(ProjectRequest),
    /// `zfs diff`; answers [`Response::Diff`].
    Diff(DiffQuery),
    /// `zfs send`; answers with frames of a stream, or [`Response::Failed`].
    Send(SendRequest),
    /// `zfs send -nv`: what would be sent; answers [`Response::SendPlan`].
    SendPlan(SendRequest),
    /// `zfs receive`; the stream is read from the descriptor that comes with the request.
    Receive(DatasetReceive),
    /// `zfs load-key`.
    KeyLoad(KeyLoad),
    /// `zfs unload-key`.
    KeyUnload(KeyUnload),
    /// `zfs change-key`.
    KeyChange(KeyChange),
    /// `zfs mount`; answers [`Response::Mounts`] when nothing is named.
    Mount(MountRequest),
    /// `zfs unmount`.
    Unmount(UnmountRequest),
    /// `zfs direct-stats`, `zpool iostat --direct`; answers [`Response::Direct`].
    Direct(DirectQuery),
    /// `zirconia provider list`, `info`; answers [`Response::Providers`].
    ProviderList,
    /// `zirconia provider load`.
    ProviderLoad(ProviderLoad),
    /// `zirconia provider unload`.
    ProviderUnload(ProviderUnload),
    /// `zirconia target list`, `sessions`; answers [`Response::Iscsi`].
    IscsiList,
    /// `zirconia target allow`.
    IscsiAllow(IscsiAllow),
    /// `zirconia target deny`: ends the initiator's sessions with the target, too.
    IscsiDeny(IscsiDeny),
    /// `zirconia target chap`.
    IscsiChap(IscsiChap),
    /// `zirconia target list`, `sessions`, as far as they are about NBD; answers [`Response::Nbd`].
    NbdList,
}

impl Request {
    /// False for questions, which may be asked twice.
    pub fn changes(&self) -> bool {
        !matches!(
            self,
            Request::Info
                | Request::PoolImportScan(_)
                | Request::PoolQuery(_)
                | Request::PoolHistory(_)
                | Request::PoolIostat(_)
                | Request::PoolWait(_)
                | Request::PoolEvents(_)
                | Request::InjectList
                | Request::FeatureList
                | Request::DatasetQuery(_)
                | Request::Userspace(_)
                | Request::Holds(_)
                | Request::Diff(_)
                | Request::Allow(_)
                | Request::DatasetWait(_)
                | Request::Send(_)
                | Request::SendPlan(_)
                | Request::Direct(_)
                | Request::ProviderList
                | Request::IscsiList
                | Request::NbdList
        )
    }
}

/// Answer of the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "kind", content = "data", rename_all = "kebab-case")]
pub enum Response {
    /// Sweeps were changed, but for these.
    Swept {
        /// Failures of single devices.
        failures: Vec<Failure>,
    },
    /// Request was done; there may be remarks for the user.
    Done {
        /// Remarks for the user, in the order in which they are printed.
        remarks: Vec<Remark>,
    },
    /// Pools were imported, and some of them went back to an older state, or would.
    Rewound {
        /// Reports of those pools.
        reports: Vec<RewindReport>,
        /// Remarks, as of [`Response::Done`].
        remarks: Vec<Remark>,
    },
    /// Request failed.
    Failed(Failure),
    /// State of the daemon.
    Info(DaemonInfo),
    /// Reports of pools.
    Pools(Vec<PoolReport>),
    /// Pools that could be imported.
    Importable(Vec<ImportCandidate>),
    /// History records, oldest first.
    History(Vec<PoolHistoryReport>),
    /// Counters of pools.
    Iostat(IostatReport),
    /// Events, oldest first.
    Events(Vec<EventReport>),
    /// Events were forgotten.
    EventsCleared {
        /// Number of events that were forgotten.
        count: u64,
    },
    /// Handlers of `zinject`.
    Injections(Vec<InjectReport>),
    /// Names of activities that still run.
    Busy(Vec<String>),
    /// Memory that something would take.
    Memory {
        /// Bytes of it.
        bytes: u64,
    },
    /// Reports of datasets.
    Datasets(Vec<DatasetReport>),
    /// Dataset was (or would be) created.
    Created {
        /// Properties that are set on the dataset: those that were asked for and those that follow from them.
        properties: BTreeMap<String, String>,
        /// Remarks, as of [`Response::Done`].
        remarks: Vec<Remark>,
    },
    /// Datasets that were (or would be) destroyed, and the bytes that frees.
    Destroyed {
        /// Full names of the datasets.
        names: Vec<String>,
        /// Bytes that would be reclaimed.
        reclaim_bytes: u64,
    },
    /// Features of a pool that were enabled, or are not.
    Upgraded(PoolUpgradeReport),
    /// Features that pools made by this program have.
    Features(Vec<FeatureReport>),
    /// Use and limits of users, groups and projects.
    Owners(Vec<OwnerReport>),
    /// Holds on snapshots.
    Holds(Vec<HoldsReport>),
    /// Permissions that were delegated at a dataset and above it.
    Allowed(Vec<AllowReport>),
    /// Projects of files, in the order of the request.
    Projects(Vec<ProjectReport>),
    /// Differences between two states of a file system.
    Diff(DiffReport),
    /// Plan of what would be sent.
    SendPlan(SendPlan),
    /// Mounted file systems.
    Mounts(Vec<MountReport>),
    /// Counts of direct I/O.
    Direct(Vec<DirectReport>),
    /// Reports of accelerators.
    Providers(Vec<ProviderReport>),
    /// Volumes that the network sees.
    Iscsi(IscsiReport),
    /// Volumes that clients of NBD can have.
    Nbd(NbdReport),
}

/// `zirconia upgrade`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Upgrade {
    /// Absolute path of the program that is to be the next daemon.
    pub program: String,
}

/// State of the running daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DaemonInfo {
    /// Version of the program.
    pub version: String,
    /// Process id of the daemon.
    pub pid: u32,
    /// Seconds since the daemon started.
    pub uptime_seconds: u64,
    /// Names of the pools that the daemon owns.
    pub pools: Vec<String>,
    /// True while pools of the last time are being opened, and what they had mounted is.
    #[serde(default)]
    pub is_opening: bool,
    /// Path of the program; empty when it is not known.
    #[serde(default)]
    pub program: String,
    /// Sentences about ports at which it is to serve and cannot yet: which service, where, and the reason.
    #[serde(default)]
    pub closed_ports: Vec<String>,
}
