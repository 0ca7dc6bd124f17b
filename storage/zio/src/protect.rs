//! Blocks of encrypted datasets on their way to the devices: behind compression, before the checksum (OpenZFS: `zio_encrypt`).

use crate::{ErrorKind, WriteRequest};
use abd::{Abd, AbdPart};
use crypt::{CryptError, Guard};

fn kind_of(error: CryptError) -> ErrorKind {
    match error {
        CryptError::Random => ErrorKind::Io,
        CryptError::Form => ErrorKind::Corrupt,
        CryptError::Authentication | CryptError::Key | CryptError::Size => ErrorKind::Unsupported,
    }
}

/// Bytes that the devices get of a block that was compressed to `physical`, and the marks for its pointer; without a seal what it was given.
pub(crate) fn protect(request: &WriteRequest, physical: Abd) -> Result<(Abd, Option<Guard>), ErrorKind> {
    let Some(seal) = &request.seal else { return Ok((physical, None)) };
    let Some(key) = seal.key_for(request.level) else {
        let block = request.data.to_contiguous();
        let guard = seal.marks(block.as_contiguous().ok_or(ErrorKind::Corrupt)?);
        return Ok((physical, guard));
    };
    let mut stored = AbdPart::scratch(physical.len());
    stored.copy_from_abd(&physical);
    let guard = key.guard(request.object_type, &mut stored).map_err(kind_of)?;
    Ok((stored.freeze(), Some(guard)))
}
