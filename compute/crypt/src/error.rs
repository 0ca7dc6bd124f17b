//! Errors of cryptography: few, and none of them says anything of a key.

use std::fmt;

/// Reason why something was not encrypted, decrypted or taken for true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CryptError {
    /// The MAC is another one: the bytes, what is authenticated beside them, or the key are not those that it was made with.
    Authentication,
    /// A key, a passphrase or a count of iterations that is none.
    Key,
    /// More bytes than the suite can encrypt at once (CCM: 2^24 - 1).
    Size,
    /// A block that has not the form of its type.
    Form,
    /// The system gives no random bytes.
    Random,
}
impl fmt::Display for CryptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CryptError::Authentication => "authentication failed",
            CryptError::Key => "not a key",
            CryptError::Size => "more bytes than the suite can encrypt at once",
            CryptError::Form => "a block without the form of its type",
            CryptError::Random => "the system gives no random bytes",
        })
    }
}
impl std::error::Error for CryptError {}
