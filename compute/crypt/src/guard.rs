//! Blocks that are about to be written: what becomes of their bytes, and what their pointers get (OpenZFS: `zio_encrypt`).
//!
//! Every block gets an initialization vector of its own, of the system's random bytes, each time that it is written, to the same place too. Two
//! blocks with one vector under one key would give away both, and the key of MACs with them; so a salt, from which a block's key comes, serves for no
//! more than `USES_MAX` blocks: two random vectors of 96 bits among so many are the same with a probability below 2^-40.

use crate::{CryptError, DataKey, Iv, Mac, Salt, indirect_mac, random};
use ondisk::{BlockPtr, ObjectType};

/// Marks of a protected block that its pointer gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    mac: Option<Mac>,
    salt_and_iv: Option<(Salt, Iv)>,
}

impl Guard {
    /// Marks that somebody else made: the MAC, of all but roots of object sets, and salt and vector of what is encrypted.
    pub fn new(mac: Option<Mac>, salt_and_iv: Option<(Salt, Iv)>) -> Guard {
        Guard { mac, salt_and_iv }
    }

    /// Puts the marks into the block's pointer, which has everything else by now; `half` is what is kept of its checksum beside a MAC.
    pub fn put(&self, bp: &mut BlockPtr, half: [u64; 2]) {
        bp.set_uses_crypt(true);
        if let Some(mac) = self.mac {
            bp.set_checksum_half(half);
            bp.set_mac(mac);
        }
        if let Some((salt, iv)) = self.salt_and_iv {
            bp.set_salt_and_iv(salt, iv);
        }
    }
}

impl DataKey {
    /// Protects a block of pointers: `pointers` are its logical bytes, little-endian. What is stored of it stays as it is.
    pub fn guard_pointers(&self, pointers: &[u8]) -> Guard {
        Guard { mac: Some(indirect_mac(pointers, true, self.version())), salt_and_iv: None }
    }

    /// Protects a little-endian block of level 0 and type `kind`: encrypts `stored`, compressed by now, where it is; or signs the root of an object set
    /// in itself; or signs the block.
    ///
    /// Errors: `Random`, `Size`; `Form` for blocks of dnodes, and roots, that are none.
    pub fn guard(&self, kind: ObjectType, stored: &mut [u8]) -> Result<Guard, CryptError> {
        if kind == ObjectType::OBJSET {
            self.sign_objset(stored)?;
            return Ok(Guard { mac: None, salt_and_iv: None });
        }
        if !kind.is_encrypted() {
            return Ok(Guard { mac: Some(self.mac_of(stored)), salt_and_iv: None });
        }
        let (salt, iv) = (self.salt_to_write()?, random::bytes()?);
        let mac = self.seal(kind, &salt, &iv, stored)?;
        Ok(Guard { mac: Some(mac), salt_and_iv: Some((salt, iv)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Protection, Suite, indirect_is_right, protection};
    use ondisk::{Compression, Dva};
    use std::collections::BTreeSet;

    fn pointer(kind: ObjectType, level: u8) -> BlockPtr {
        let mut bp = BlockPtr::HOLE;
        bp.set_dva(0, Dva { asize: 4096, offset: 1 << 20, ..Dva::default() });
        bp.set_lsize(4096);
        bp.set_psize(4096);
        bp.set_compression(Compression::OFF);
        bp.set_object_type(kind);
        bp.set_level(level);
        bp.set_little_endian(true);
        bp.set_fill(1);
        bp.set_checksum([1, 2, 3, 4]);
        bp
    }

    /// If this fails, two blocks have one initialization vector under one key: whoever sees both sees what is in them.
    #[test]
    fn no_two_blocks_have_one_vector_and_equal_bytes_look_different() {
        let key = DataKey::generate(Suite::Aes256Gcm).expect("random bytes");
        let (mut vectors, mut ciphertexts) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..1000 {
            let mut bytes = vec![7; 4096];
            let guard = key.guard(ObjectType::PLAIN_FILE_CONTENTS, &mut bytes).expect("it encrypts");
            let mut bp = pointer(ObjectType::PLAIN_FILE_CONTENTS, 0);
            guard.put(&mut bp, [8, 9]);
            assert_eq!((bp.fill(), bp.checksum()[..2].to_vec(), protection(&bp)), (1, vec![8, 9], Protection::Encrypted));
            let mut plain = vec![0; 4096];
            key.open(&bp, &bytes, &mut plain).expect("it decrypts");
            assert_eq!(plain, [7u8; 4096]);
            vectors.insert((bp.salt(), bp.iv()));
            ciphertexts.insert(bytes);
        }
        assert_eq!((vectors.len(), ciphertexts.len()), (1000, 1000));
        let salts: BTreeSet<Salt> = vectors.into_iter().map(|(salt, _)| salt).collect();
        assert_eq!(salts.len(), 1, "a salt serves for many blocks");
    }

    /// If this fails, metadata that is not encrypted, pointers or roots of object sets are written so that OpenZFS takes them for forged.
    #[test]
    fn what_is_not_encrypted_is_signed() {
        let key = DataKey::generate(Suite::Aes128Ccm).expect("random bytes");
        let mut bytes = vec![3; 4096];
        let guard = key.guard(ObjectType::MASTER_NODE, &mut bytes).expect("it signs");
        let mut bp = pointer(ObjectType::MASTER_NODE, 0);
        guard.put(&mut bp, [8, 9]);
        assert_eq!((bytes.as_slice(), key.authenticate(&bp, &bytes)), ([3u8; 4096].as_slice(), Ok(())));
        let mut above = pointer(ObjectType::PLAIN_FILE_CONTENTS, 1);
        let block = bp.encode();
        key.guard_pointers(&block).put(&mut above, [8, 9]);
        assert!(indirect_is_right(&above, &block) && above.uses_crypt());
        let mut root = vec![0; 4096];
        let guard = key.guard(ObjectType::OBJSET, &mut root).expect("it signs");
        assert_eq!(key.authenticate_objset(&root, true), Ok(()));
        let mut bp = pointer(ObjectType::OBJSET, 0);
        guard.put(&mut bp, [8, 9]);
        assert_eq!((bp.checksum(), protection(&bp)), ([1, 2, 3, 4], Protection::Objset), "its checksum stays whole");
        root[0] ^= 1;
        assert_eq!(key.authenticate_objset(&root, true), Err(CryptError::Authentication));
    }
}
