//! What the list in front of a raw stream says: keys that nobody can open who has not the user's, and what MACs cover besides the records (OpenZFS:
//! `dsl_crypto_recv_raw_key_check`, `dsl_crypto_recv_raw_objset_check`).

use crate::DslError;
use crate::keys::{KeyFacts, RawKeys};
use crypt::{KEY_VERSION, Suite, WrappedKey};
use dmu::MetaForm;
use nvlist::NvList;
use ondisk::{BlockId, Checksum, Compression, DNODE_BLOCK_BYTES};

/// Values of the property `keyformat` that a key can have.
const FORMATS: std::ops::RangeInclusive<u64> = 1..=3;
const PASSPHRASE: u64 = 3;

/// Head of a raw stream, apart from what every stream has.
#[derive(Clone, Debug)]
pub struct RawStream {
    /// Keys of the dataset, with the name of the set of IVs of the snapshot that comes.
    pub(crate) keys: RawKeys,
    /// Name of the set of IVs of the snapshot that the stream goes on from; 0 when the stream does not know it.
    pub(crate) from_ivs: u64,
    /// MAC of the object set.
    pub(crate) portable_mac: [u8; 32],
    /// Form of its meta-dnode.
    pub(crate) form: MetaForm,
}

impl RawStream {
    /// Head of the stream with this list.
    ///
    /// # Errors
    /// [`DslError::BadKey`] for a list that lacks something, or has what cannot be; [`DslError::Unsupported`] for keys of other versions than are made.
    pub fn of_list(list: &NvList) -> Result<RawStream, DslError> {
        let list = list.get_nvlist("crypt_keydata").ok_or(DslError::BadKey)?;
        let keys = keys_in(list)?;
        let number = |name: &str| list.get_u64(name).ok_or(DslError::BadKey);
        let byte = |name: &str| number(name).and_then(|number| u8::try_from(number).map_err(|_| DslError::BadKey));
        let form = MetaForm {
            levels: byte("mdn_nlevels")?,
            indirect_shift: byte("mdn_indblkshift")?,
            block_ptr_count: byte("mdn_nblkptr")?,
            max_block: BlockId(number("mdn_maxblkid")?),
            checksum: Checksum(byte("mdn_checksum")?),
            compression: Compression(byte("mdn_compress")?),
        };
        if !form.is_possible() || number("mdn_blksz")? != DNODE_BLOCK_BYTES as u64 {
            return Err(DslError::BadKey);
        }
        let from_ivs = list.get_u64("from_ivset_guid").unwrap_or(0);
        Ok(RawStream { keys, from_ivs, portable_mac: bytes_in(list, "portable_mac")?, form })
    }

    /// Facts of the keys as the MOS has them, of a dataset with this encryption root.
    pub(crate) fn facts(&self, root: u64) -> KeyFacts {
        let RawKeys { wrapped, format, iterations, salt, .. } = &self.keys;
        KeyFacts { suite: wrapped.suite.number(), root, format: *format, iterations: *iterations, salt: *salt }
    }

    /// True for keys that were wrapped with the user's key of these facts, as far as that shows: a passphrase has a salt of its own, other keys have none.
    pub(crate) fn is_wrapped_as(&self, root: &KeyFacts) -> bool {
        let RawKeys { format, iterations, salt, .. } = self.keys;
        format == PASSPHRASE && (root.format, root.iterations, root.salt) == (format, iterations, salt)
    }
}

fn bytes_in<const N: usize>(list: &NvList, name: &str) -> Result<[u8; N], DslError> {
    list.get_bytes(name).and_then(|bytes| bytes.try_into().ok()).ok_or(DslError::BadKey)
}

