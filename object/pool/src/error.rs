//! Errors of the pool: what cannot be done with it, and why.

use device::DeviceError;
use dmu::{Cause, DmuError, SyncError};
use dsl::{DslError, ReplayError};
use ondisk::{Guid, ObjectId, VdevId};
use scan::ScanError;
use std::error::Error;
use std::fmt;
use vdev::TreeError;
use zap::ZapError;

/// Reason why a pool could not be made, opened, changed or closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolError {
    /// None of the devices has a label of the pool.
    NotFound,
    /// Changes that another process left in its arena, which were to go on, cannot be done again.
    Takeover(ReplayError),
    /// Several pools answer to the name; import one by its guid.
    Ambiguous(Vec<Guid>),
    /// No label holds a valid uberblock.
    NoUberblock,
    /// Too many devices are missing; these are the guids of what is missing.
    MissingDevices(Vec<Guid>),
    /// The labels name fewer top-level vdevs than the pool has.
    MissingVdev(VdevId),
    /// Log devices are missing; these are their paths, where they are known.
    MissingLogs(Vec<String>),
    /// Active features that this release does not know; with `read_only` the pool could be imported read-only.
    UnsupportedFeatures {
        /// Guids of the features.
        features: Vec<String>,
        /// True when all of them allow reading.
        read_only: bool,
    },
    /// A pool version that was never released, or too old to be read.
    UnsupportedVersion(u64),
    /// The vdev configuration can't be used.
    Tree(TreeError),
    /// The pool was last used by another host and not exported: import with force.
    InUse {
        /// Id of that host.
        hostid: u64,
        /// Name of that host.
        hostname: String,
    },
    /// Another host has the pool open: its heartbeats, or txgs, were seen.
    Active {
        /// Id of that host, 0 where it is not known.
        hostid: u64,
        /// Name of that host.
        hostname: String,
    },
    /// The pool is protected against a second host, another one had it last, and too few devices could be written to to claim it.
    Unclaimed,
    /// The pool is suspended, and what is on its devices is not what this host wrote last.
    ActiveElsewhere,
    /// The pool is protected against a second host, and this one has no id.
    NoHostid,
    /// The pool was destroyed; it can be imported as such.
    Destroyed,
    /// Datasets have an intent log that must be replayed first; the pool can be imported read-only.
    IntentLogs(Vec<String>),
    /// The device holds a pool, or is too small, or cannot be written.
    Device {
        /// Path of the device.
        path: String,
        /// Fault of the device.
        problem: DeviceProblem,
    },
    /// The pool has no leaf with this guid.
    NoSuchDevice,
    /// Nothing can be attached to this vdev or detached from it, and why.
    Target(&'static str),
    /// The device has the only copy of something, or would have.
    NoReplicas,
    /// Intent logs of these encrypted datasets lie on the vdev, and wait for their keys.
    LogsWait(Vec<String>),
    /// The spare stands in for a device.
    SpareInUse,
    /// The new vdevs have other sectors than the pool's.
    AshiftMismatch,
    /// The vdev can't be removed, and why.
    Unremovable(&'static str),
    /// No vdev is being removed.
    NotRemoving,
    /// The request contradicts itself.
    Invalid(&'static str),
    /// The pool lacks this feature.
    NeedsFeature(&'static str),
    /// The pool is open read-only.
    ReadOnly,
    /// Metadata of the pool is damaged.
    Corrupt(&'static str),
    /// The pool lacks the salt of its keyed checksums, or has something else in its place; it can be imported read-only.
    Salt {
        /// True when there is none.
        is_missing: bool,
    },
    /// Nobody knows which blocks this vdev is for, because of the error; the pool can be imported read-only.
    Bias(Guid, ZapError),
    /// A state of the pool that nothing may be written to: its blocks and its space maps do not agree, or blocks cannot be read.
    Unsound {
        /// Number of blocks of metadata that cannot be read, or are broken.
        unreadable: u64,
        /// Bytes that two blocks claim.
        overlapping: u64,
        /// Bytes of blocks in space that the space maps call free.
        unallocated: u64,
    },
    /// A metaslab's space maps contradict each other, or cannot be read because of the cause.
    SpaceMap(VdevId, u32, Option<Cause>),
    /// There is no pool property of this name.
    BadProperty,
    /// The value is not possible for the property.
    BadValue,
    /// No accelerator of this name is known.
    NoProvider {
        /// The name.
        name: String,
    },
    /// The devices of a pool that is being opened cannot be written: its first txg would have suspended it.
    Unwritable,
    /// The pool is being closed.
    Closed,
    /// A device failed.
    Io(DeviceError),
    /// An object failed.
    Dmu(DmuError),
    /// A name table failed.
    Zap(ZapError),
    /// A dataset failed.
    Dsl(DslError),
    /// A txg could not be synced.
    Sync(SyncError),
    /// A scan can't be started, paused or stopped.
    Scan(ScanError),
    /// The device can't be trimmed, or not so that nobody can read it any more.
    TrimUnsupported,
    /// A sequential rebuild runs: what needs a resilver has to wait.
    Rebuilding,
    /// A RAID-Z vdev is being expanded.
    Expanding,
    /// The pool has a checkpoint, which this would change, or leave without its devices.
    CheckpointExists,
    /// The pool's checkpoint is still being discarded.
    DiscardingCheckpoint,
    /// The pool has no checkpoint.
    NoCheckpoint,
    /// A vdev is too large for the space map that a checkpoint would need.
    VdevTooBig,
    /// An object of the MOS has not the form that it should have.
    Object(ObjectId, &'static str),
}

/// Fault of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceProblem {
    /// The device is part of a pool that is not exported.
    InUse,
    /// The device is a spare, or in use as one.
    Busy,
    /// The device is a spare of this pool already.
    SpareAlready,
    /// A vdev of the pool is being removed.
    Removing,
    /// The device has less than 64 MiB.
    TooSmall,
    /// The device is smaller than the vdev needs.
    TooSmallForVdev,
    /// The device's sectors are larger than the vdev's.
    SectorsTooLarge,
    /// The device can't be opened.
    Open(DeviceError),
}

impl DeviceProblem {
    /// Words about the device at a path.
    fn tell(&self, path: &dyn fmt::Display, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceProblem::InUse => write!(f, "{path} is part of a pool that is not exported"),
            DeviceProblem::Busy => write!(f, "{path} is busy"),
            DeviceProblem::SpareAlready => write!(f, "{path} is a hot spare of this pool already"),
            DeviceProblem::Removing => write!(f, "{path} is busy, or device removal is in progress"),
            DeviceProblem::TooSmallForVdev => f.write_str("device is too small"),
            DeviceProblem::SectorsTooLarge => {
                f.write_str("the new device cannot have a higher alignment requirement than the top-level vdev")
            }
            DeviceProblem::TooSmall => write!(f, "{path} is smaller than 64 MiB"),
            DeviceProblem::Open(error) => write!(f, "{path}: {error}"),
        }
    }
}

/// Words for whose salt is gone.
const SALTED: &str = "the pool's skein, edonr and blake3 checksums";

fn gone(is_missing: bool) -> &'static str {
    if is_missing { "missing" } else { "damaged" }
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolError::NeedsFeature(feature) => write!(f, "this action requires the {feature} feature"),
            PoolError::NotFound => f.write_str("no such pool available"),
            PoolError::Ambiguous(guids) => write!(f, "{} pools have this name: import one by its guid", guids.len()),
            PoolError::NoUberblock => f.write_str("no device holds a valid uberblock of the pool"),
            PoolError::MissingDevices(guids) => write!(f, "{} devices that the pool cannot do without are missing", guids.len()),
            PoolError::MissingVdev(id) => write!(f, "no device of top-level vdev {id} was found"),
            PoolError::MissingLogs(_) => f.write_str("one or more devices is currently unavailable"),
            PoolError::UnsupportedFeatures { features, read_only } => {
                write!(f, "the pool uses features that are not supported: {}", features.join(", "))?;
                f.write_str(if *read_only { "; it can be imported read-only" } else { "" })
            }
            PoolError::UnsupportedVersion(version) => write!(f, "pool version {version} is not supported"),
            PoolError::Tree(error) => fmt::Display::fmt(error, f),
            PoolError::InUse { hostid, hostname } => {
                write!(f, "pool was previously in use from another system.\nLast accessed by {hostname} (hostid={hostid:x})")
            }
            PoolError::Active { hostid, hostname } => write!(f, "pool is imported on {hostname} (hostid: {hostid:#x})"),
            PoolError::Unclaimed => f.write_str("I/O errors occurred while writing the multihost claim"),
            PoolError::ActiveElsewhere => f.write_str("pool is imported on a different host"),
            PoolError::NoHostid => f.write_str(
                "pool has the multihost property on and the\nsystem's hostid is not set. Set a unique hostid with the zgenhostid(8) command.",
            ),
            PoolError::IntentLogs(datasets) => {
                write!(f, "the intent logs of {} hold writes that this release cannot replay; ", datasets.join(", "))?;
                f.write_str("let OpenZFS import the pool, mount them and export it first, or import it read-only")
            }
            PoolError::Takeover(error) => write!(f, "what the process before did cannot be done again: {error}"),
            PoolError::Destroyed => f.write_str("the pool was destroyed"),
            PoolError::Device { path, problem } => problem.tell(path, f),
            PoolError::NoSuchDevice => f.write_str("no such device in pool"),
            PoolError::Target(why) => f.write_str(why),
            PoolError::NoReplicas => f.write_str("no valid replicas"),
            PoolError::LogsWait(names) => write!(f, "the intent log of '{}' lies there and waits for its key", names.join("', '")),
            PoolError::SpareInUse => f.write_str("Pool busy; removal may already be in progress"),
            PoolError::AshiftMismatch => f.write_str("adding devices with different physical sector sizes is not allowed"),
            PoolError::Unremovable(why) => f.write_str(why),
            PoolError::NotRemoving => f.write_str("operation is not in progress"),
            PoolError::Invalid(what) => f.write_str(what),
            PoolError::ReadOnly => f.write_str("the pool is read-only"),
            PoolError::Salt { is_missing } => write!(f, "the salt of {SALTED} is {}; it can be imported read-only", gone(*is_missing)),
            PoolError::Bias(guid, error) => write!(f, "which blocks vdev {guid} is for cannot be read: {error}; import the pool read-only"),
            PoolError::Unsound { unreadable, overlapping, unallocated } => write!(
                f,
                "it cannot be written safely: {unreadable} blocks of metadata cannot be read, {overlapping} bytes belong to two blocks, \
                 {unallocated} bytes in use are called free"
            ),
            PoolError::Corrupt(what) => write!(f, "the pool's metadata is damaged: {what}"),
            PoolError::SpaceMap(vdev, ms, None) => write!(f, "the space map of metaslab {ms} of vdev {vdev} contradicts itself"),
            PoolError::SpaceMap(vdev, ms, Some(_)) => write!(f, "the space map of metaslab {ms} of vdev {vdev} cannot be read"),
            PoolError::BadProperty => f.write_str("invalid pool property"),
            PoolError::BadValue => f.write_str("invalid value for the pool property"),
            PoolError::NoProvider { name } => write!(f, "no provider is called '{name}'"),
            PoolError::Unwritable => f.write_str("its devices cannot be written: I/O errors suspended the pool while it was opened"),
            PoolError::Closed => f.write_str("the pool is being closed"),
            PoolError::Io(error) => fmt::Display::fmt(error, f),
            PoolError::Dmu(error) => fmt::Display::fmt(error, f),
            PoolError::Zap(error) => fmt::Display::fmt(error, f),
            PoolError::Dsl(error) => fmt::Display::fmt(error, f),
            PoolError::Sync(error) => fmt::Display::fmt(error, f),
            PoolError::Scan(error) => fmt::Display::fmt(error, f),
            PoolError::TrimUnsupported => f.write_str("trim operations are not supported by this device"),
            PoolError::Rebuilding => f.write_str("currently sequentially resilvering"),
            PoolError::Expanding => f.write_str("raidz expansion in progress"),
            PoolError::CheckpointExists | PoolError::DiscardingCheckpoint | PoolError::NoCheckpoint => f.write_str(self.of_checkpoint()),
            PoolError::VdevTooBig => f.write_str("device exceeds supported size"),
            PoolError::Object(object, what) => write!(f, "MOS object {object} is damaged: {what}"),
        }
    }
}

