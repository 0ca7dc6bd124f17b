//! The two MACs of an object set's root block (OpenZFS: `zio_crypt_do_objset_hmacs`).
//!
//! The portable one covers what a raw stream carries; the local one the accounting, which every pool does for itself. The head of the intent log is
//! outside both.

use crate::dnodes::append_root;
use crate::{CryptError, DataKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use ondisk::{OBJSET_BYTES, OBJSET_BYTES_V1, OBJSET_BYTES_V2, ObjectType, objset_flags};
use std::ops::Range;

const DNODE_BYTES: usize = 512;
const TYPE_AT: Range<usize> = 704..712;
const FLAGS_AT: Range<usize> = 712..720;
const PORTABLE_AT: Range<usize> = 720..752;
const LOCAL_AT: Range<usize> = 752..784;
const USERUSED_AT: usize = 1024;
const GROUPUSED_AT: usize = 1536;
const PROJECTUSED_AT: usize = 2048;

/// MACs of an object set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjsetMacs {
    /// MAC of what survives a raw send.
    pub portable: [u8; 32],
    /// MAC of accounting; zeros when there is none, or it is not complete.
    pub local: [u8; 32],
}

impl ObjsetMacs {
    /// The MACs that a root block has stored. Error: `Form` when it is too short.
    pub fn stored(block: &[u8]) -> Result<ObjsetMacs, CryptError> {
        Ok(ObjsetMacs { portable: array(block, PORTABLE_AT)?, local: array(block, LOCAL_AT)? })
    }
}

fn array<const N: usize>(block: &[u8], place: Range<usize>) -> Result<[u8; N], CryptError> {
    block.get(place).and_then(|bytes| bytes.try_into().ok()).ok_or(CryptError::Form)
}

fn number(block: &[u8], place: Range<usize>, is_little: bool) -> Result<u64, CryptError> {
    let bytes = array(block, place)?;
    Ok(if is_little { u64::from_le_bytes(bytes) } else { u64::from_be_bytes(bytes) })
}

/// The accounting dnode at `at`; None when there is none, or blocks of this size have none.
fn accounting(block: &[u8], at: usize, block_bytes_min: usize) -> Option<&[u8]> {
    let dnode = block.get(at..at + DNODE_BYTES).filter(|_| block.len() >= block_bytes_min)?;
    (dnode[0] != ObjectType::NONE.0).then_some(dnode)
}

impl DataKey {
    /// The MACs that a root block should have. Error: `Form` when it is none.
    pub fn objset_macs(&self, block: &[u8], is_little: bool) -> Result<ObjsetMacs, CryptError> {
        let flags = number(block, FLAGS_AT, is_little)?;
        let meta = block.get(..DNODE_BYTES).filter(|_| block.len() >= OBJSET_BYTES_V1).ok_or(CryptError::Form)?;
        let mut portable = number(block, TYPE_AT, is_little)?.to_be_bytes().to_vec();
        // No flag is portable.
        portable.extend(0u64.to_le_bytes());
        append_root(meta, is_little, self.version(), &mut portable)?;
        Ok(ObjsetMacs { portable: self.half(&portable), local: self.local(block, flags, is_little)? })
    }

    fn local(&self, block: &[u8], flags: u64, is_little: bool) -> Result<[u8; 32], CryptError> {
        let user = accounting(block, USERUSED_AT, OBJSET_BYTES_V2);
        let group = accounting(block, GROUPUSED_AT, OBJSET_BYTES_V2);
        let project = accounting(block, PROJECTUSED_AT, OBJSET_BYTES);
        if flags & objset_flags::USERACCOUNTING_COMPLETE == 0 || (user.is_none() && group.is_none()) {
            return Ok([0; 32]);
        }
        let mut form = flags.to_le_bytes().to_vec();
        for dnode in [user, group, project].into_iter().flatten() {
            append_root(dnode, is_little, self.version(), &mut form)?;
        }
        Ok(self.half(&form))
    }

    fn half(&self, form: &[u8]) -> [u8; 32] {
        let mut half = [0; 32];
        half.copy_from_slice(&self.hmac(&[form])[..32]);
        half
    }

    /// Puts the MACs that it should have into a little-endian root block. Error: `Form` when it is none.
    pub(crate) fn sign_objset(&self, block: &mut [u8]) -> Result<(), CryptError> {
        let macs = self.objset_macs(block, true)?;
        block[PORTABLE_AT].copy_from_slice(&macs.portable);
        block[LOCAL_AT].copy_from_slice(&macs.local);
        Ok(())
    }

    /// Checks a root block's MACs. Errors: `Authentication`, `Form`.
    ///
    /// The local one is not looked at while accounting is not complete, so that accounting of other versions is forgiven (OpenZFS:
    /// `spa_do_crypt_objset_mac_abd`).
    pub fn authenticate_objset(&self, block: &[u8], is_little: bool) -> Result<(), CryptError> {
        let (should, stored) = (self.objset_macs(block, is_little)?, ObjsetMacs::stored(block)?);
        verify_slices_are_equal(&should.portable, &stored.portable).map_err(|_| CryptError::Authentication)?;
        if should.local == [0; 32] {
            return Ok(());
        }
        verify_slices_are_equal(&should.local, &stored.local).map_err(|_| CryptError::Authentication)
    }
}
