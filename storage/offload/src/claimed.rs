//! What a provider says of a block, against what the host finds: nothing that it says is stored.
//!
//! The checksum in a block's pointer is always the host's own, over the bytes that the devices get. The provider's, over the bytes that it has, has to be
//! the same: then it has the bytes that it was given, and gave back the bytes that it has. Of a block that is verified whole the rest is computed
//! by the host too: parity (in one pass with the checksum, and it is the host's that is written), and the source of what was compressed.

use abd::Abd;
use dpusm::{Device, FallbackReason, Feature, OpKind};
use ondisk::{ByteOrder, Checksum};
use zio::{Claims, sum_of};

/// The checksum by which copies are proven where no other is computed: quick everywhere.
pub(crate) const PROOF: Checksum = Checksum::FLETCHER_4;

/// True when a provider can say whether it has the bytes that it was given.
pub(crate) fn can_prove(device: &Device) -> bool {
    device.can_use(&Feature::Checksum { kind: PROOF, order: ByteOrder::Little })
}

/// True when `words` are what the host finds over `data`; the provider is told, and is done for when they are not.
pub(crate) fn copy_is_right(device: &Device, kind: OpKind, data: &Abd, words: [u64; 4]) -> bool {
    let is_right = sum_of(PROOF, data) == Ok(words);
    device.note_verified(kind, is_right);
    if !is_right {
        device.note_fallback(kind, FallbackReason::Wrong);
    }
    is_right
}

/// Claims about a block whose physical bytes are on the host by now.
pub(crate) struct Claimed {
    pub(crate) device: Device,
    /// Checksum of the bytes, of this kind.
    pub(crate) sum: Option<(Checksum, [u64; 4])>,
    /// True when parity is the host's; the provider's is compared with it.
    pub(crate) is_verified: bool,
}

impl Claims for Claimed {
    fn trusts_parity(&self) -> bool {
        !self.is_verified
    }

    fn are_borne_out(&self, kind: Checksum, sum: [u64; 4], data: &Abd) -> bool {
        let Some((own, words)) = self.sum else { return true };
        let found = if own == kind { Ok(sum) } else { sum_of(own, data) };
        let is_right = found == Ok(words);
        self.device.note_verified(OpKind::Checksum, is_right);
        if !is_right {
            self.device.note_fallback(OpKind::Checksum, FallbackReason::Wrong);
            self.device.note_restart(OpKind::Checksum);
        }
        is_right
    }

    fn note_parity(&self, agrees: bool) {
        self.device.note_verified(OpKind::RaidGenerate, agrees);
        if !agrees {
            self.device.note_fallback(OpKind::RaidGenerate, FallbackReason::Wrong);
        }
    }
}