impl Error for PoolError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // Their words are this error's own.
            PoolError::Tree(error) => error.source(),
            PoolError::Io(error) | PoolError::Device { problem: DeviceProblem::Open(error), .. } => error.source(),
            PoolError::Dmu(error) => error.source(),
            PoolError::Zap(error) | PoolError::Bias(_, error) => error.source(),
            PoolError::Dsl(error) => error.source(),
            PoolError::Sync(error) => error.source(),
            PoolError::Scan(error) => error.source(),
            PoolError::SpaceMap(.., Some(cause)) => Some(cause.error()),
            _ => None,
        }
    }
}

macro_rules! from {
    ($($error:ty => $variant:ident),*) => {$(
        impl From<$error> for PoolError {
            fn from(error: $error) -> Self {
                PoolError::$variant(error)
            }
        }
    )*};
}
from!(DeviceError => Io, DmuError => Dmu, ZapError => Zap, DslError => Dsl, SyncError => Sync, TreeError => Tree, ScanError => Scan);

impl PoolError {
    /// Words of an error about a checkpoint, as OpenZFS has them.
    fn of_checkpoint(&self) -> &'static str {
        match self {
            PoolError::CheckpointExists => "checkpoint exists",
            PoolError::DiscardingCheckpoint => "currently discarding checkpoint",
            _ => "checkpoint does not exist",
        }
    }

    /// True when the pool would open with more devices.
    pub fn is_of_missing_devices(&self) -> bool {
        matches!(self, PoolError::NotFound | PoolError::NoUberblock | PoolError::MissingDevices(_) | PoolError::MissingVdev(_))
    }

    /// Makes an error of a txg's sync of it.
    pub(crate) fn into_sync(self) -> SyncError {
        match self {
            PoolError::Dmu(error) | PoolError::Zap(ZapError::Dmu(error)) | PoolError::Dsl(DslError::Dmu(error)) => SyncError::Dmu(error),
            PoolError::Sync(error) | PoolError::Dsl(DslError::Sync(error)) => error,
            PoolError::Scan(error) => error.into_sync(),
            error => SyncError::Pool(Cause::new(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dmu::{BlockError, with_causes};
    use ondisk::Bookmark;
    use zio::{ErrorKind, ZioError};

    /// If this fails, nobody learns which block or record a pool stopped for.
    #[test]
    fn causes_are_kept_and_reach_the_block() {
        let lost = ZioError::new(ErrorKind::Checksum, Bookmark::default());
        let sync = SyncError::Block(BlockError::Checksum, Cause::new(lost));
        let errors =
            [PoolError::Sync(sync.clone()), PoolError::Dsl(DslError::Sync(sync.clone())), PoolError::Scan(ScanError::Sync(sync.clone()))];
        for error in errors {
            assert_eq!(error.to_string(), SyncError::from(BlockError::Checksum).to_string(), "users read what they always read");
            assert_eq!(error.source().and_then(|cause| cause.downcast_ref()), Some(&lost), "{error:?}");
            assert_eq!(error.into_sync(), sync);
        }
        let read = DmuError::of_block(BlockError::Checksum, Bookmark::default());
        for error in [PoolError::Dmu(read), PoolError::Zap(ZapError::Dmu(read)), PoolError::Dsl(DslError::Dmu(read))] {
            assert_eq!(error.to_string(), BlockError::Checksum.to_string(), "users read what they always read");
            assert!(with_causes(&error).ends_with("objset 0 object 0 level 0 block 0"), "{}", with_causes(&error));
        }
        let contradiction = PoolError::SpaceMap(VdevId(3), 5, None);
        let words = contradiction.to_string();
        let sync = contradiction.clone().into_sync();
        assert_eq!(sync.source().and_then(|cause| cause.downcast_ref()), Some(&contradiction));
        assert!(with_causes(&PoolError::Sync(sync)).ends_with(&words));
        assert!(PoolError::Io(DeviceError::Gone).source().is_none(), "its words are said already");
    }
}
