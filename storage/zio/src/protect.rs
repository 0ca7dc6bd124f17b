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

/// Bytes that the devices get of a block that was compressed to `physical`, and the marks for its pointer; without a key what it was given.
pub(crate) fn protect(request: &WriteRequest, physical: Abd) -> Result<(Abd, Option<Guard>), ErrorKind> {
    let Some(key) = &request.seal else { return Ok((physical, None)) };
    if request.level > 0 {
        let pointers = request.data.to_contiguous();
        let guard = key.guard_pointers(pointers.as_contiguous().ok_or(ErrorKind::Corrupt)?);
        return Ok((physical, Some(guard)));
    }
    let mut stored = AbdPart::scratch(physical.len());
    stored.copy_from_abd(&physical);
    let guard = key.guard(request.object_type, &mut stored).map_err(kind_of)?;
    Ok((stored.freeze(), Some(guard)))
}
