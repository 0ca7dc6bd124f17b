//! Name-value lists (OpenZFS: `nvlist_t`, `module/nvpair/nvpair.c`): the format of pool configs, labels, history and SA xattrs.
//!
//! A list is an ordered sequence of pairs that survives decode and encode unchanged: order, duplicate names, flags and names that are
//! not UTF-8 (extended attributes) are kept. Decoding never trusts a length: work and memory are bounded by the input's size.
#![forbid(unsafe_code)]

mod decode;
mod encode;
mod print;
#[cfg(test)]
mod tests;
mod value;

pub use decode::DecodeError;
pub use encode::Encoding;
pub use value::{Byte, Bytes, DEPTH_MAX, HrTime, NvList, NvString, UNIQUE_NAME, UNIQUE_NAME_TYPE, Value};
