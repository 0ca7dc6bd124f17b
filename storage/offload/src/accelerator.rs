//! A provider in use by a pool: which stages go to it, and how.

use dpusm::{Device, Sampler, Session, Store};
use exec::RwLock;
use ondisk::Guid;
use std::collections::BTreeMap;
use std::sync::Arc;
use zio::LeafPort;

/// Place of the data between stages: on the device, or on the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZiaMode {
    /// Data is copied in once; the stages pass handles.
    #[default]
    Offload,
    /// Data is copied in and out at each stage, as OpenZFS does with QAT: to show what staying is worth.
    PerOp,
}

/// Stages that go to the provider, and the ways in which they do (Z.I.A.: the pool properties `zia_*`).
#[derive(Clone, Debug, PartialEq)]
pub struct ZiaPolicy {
    /// `zia_compress`: true when the provider compresses blocks.
    pub compress: bool,
    /// `zia_decompress`: true when the provider decompresses blocks.
    pub decompress: bool,
    /// `zia_checksum`: true when the provider computes checksums.
    pub checksum: bool,
    /// `zia_raidz1_gen` to `zia_raidz3_gen`: true where the provider computes parity.
    pub raidz_gen: [bool; 3],
    /// `zia_raidz1_rec` to `zia_raidz3_rec`: true where the provider computes lost columns.
    pub raidz_rec: [bool; 3],
    /// `zia_file_write`: true when the provider writes to files by itself.
    pub file_write: bool,
    /// `zia_disk_write`: true when the provider writes to disks by itself.
    pub disk_write: bool,
    /// `zia_mode`: place of the data between stages.
    pub mode: ZiaMode,
    /// `zia_verify`: share of the blocks whose results are computed again in software, in percent, once the provider's first ones stood that. Of the
    /// others only checksums and copies are.
    pub verify_percent: f64,
    /// Blocks of fewer bytes stay on the host.
    pub bytes_min: usize,
    /// Most time that one graph may take, in nanoseconds.
    pub deadline_ns: u64,
}

impl Default for ZiaPolicy {
    /// Nothing is offloaded; all of what will be is verified.
    fn default() -> ZiaPolicy {
        ZiaPolicy {
            compress: false,
            decompress: false,
            checksum: false,
            raidz_gen: [false; 3],
            raidz_rec: [false; 3],
            file_write: false,
            disk_write: false,
            mode: ZiaMode::Offload,
            verify_percent: 100.0,
            bytes_min: 16 << 10,
            deadline_ns: 5_000_000_000,
        }
    }
}

/// The devices that a provider writes by itself.
#[derive(Default)]
pub(crate) struct OpenStores {
    /// Stores by their leaves' guids.
    pub(crate) stores: BTreeMap<Guid, Store>,
    /// The way through the host, to see what was written.
    pub(crate) leaves: Option<Arc<dyn LeafPort>>,
}

struct Parts {
    session: Session,
    policy: ZiaPolicy,
    sampler: Sampler,
    stores: RwLock<OpenStores>,
}

/// A provider in use by a pool; a cheap handle.
#[derive(Clone)]
pub struct Accelerator(Arc<Parts>);

impl std::fmt::Debug for Accelerator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accelerator").field("session", &self.0.session).field("policy", &self.0.policy).finish_non_exhaustive()
    }
}

impl Accelerator {
    /// A pool's use of a provider.
    pub fn new(session: Session, policy: ZiaPolicy) -> Accelerator {
        let sampler = Sampler::new(policy.verify_percent, 1);
        Accelerator(Arc::new(Parts { session, policy, sampler, stores: RwLock::default() }))
    }

    /// Session with the provider.
    pub fn session(&self) -> &Session {
        &self.0.session
    }

    /// Policy of what goes to it.
    pub fn policy(&self) -> &ZiaPolicy {
        &self.0.policy
    }

    /// The provider as it is now; a block keeps it to its end. None when it is down.
    pub(crate) fn device(&self) -> Option<Device> {
        self.0.session.device().ok()
    }

    /// True when the results for a block are to be verified, by chance.
    pub(crate) fn picks(&self) -> bool {
        self.0.sampler.pick()
    }

    /// The devices that it writes by itself.
    pub(crate) fn stores(&self) -> &RwLock<OpenStores> {
        &self.0.stores
    }

    /// True when it writes any device by itself.
    pub(crate) fn has_stores(&self) -> bool {
        !self.0.stores.read().stores.is_empty()
    }
}