fn keys_in(list: &NvList) -> Result<RawKeys, DslError> {
    let number = |name: &str| list.get_u64(name).ok_or(DslError::BadKey);
    let suite = Suite::from_number(number("DSL_CRYPTO_SUITE")?).ok_or(DslError::Unsupported)?;
    let version = list.get_u64("DSL_CRYPTO_VERSION").unwrap_or(0);
    if version != KEY_VERSION {
        return Err(DslError::Unsupported);
    }
    let (format, iterations, salt) = (number("keyformat")?, number("pbkdf2iters")?, number("pbkdf2salt")?);
    let is_passphrase = format == PASSPHRASE;
    if !FORMATS.contains(&format) || is_passphrase != (iterations != 0) || !is_passphrase && salt != 0 {
        return Err(DslError::BadKey);
    }
    let wrapped = WrappedKey {
        suite,
        guid: number("DSL_CRYPTO_GUID")?,
        version,
        iv: bytes_in(list, "DSL_CRYPTO_IV")?,
        mac: bytes_in(list, "DSL_CRYPTO_MAC")?,
        master: bytes_in(list, "DSL_CRYPTO_MASTER_KEY_1")?,
        hmac: bytes_in(list, "DSL_CRYPTO_HMAC_KEY_1")?,
    };
    Ok(RawKeys { wrapped, format, iterations, salt, ivs: list.get_u64("to_ivset_guid").unwrap_or(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> NvList {
        let numbers = [
            ("DSL_CRYPTO_SUITE", 8u64),
            ("DSL_CRYPTO_GUID", 7),
            ("DSL_CRYPTO_VERSION", 1),
            ("keyformat", 1),
            ("pbkdf2iters", 0),
            ("pbkdf2salt", 0),
            ("mdn_checksum", 0),
            ("mdn_compress", 0),
            ("mdn_nlevels", 6),
            ("mdn_blksz", 16_384),
            ("mdn_indblkshift", 17),
            ("mdn_nblkptr", 3),
            ("mdn_maxblkid", 4),
            ("to_ivset_guid", 9),
        ];
        let bytes = [
            ("DSL_CRYPTO_IV", 12),
            ("DSL_CRYPTO_MAC", 16),
            ("DSL_CRYPTO_MASTER_KEY_1", 32),
            ("DSL_CRYPTO_HMAC_KEY_1", 64),
            ("portable_mac", 32),
        ];
        let list = numbers.into_iter().fold(NvList::new(), |list, (name, number)| list.with(name, number));
        bytes.into_iter().fold(list, |list, (name, length)| list.with(name, vec![5u8; length]))
    }

    fn of(keys: NvList) -> Result<RawStream, DslError> {
        RawStream::of_list(&NvList::new().with("crypt_keydata", keys))
    }

    /// If this fails, a stream that somebody made up brings keys into the pool that stop it, or that nobody can ever load.
    #[test]
    fn heads_of_raw_streams_are_looked_at() {
        let raw = of(list()).expect("a head");
        assert_eq!((raw.keys.ivs, raw.from_ivs, raw.form.max_block, raw.facts(3).root), (9, 0, BlockId(4), 3));
        assert!(RawStream::of_list(&NvList::new()).is_err_and(|error| error == DslError::BadKey));
        let wrong = [
            ("keyformat", 0u64, DslError::BadKey),
            ("keyformat", 4, DslError::BadKey),
            ("keyformat", 3, DslError::BadKey),
            ("pbkdf2iters", 1, DslError::BadKey),
            ("pbkdf2salt", 1, DslError::BadKey),
            ("DSL_CRYPTO_SUITE", 2, DslError::Unsupported),
            ("DSL_CRYPTO_VERSION", 0, DslError::Unsupported),
            ("mdn_nlevels", 0, DslError::BadKey),
            ("mdn_nlevels", 13, DslError::BadKey),
            ("mdn_indblkshift", 11, DslError::BadKey),
            ("mdn_nblkptr", 4, DslError::BadKey),
            ("mdn_blksz", 512, DslError::BadKey),
            ("mdn_maxblkid", u64::MAX, DslError::BadKey),
            ("mdn_checksum", 256, DslError::BadKey),
        ];
        for (name, number, error) in wrong {
            assert_eq!(of(list().with(name, number)).map(drop), Err(error), "{name} {number}");
        }
        assert_eq!(of(list().with("DSL_CRYPTO_IV", vec![1u8; 11])).map(drop), Err(DslError::BadKey));
        let passphrase = list().with("keyformat", 3u64).with("pbkdf2iters", 1000u64).with("pbkdf2salt", 77u64);
        let raw = of(passphrase).expect("any count of iterations");
        let same = KeyFacts { suite: 3, root: 1, format: 3, iterations: 1000, salt: 77 };
        assert!(raw.is_wrapped_as(&same) && !raw.is_wrapped_as(&KeyFacts { salt: 78, ..same }));
        assert!(!of(list()).expect("a head").is_wrapped_as(&KeyFacts { suite: 8, root: 1, format: 1, iterations: 0, salt: 0 }));
    }
}
