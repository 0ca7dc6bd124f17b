//! The system's table of mounts, read again only when it changed.

use rustix::event::{PollFd, PollFlags, Timespec};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const TABLE: &str = "/proc/self/mountinfo";

/// Row of the table of mounts: one mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountRow {
    /// Number of the mount.
    pub id: u64,
    /// Number of the mount that it is in or over.
    pub parent: u64,
    /// Major and minor number of its device: one for all mounts of a superblock.
    pub device: (u32, u32),
    /// True when it shows a file system from its root on, not one directory or file of it.
    pub is_whole: bool,
    /// Mountpoint of the mount.
    pub place: PathBuf,
    /// Type of the mount: `fuse.zfs`.
    pub kind: String,
    /// Source of the mount: the dataset.
    pub source: String,
}

/// Table of the mounts that this process sees.
#[derive(Default)]
pub struct MountTable {
    file: Option<File>,
    rows: Arc<[MountRow]>,
}

impl MountTable {
    /// Rows of the table, oldest first where several are at one place; None where there is no table.
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

/// Topmost mount at a place.
pub fn topmost<'a>(rows: &'a [MountRow], place: &Path) -> Option<&'a MountRow> {
    rows.iter().rev().find(|row| row.place == place)
}

/// Mounts that keep paths from reaching a mount: over it, and over whatever leads to it.
pub fn covers<'a>(rows: &'a [MountRow], row: &MountRow) -> Vec<&'a MountRow> {
    let mut found: Vec<&MountRow> = rows.iter().filter(|over| over.parent == row.id && over.place == row.place).collect();
    let (mut id, mut place, mut parent) = (row.id, &row.place, row.parent);
    while let Some(around) = rows.iter().find(|around| around.id == parent && around.id != id) {
        let own = id;
        found.extend(rows.iter().filter(|over| over.parent == around.id && over.id != own && place.starts_with(&over.place)));
        (id, place, parent) = (around.id, &around.place, around.parent);
    }
    found
}

fn has_changed(file: &File) -> bool {
    let mut polled = [PollFd::new(file, PollFlags::PRI)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    !matches!(rustix::event::poll(&mut polled, Some(&now)), Ok(0))
}

/// Parses a row: `id parent major:minor root place options … - kind source superoptions`, with the kernel's escapes.
fn row(line: &[u8]) -> Option<MountRow> {
    let mut fields = line.split(|&byte| byte == b' ');
    let mut number = || String::from_utf8_lossy(fields.next()?).parse().ok();
    let (id, parent) = (number()?, number()?);
    let device = String::from_utf8_lossy(fields.next()?).into_owned();
    let (major, minor) = device.split_once(':')?;
    let is_whole = fields.next()? == b"/";
    let place = PathBuf::from(OsString::from_vec(unescape(fields.next()?)));
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let text = |field: &[u8]| String::from_utf8_lossy(&unescape(field)).into_owned();
    Some(MountRow {
        id,
        parent,
        device: (major.parse().ok()?, minor.parse().ok()?),
        is_whole,
        place,
        kind: text(rest.next()?),
        source: text(rest.next()?),
    })
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
            id: 139,
            parent: 81,
            device: (0, 72),
            is_whole: true,
            place: PathBuf::from(r"/tmp/a b\c"),
            kind: "fuse.zfs".to_string(),
            source: "tank/my data".to_string(),
        };
        assert_eq!(row(line), Some(expected));
        let part = br"140 81 0:72 /dir /tmp/d rw - fuse.zfs tank rw";
        assert_eq!(row(part).map(|row| (row.is_whole, row.place)), Some((false, PathBuf::from("/tmp/d"))));
        assert_eq!(row(b""), None);
    }

    /// If this fails, a mount that another one hides cannot be unmounted, or the wrong one is.
    #[test]
    fn what_hides_a_mount_is_known() {
        let at = |id, parent, place: &str| MountRow {
            id,
            parent,
            device: (0, id as u32),
            is_whole: true,
            place: PathBuf::from(place),
            kind: "fuse.zfs".to_string(),
            source: String::new(),
        };
        // 3 was mounted before 4, beneath it; 6 is over 5; 9 covers everything below /n.
        let rows = [
            at(1, 0, "/"),
            at(2, 1, "/t"),
            at(3, 2, "/t/r/a"),
            at(4, 2, "/t/r"),
            at(7, 4, "/t/r/b"),
            at(5, 1, "/s"),
            at(6, 5, "/s"),
            at(8, 1, "/n/x"),
            at(9, 1, "/n"),
        ];
        let over = |id: u64| -> Vec<u64> {
            let row = rows.iter().find(|row| row.id == id);
            row.map_or_else(Vec::new, |row| covers(&rows, row).iter().map(|row| row.id).collect())
        };
        assert_eq!([2, 3, 4, 7, 5, 6, 8, 9].map(over), [vec![], vec![4], vec![], vec![], vec![6], vec![], vec![9], vec![]]);
    }

    #[test]
    fn the_table_of_this_process_has_a_root() {
        let mut table = MountTable::default();
        let Some(rows) = table.rows() else { return };
        assert!(topmost(&rows, Path::new("/")).is_some(), "{rows:?}");
        assert_eq!(table.rows().map(|again| again.len()), Some(rows.len()));
    }
}
