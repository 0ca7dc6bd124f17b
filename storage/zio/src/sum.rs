//! Checksums of bytes that may lie in pieces, or in memory that others write to, which is looked at once.

use crate::ErrorKind;
use abd::Abd;
use kernels::ByteOrder;
use kernels::checksum::{Fletcher4, Salt, salted_checksum};
use ondisk::Checksum;

/// The checksum of `data`, as little-endian blocks have it.
///
/// Errors: `Unsupported` for an algorithm that this build lacks, or that needs a salt.
pub fn sum_of(kind: Checksum, data: &Abd) -> Result<[u64; 4], ErrorKind> {
    sum_in(None, kind, data, ByteOrder::Little)
}

/// As [`sum_of`], in a pool with this salt; None where it has none.
pub fn salted_sum_of(salt: Option<&Salt>, kind: Checksum, data: &Abd) -> Result<[u64; 4], ErrorKind> {
    sum_in(salt, kind, data, ByteOrder::Little)
}

/// The checksum of `data`, as blocks of this byte order have it in a pool with this salt.
pub(crate) fn sum_in(salt: Option<&Salt>, kind: Checksum, data: &Abd, order: ByteOrder) -> Result<[u64; 4], ErrorKind> {
    let sum = match data.as_contiguous() {
        Some(bytes) => salted_checksum(salt, kind, &[bytes], order),
        None if data.is_unstable() && kind == Checksum::FLETCHER_4 => Ok(fletcher4_of(data, order)),
        None if data.is_unstable() => return sum_in(salt, kind, &data.to_stable(), order),
        None => salted_checksum(salt, kind, &data.chunks().collect::<Vec<_>>(), order),
    };
    sum.map_err(|_| ErrorKind::Unsupported)
}

/// Fletcher-4 of bytes that may be unstable, looked at once.
fn fletcher4_of(data: &Abd, order: ByteOrder) -> [u64; 4] {
    let sum = data.fold(Fletcher4::new(order), |mut sum, bytes| {
        sum.update(bytes);
        Some(sum)
    });
    sum.map(|sum| sum.finish()).unwrap_or_default()
}
