//! The suites that datasets can be encrypted with (OpenZFS: `zio_crypt_table`, `enum zio_encrypt`).

/// Salt of a block's key.
pub type Salt = [u8; 8];
/// Initialization vector of a block or of a wrapped key.
pub type Iv = [u8; 12];
/// Message authentication code of a block or of a wrapped key.
pub type Mac = [u8; 16];

/// An AEAD with the length of its key. Numbers are those of the property `encryption` and of key objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Suite {
    /// AES with 128 bits in CCM.
    Aes128Ccm = 3,
    /// AES with 192 bits in CCM.
    Aes192Ccm = 4,
    /// AES with 256 bits in CCM.
    Aes256Ccm = 5,
    /// AES with 128 bits in GCM.
    Aes128Gcm = 6,
    /// AES with 192 bits in GCM.
    Aes192Gcm = 7,
    /// AES with 256 bits in GCM: `encryption=on`.
    Aes256Gcm = 8,
}

impl Suite {
    /// Every suite, by its number.
    pub const ALL: [Suite; 6] =
        [Suite::Aes128Ccm, Suite::Aes192Ccm, Suite::Aes256Ccm, Suite::Aes128Gcm, Suite::Aes192Gcm, Suite::Aes256Gcm];

    /// The suite of a number on disk; None for numbers that are none, `on` and `off` among them.
    pub fn from_number(number: u64) -> Option<Suite> {
        Suite::ALL.into_iter().find(|suite| suite.number() == number)
    }
    /// Number on disk.
    pub fn number(self) -> u64 {
        u64::from(self as u8)
    }
    /// Bytes of a master key and of a block's key.
    pub fn key_bytes(self) -> usize {
        match self {
            Suite::Aes128Ccm | Suite::Aes128Gcm => 16,
            Suite::Aes192Ccm | Suite::Aes192Gcm => 24,
            Suite::Aes256Ccm | Suite::Aes256Gcm => 32,
        }
    }
    /// The suite that wraps keys of this one: a wrapping key always has 32 bytes.
    pub fn wraps_as(self) -> Suite {
        match self {
            Suite::Aes128Ccm | Suite::Aes192Ccm | Suite::Aes256Ccm => Suite::Aes256Ccm,
            Suite::Aes128Gcm | Suite::Aes192Gcm | Suite::Aes256Gcm => Suite::Aes256Gcm,
        }
    }
}
