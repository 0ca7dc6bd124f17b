//! The system's table of mounts, read again only when it changed.

use rustix::event::{PollFd, PollFlags, Timespec};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const TABLE: &str = "/proc/self/mountinfo";

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountRow {
    /// Major and minor number of its device: one for all mounts of a superblock.
    pub device: (u32, u32),
    /// Where it is.
    pub place: PathBuf,
    /// Type, `fuse.zfs`.
    pub kind: String,
    /// Source: the dataset.
    pub source: String,
}

/// The mounts that this process sees.
#[derive(Default)]
pub struct MountTable {
    file: Option<File>,
    rows: Arc<[MountRow]>,
}

impl MountTable {
    /// The mounts, oldest first where several are at one place; None where there is no table.
    pub fn rows(&mut self) -> Option<Arc<[MountRow]>> {
        let is_known = self.file.as_ref().is_some_and(|file| !has_changed(file));
        if !is_known {
            self.read()?;
        }
        Some(self.rows.clone())
    }

    fn read(&mut self) -> Option<()> {
        if self.file.is_none() {
            self.file = Some(File::open(TABLE).ok()?);
        }
        let file = self.file.as_mut()?;
        let mut text = Vec::new();
        file.rewind().ok()?;
        file.read_to_end(&mut text).ok()?;
        self.rows = text.split(|&byte| byte == b'\n').filter_map(row).collect();
        Some(())
    }
}

/// The topmost mount at a place.
pub fn topmost<'a>(rows: &'a [MountRow], place: &Path) -> Option<&'a MountRow> {
    rows.iter().rev().find(|row| row.place == place)
}

fn has_changed(file: &File) -> bool {
    let mut polled = [PollFd::new(file, PollFlags::PRI)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    !matches!(rustix::event::poll(&mut polled, Some(&now)), Ok(0))
}

/// `id parent major:minor root place options … - kind source superoptions`, with the kernel's escapes.
fn row(line: &[u8]) -> Option<MountRow> {
    let mut fields = line.split(|&byte| byte == b' ');
    let device = String::from_utf8_lossy(fields.nth(2)?).into_owned();
    let (major, minor) = device.split_once(':')?;
    let place = PathBuf::from(OsString::from_vec(unescape(fields.nth(1)?)));
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let text = |field: &[u8]| String::from_utf8_lossy(&unescape(field)).into_owned();
    Some(MountRow { device: (major.parse().ok()?, minor.parse().ok()?), place, kind: text(rest.next()?), source: text(rest.next()?) })
}

/// Undoes the kernel's `\ooo` escapes.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = tail.get(..3).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match octal {
            Some(code) if byte == b'\\' => {
                plain.push(code);
                rest = &tail[3..];
            }
            _ => {
                plain.push(byte);
                rest = tail;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place that is read wrong is a mount that is not found, and a file system that is mounted twice.
    #[test]
    fn rows_are_read_with_their_escapes() {
        let line = br"139 81 0:72 / /tmp/a\040b\134c rw,relatime shared:5 - fuse.zfs tank/my\040data rw,user_id=0,group_id=0";
        let expected = MountRow {
            device: (0, 72),
            place: PathBuf::from(r"/tmp/a b\c"),
            kind: "fuse.zfs".to_string(),
            source: "tank/my data".to_string(),
        };
        assert_eq!(row(line), Some(expected));
        assert_eq!(row(b""), None);
    }

    #[test]
    fn the_table_of_this_process_has_a_root() {
        let mut table = MountTable::default();
        let Some(rows) = table.rows() else { return };
        assert!(topmost(&rows, Path::new("/")).is_some(), "{rows:?}");
        assert_eq!(table.rows().map(|again| again.len()), Some(rows.len()));
    }
}
