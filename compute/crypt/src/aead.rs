//! The AEADs themselves: GCM of AWS-LC, CCM of RustCrypto; both with IVs of twelve bytes and MACs of sixteen.

use crate::{CryptError, Iv, Mac, Suite};
use aes::{Aes128, Aes192, Aes256};
use aws_lc_rs::aead::{AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, Nonce, UnboundKey};
use ccm::aead::AeadInOut;
use ccm::consts::{U12, U16};
use ccm::{Ccm, KeyInit};

/// A key ready for use.
pub(crate) enum Cipher {
    Gcm(Box<LessSafeKey>),
    Ccm128(Box<Ccm<Aes128, U16, U12>>),
    Ccm192(Box<Ccm<Aes192, U16, U12>>),
    Ccm256(Box<Ccm<Aes256, U16, U12>>),
}

impl Cipher {
    /// Makes the schedule of `key`. Error: `Key` when it has not the suite's length.
    pub(crate) fn new(suite: Suite, key: &[u8]) -> Result<Cipher, CryptError> {
        let gcm = |algorithm: &'static Algorithm| -> Result<Cipher, CryptError> {
            let key = UnboundKey::new(algorithm, key).map_err(|_| CryptError::Key)?;
            Ok(Cipher::Gcm(Box::new(LessSafeKey::new(key))))
        };
        match suite {
            Suite::Aes128Gcm => gcm(&AES_128_GCM),
            Suite::Aes192Gcm => gcm(&AES_192_GCM),
            Suite::Aes256Gcm => gcm(&AES_256_GCM),
            Suite::Aes128Ccm => ccm_of(key).map(Cipher::Ccm128),
            Suite::Aes192Ccm => ccm_of(key).map(Cipher::Ccm192),
            Suite::Aes256Ccm => ccm_of(key).map(Cipher::Ccm256),
        }
    }

    /// Decrypts `sealed` into `plain`, which is as long. Error: `Authentication`; then `plain` holds nothing of use.
    pub(crate) fn open(&self, iv: &Iv, aad: &[u8], mac: &Mac, sealed: &[u8], plain: &mut [u8]) -> Result<(), CryptError> {
        let gcm = match self {
            Cipher::Gcm(key) => key,
            Cipher::Ccm128(ccm) => return open_ccm(&**ccm, iv, aad, mac, copied(sealed, plain)),
            Cipher::Ccm192(ccm) => return open_ccm(&**ccm, iv, aad, mac, copied(sealed, plain)),
            Cipher::Ccm256(ccm) => return open_ccm(&**ccm, iv, aad, mac, copied(sealed, plain)),
        };
        let nonce = Nonce::assume_unique_for_key(*iv);
        gcm.open_separate_gather(nonce, Aad::from(aad), sealed, mac, plain).map_err(|_| CryptError::Authentication)
    }

    /// Encrypts `data` where it is. Error: `Size`.
    pub(crate) fn seal(&self, iv: &Iv, aad: &[u8], data: &mut [u8]) -> Result<Mac, CryptError> {
        match self {
            Cipher::Gcm(key) => {
                let nonce = Nonce::assume_unique_for_key(*iv);
                let tag = key.seal_in_place_separate_tag(nonce, Aad::from(aad), data).map_err(|_| CryptError::Size)?;
                let tag: &[u8] = tag.as_ref();
                tag.try_into().map_err(|_| CryptError::Size)
            }
            Cipher::Ccm128(ccm) => seal_ccm(&**ccm, iv, aad, data),
            Cipher::Ccm192(ccm) => seal_ccm(&**ccm, iv, aad, data),
            Cipher::Ccm256(ccm) => seal_ccm(&**ccm, iv, aad, data),
        }
    }
}

fn ccm_of<C: KeyInit>(key: &[u8]) -> Result<Box<C>, CryptError> {
    C::new_from_slice(key).map(Box::new).map_err(|_| CryptError::Key)
}

/// `target` with the bytes of `source` in it.
fn copied<'a>(source: &[u8], target: &'a mut [u8]) -> &'a mut [u8] {
    target.copy_from_slice(source);
    target
}

fn open_ccm<C>(ccm: &C, iv: &Iv, aad: &[u8], mac: &Mac, data: &mut [u8]) -> Result<(), CryptError>
where
    C: AeadInOut<NonceSize = U12, TagSize = U16>,
{
    let (nonce, tag) = (ccm::Nonce::<U12>::from(*iv), ccm::Tag::<U16>::from(*mac));
    ccm.decrypt_inout_detached(&nonce, aad, data.into(), &tag).map_err(|_| CryptError::Authentication)
}

fn seal_ccm<C>(ccm: &C, iv: &Iv, aad: &[u8], data: &mut [u8]) -> Result<Mac, CryptError>
where
    C: AeadInOut<NonceSize = U12, TagSize = U16>,
{
    let nonce = ccm::Nonce::<U12>::from(*iv);
    ccm.encrypt_inout_detached(&nonce, aad, data.into()).map(Mac::from).map_err(|_| CryptError::Size)
}
