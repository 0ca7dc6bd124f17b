//! Blocks: decrypted, encrypted, or only authenticated (OpenZFS: `zio_do_crypt_data`, `zio_crypt_do_hmac`, `zio_crypt_do_indirect_mac_checksum`).

use crate::dnodes::take_apart;
use crate::pointers::append_all;
use crate::{CryptError, DataKey, Iv, KEY_VERSION, Mac, Salt};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use ondisk::{BlockPtr, ObjectType};
use sha2::{Digest, Sha512};
use std::ops::Range;
use zeroize::Zeroizing;

/// Way in which a block is protected beyond its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// In no way: the block belongs to no encrypted dataset, or nothing is stored.
    None,
    /// Encrypted and authenticated: [`DataKey::open`].
    Encrypted,
    /// Authenticated with the dataset's key, as it is stored: [`DataKey::authenticate`].
    Authenticated,
    /// Pointers, authenticated by what they point at, without a key, once decompressed: [`indirect_is_right`].
    Pointers,
    /// The root of an object set, authenticated by what is in it: [`DataKey::authenticate_objset`].
    Objset,
    /// A block of an intent log, encrypted but for what claiming must see.
    Log,
}

/// Protection of the block that `bp` points at.
pub fn protection(bp: &BlockPtr) -> Protection {
    if !bp.uses_crypt() || bp.is_hole() || bp.is_embedded() {
        Protection::None
    } else if bp.level() > 0 {
        Protection::Pointers
    } else if bp.object_type() == ObjectType::OBJSET {
        Protection::Objset
    } else if bp.object_type() == ObjectType::INTENT_LOG {
        Protection::Log
    } else if bp.object_type().is_encrypted() {
        Protection::Encrypted
    } else {
        Protection::Authenticated
    }
}

/// MAC of a decompressed block of pointers (SHA-512 over their forms, for keys of `version`).
pub fn indirect_mac(pointers: &[u8], is_little: bool, version: u64) -> Mac {
    let mut forms = Vec::with_capacity(pointers.len() / 4);
    append_all(pointers, is_little, version, &mut forms);
    let mut mac = Mac::default();
    mac.copy_from_slice(&Sha512::digest(&forms)[..16]);
    mac
}

/// True when a decompressed block of pointers is the one that `bp` authenticates, under whichever version its keys have.
pub fn indirect_is_right(bp: &BlockPtr, pointers: &[u8]) -> bool {
    [KEY_VERSION, 0].iter().any(|version| indirect_mac(pointers, bp.is_little_endian(), *version) == bp.mac())
}

impl DataKey {
    /// Decrypts the stored bytes of an encrypted block into `plain`, which is as long: what comes out is still compressed.
    ///
    /// Errors: `Authentication`, and then `plain` holds nothing of use; `Form` for blocks of dnodes that are none.
    pub fn open(&self, bp: &BlockPtr, stored: &[u8], plain: &mut [u8]) -> Result<(), CryptError> {
        if stored.len() != plain.len() {
            return Err(CryptError::Form);
        }
        let cipher = self.cipher(&bp.salt())?;
        if bp.object_type() != ObjectType::DNODE {
            return cipher.open(&bp.iv(), &[], &bp.mac(), stored, plain);
        }
        let block = take_apart(stored, bp.is_little_endian(), self.version())?;
        let sealed = gathered(&block.encrypted, stored);
        let mut bonuses = Zeroizing::new(vec![0u8; sealed.len()]);
        cipher.open(&bp.iv(), &block.aad, &bp.mac(), &sealed, &mut bonuses)?;
        plain.copy_from_slice(stored);
        put_back(&block.encrypted, &bonuses, plain);
        Ok(())
    }

    /// Encrypts what is to be stored of a little-endian block of type `kind`, where it is, and answers its MAC. `iv` must never have been used with
    /// this salt.
    ///
    /// Errors: `Size`; `Form` for blocks of dnodes that are none.
    pub fn seal(&self, kind: ObjectType, salt: &Salt, iv: &Iv, data: &mut [u8]) -> Result<Mac, CryptError> {
        let cipher = self.cipher(salt)?;
        if kind != ObjectType::DNODE {
            return cipher.seal(iv, &[], data);
        }
        let block = take_apart(data, true, self.version())?;
        let mut bonuses = gathered(&block.encrypted, data);
        let mac = cipher.seal(iv, &block.aad, &mut bonuses)?;
        put_back(&block.encrypted, &bonuses, data);
        Ok(mac)
    }

    /// MAC of a block that is not encrypted, over the bytes that are stored.
    pub fn mac_of(&self, stored: &[u8]) -> Mac {
        let mut mac = Mac::default();
        mac.copy_from_slice(&self.hmac(&[stored])[..16]);
        mac
    }

    /// Checks the MAC of a block that is not encrypted. Error: `Authentication`.
    pub fn authenticate(&self, bp: &BlockPtr, stored: &[u8]) -> Result<(), CryptError> {
        verify_slices_are_equal(&self.mac_of(stored), &bp.mac()).map_err(|_| CryptError::Authentication)
    }
}

/// The bytes of `places`, one after another.
pub(crate) fn gathered(places: &[Range<usize>], block: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(places.iter().map(Range::len).sum());
    for place in places {
        out.extend_from_slice(&block[place.clone()]);
    }
    out
}

/// Puts what was gathered back into its places.
pub(crate) fn put_back(places: &[Range<usize>], gathered: &[u8], block: &mut [u8]) {
    let mut rest = gathered;
    for place in places {
        let (own, after) = rest.split_at(place.len());
        block[place.clone()].copy_from_slice(own);
        rest = after;
    }
}
