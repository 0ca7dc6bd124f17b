//! A block that a provider has a part in, on its way to the devices: where its bytes are valid, and what the provider said of it.

use crate::accelerator::{Accelerator, ZiaMode};
use crate::claimed::Claimed;
use abd::Abd;
use dpusm::{Claim, Device, FallbackReason, OpKind, Report, View, verify};
use kernels::checksum::Salt;
use ondisk::{Checksum, Compression};
use std::sync::Arc;
use zio::transform::Units;

/// Stages of one write that are to be offloaded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wishes {
    pub(crate) compress: bool,
    pub(crate) checksum: bool,
    pub(crate) parity: bool,
}

/// Block and treatment that were asked for.
pub(crate) struct Original {
    /// The logical bytes, which nobody changes.
    pub(crate) data: Abd,
    pub(crate) checksum: Checksum,
    pub(crate) compression: Compression,
    pub(crate) level: u8,
    /// True when the payload may live in the pointer.
    pub(crate) may_embed: bool,
    /// Sizes that the pool's vdevs allocate.
    pub(crate) units: Units,
    /// Salt of the pool's keyed checksums, which no provider gets.
    pub(crate) salt: Option<Arc<Salt>>,
}

/// A block that an accelerator has a part in, on its way to the devices.
pub(crate) struct Offloaded {
    pub(crate) accelerator: Accelerator,
    pub(crate) device: Device,
    pub(crate) original: Original,
    pub(crate) wishes: Wishes,
    /// True when its results are computed again in software.
    pub(crate) is_verified: bool,
    /// The physical bytes in device memory; None when they are valid on the host only.
    pub(crate) on_device: Option<View>,
    /// The physical bytes in host memory; None when they are valid on the device only.
    pub(crate) on_host: Option<Abd>,
    /// Length of the physical bytes.
    pub(crate) psize: usize,
    /// Compression of the physical bytes.
    pub(crate) compression: Compression,
    /// True when the provider compressed them.
    pub(crate) is_packed_there: bool,
    /// Checksum of the physical bytes, and of which kind, when the provider computed one.
    pub(crate) sum: Option<(Checksum, [u64; 4])>,
}

impl Offloaded {
    /// A block whose bytes are on the host as they were given.
    pub(crate) fn new(accelerator: Accelerator, device: Device, (original, wishes): (Original, Wishes), is_verified: bool) -> Offloaded {
        let data = original.data.clone();
        Offloaded {
            accelerator,
            device,
            original,
            wishes,
            is_verified,
            on_device: None,
            psize: data.len(),
            on_host: Some(data),
            compression: Compression::OFF,
            is_packed_there: false,
            sum: None,
        }
    }

    /// Claims of the provider about the block.
    pub(crate) fn claims(&self) -> Claimed {
        Claimed { device: self.device.clone(), sum: self.sum, is_verified: self.is_verified() }
    }

    /// Judges what the provider compressed, once it is on the host, where that is verified: false when its bytes are wrong. What it says of them is for
    /// [`Claimed`].
    pub(crate) fn judge(&self) -> bool {
        let Some(data) = &self.on_host else { return false };
        if !self.is_packed_there || !self.is_verified() {
            return true;
        }
        let claim = Claim::Compress { kind: self.compression, source: &self.original.data, output: data };
        let is_right = verify(&claim);
        self.device.note_verified(OpKind::Compress, is_right);
        if !is_right {
            self.fell_back(OpKind::Compress, FallbackReason::Wrong);
        }
        is_right
    }

    /// True when its results are computed again in software: it was picked, or the provider was caught meanwhile.
    pub(crate) fn is_verified(&self) -> bool {
        self.is_verified || self.device.is_distrusted()
    }

    /// Has everything of the block verified that comes from a graph which was let through to see whether the provider works again.
    pub(crate) fn note_report(&mut self, report: &Report) {
        self.is_verified |= report.is_probe;
    }

    /// Counts a stage that is done in software after all.
    pub(crate) fn fell_back(&self, kind: OpKind, reason: impl Into<FallbackReason>) {
        self.device.note_fallback(kind, reason.into());
    }

    pub(crate) fn deadline_ns(&self) -> u64 {
        self.accelerator.policy().deadline_ns
    }

    pub(crate) fn is_per_op(&self) -> bool {
        self.accelerator.policy().mode == ZiaMode::PerOp
    }
}
