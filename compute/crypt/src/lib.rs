//! The cryptography of encrypted datasets: keys and how they are wrapped, blocks, and the MACs of what is not encrypted
//! (OpenZFS: `zio_crypt.c`). Functions over bytes and keys: no I/O, no dataset. Random bytes are the system's ([`random`]).
//!
//! ```text
//! what a user gives ─► WrappingKey ─(WrappedKey, from a dataset's key object)─► DataKey
//!                                                                               ├─ guard: what is written, with a random vector of its own
//!                                                                               ├─ open, seal: encrypted level-0 blocks
//!                                                                               ├─ LogKey: blocks of intent logs
//!                                                                               ├─ authenticate: level-0 blocks that are not encrypted
//!                                                                               └─ objset_macs: the root block of an object set
//! indirect_is_right: blocks of pointers, for everybody, without a key
//! Seal: how a block is written, with the key, or as it came of a raw stream
//! ```
//!
//! Keys lie in memory of their own ([`Secret`]): wiped when they go, kept out of core dumps and, where the system lets us, out of swap. What libraries
//! make of a key (its schedule) lies in their own memory, which they wipe. No type here prints a key.

mod aead;
mod block;
mod data_key;
mod dnodes;
mod error;
mod guard;
mod log;
mod objset;
mod pointers;
pub mod random;
mod salt;
mod seal;
mod secret;
mod suite;
mod wrap;
mod wrapping_key;

pub use block::{Protection, indirect_is_right, indirect_mac, protection};
pub use data_key::DataKey;
pub use error::CryptError;
pub use guard::Guard;
pub use log::LogKey;
pub use objset::ObjsetMacs;
pub use seal::Seal;
pub use secret::Secret;
pub use suite::{Iv, Mac, Salt, Suite};
pub use wrap::{KEY_VERSION, WrappedKey};
pub use wrapping_key::{PASSPHRASE_BYTES, PBKDF2_ITERATIONS_DEFAULT, PBKDF2_ITERATIONS_MIN, WRAPPING_KEY_BYTES, WrappingKey};
