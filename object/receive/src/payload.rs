//! Payloads of records: decompressed, and in this machine's byte order, or as they are stored.

use crate::ReceiveError;
use abd::Abd;
use dmu::{Marks, StoredBlock};
use ondisk::{BLOCK_BYTES_MAX, ByteOrder, Compression, ObjectType, byteswap_contents};
use stream::Features;

/// Bytes of a block that a record brings: `bytes` of them, of an object of this kind, compressed as the record says (0 is not at all).
pub(crate) fn block(payload: &[u8], bytes: u64, compression: u8, (kind, order): (ObjectType, ByteOrder)) -> Result<Vec<u8>, ReceiveError> {
    let bytes = usize::try_from(bytes).ok().filter(|bytes| (1..=BLOCK_BYTES_MAX).contains(bytes));
    let bytes = bytes.ok_or(ReceiveError::Invalid("a block is empty, or longer than any"))?;
    let mut data = match compression {
        0 if payload.len() == bytes => payload.to_vec(),
        0 => return Err(ReceiveError::Invalid("a block has another length than its record says")),
        kind => {
            let mut data = vec![0; bytes];
            kernels::decompress(Compression(kind), payload, &mut data)
                .map_err(|_| ReceiveError::Invalid("a compressed block is malformed"))?;
            data
        }
    };
    into_order(&mut data, kind, order);
    Ok(data)
}

/// Puts the contents of an object of this kind into this machine's byte order.
pub(crate) fn into_order(data: &mut [u8], kind: ObjectType, order: ByteOrder) {
    if order == ByteOrder::Big {
        byteswap_contents(kind.byteswap(), data);
    }
}

/// Block of a record as it is stored: its logical bytes, its compression and its marks, in a stream of these features.
pub(crate) fn stored(
    payload: &[u8],
    (lsize, number): (u64, u8),
    marks: Option<Marks>,
    features: Features,
) -> Result<StoredBlock, ReceiveError> {
    let compression = if number == 0 { Compression::OFF } else { Compression(number) };
    let is_known = match compression {
        Compression::EMPTY => false,
        Compression::ZSTD => features.has(Features::ZSTD),
        Compression(number) => (Compression::OFF.0..Compression::ZSTD.0).contains(&number),
    };
    let is_possible = |lsize: usize| is_known && lsize <= BLOCK_BYTES_MAX && (compression != Compression::OFF || lsize == payload.len());
    let lsize = usize::try_from(lsize).ok().filter(|lsize| is_possible(*lsize));
    let lsize = lsize.ok_or(ReceiveError::Invalid("a block is of an impossible form"))?;
    Ok(StoredBlock { data: Abd::from_slice(payload), lsize, compression, marks })
}
