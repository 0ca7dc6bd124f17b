//! Files that a request names: anybody may have made them, and anything may lie there.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The bytes of a regular file of at most `bytes_max`. Anything else is refused: a FIFO's other end may never come, and devices have no end.
///
/// # Errors
/// Those of the system; `InvalidInput` for what is no regular file, `FileTooLarge`.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    // What was opened is judged, not what had the name a moment before.
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// True when a file may be put at a path, in the place of what lies there: nothing, a regular file, or a link to one of these.
pub fn is_replaceable(path: &Path) -> bool {
    match std::fs::metadata(path) {
        Ok(metadata) => metadata.is_file(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, one command of root with the wrong path takes the daemon's memory, or a thread of it for ever, and with them every pool.
    #[test]
    fn what_has_no_end_or_never_answers_is_not_read() {
        let folder = std::env::temp_dir().join(format!("zirconia-given-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let kind = |path: &Path| read(path, 4096).map_err(|error| error.kind());
        let fifo = folder.join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        for wrong in [Path::new("/dev/zero"), &fifo, &folder] {
            assert_eq!(kind(wrong), Err(io::ErrorKind::InvalidInput), "{}", wrong.display());
            assert!(!is_replaceable(wrong), "{}", wrong.display());
        }
        let file = folder.join("file");
        std::fs::write(&file, [7; 4096]).unwrap();
        assert_eq!(kind(&file), Ok(vec![7; 4096]));
        std::fs::write(&file, [7; 4097]).unwrap();
        assert_eq!(kind(&file), Err(io::ErrorKind::FileTooLarge));
        assert!(is_replaceable(&file) && is_replaceable(&folder.join("none")));
        // As long as it says, and empty: its bytes are counted, not its length believed.
        assert!(kind(Path::new("/proc/self/status")).is_ok());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
