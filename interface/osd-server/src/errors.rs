//! Error numbers of Linux for what the device says, and names of objects as it has them.

use osd::OsdError;
use osd_client::Fid;
use rustix::io::Errno;

/// Error number for what the device says.
pub fn errno_of(error: OsdError) -> Errno {
    match error {
        OsdError::NotFound => Errno::NOENT,
        OsdError::Exists => Errno::EXIST,
        OsdError::BadFid => Errno::INVAL,
        OsdError::Undeclared => Errno::PERM,
        OsdError::WrongKind => Errno::OPNOTSUPP,
        OsdError::Store(error) => Errno::from_raw_os_error(fuse::Errno::from(error).0),
    }
}

/// Identifier as the device has it.
pub(crate) fn fid(object: Fid) -> osd::Fid {
    osd::Fid { sequence: object.sequence, object: object.object, version: object.version }
}
