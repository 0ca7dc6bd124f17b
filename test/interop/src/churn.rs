//! Random changes of the files of one directory, beside a shadow of what they must hold.

use crate::Failure;
use crate::shadow::{KINDS, Shadow, content};
use crate::touch::{new_file, share, write};
use exec::SplitMix;
use std::sync::Arc;
use zpl::{Allocate, Node, Place, RenameMode, Zfs};

const FILES_MAX: usize = 40;
const FILE_BYTES_MAX: usize = 2 << 20;
const NAME_BYTES_MAX: usize = 200;

/// Changes of one directory.
pub struct Churn {
    random: SplitMix,
    /// Path of the directory below the dataset's root, with `/` in front; empty for the root.
    prefix: String,
    /// Contents that its files must hold.
    pub shadow: Shadow,
    steps: u64,
}

impl Churn {
    /// Begins with an empty directory; everything follows from the seed.
    pub fn new(seed: u64, prefix: &str) -> Churn {
        Churn { random: SplitMix::new(seed), prefix: prefix.to_string(), shadow: Shadow::default(), steps: 0 }
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.prefix)
    }

    fn pick(&mut self) -> Option<String> {
        let count = self.shadow.files.len();
        (count > 0).then(|| self.random.below(count)).and_then(|index| self.shadow.files.keys().nth(index).cloned())
    }

    /// Makes one change.
    pub fn step(&mut self, zfs: &Arc<Zfs>, root: &Node) -> Result<(), Failure> {
        self.steps += 1;
        let choice = self.random.below(10);
        let picked = self.pick();
        let (Some(path), true) = (picked, choice > 1) else { return self.add(zfs, root) };
        let name = path[self.prefix.len() + 1..].to_string();
        let mut bytes = self.shadow.files.remove(&path).unwrap_or_default();
        if choice == 2 || self.shadow.files.len() >= FILES_MAX {
            return Ok(zfs.unlink(root, name.as_bytes())?);
        }
        let node = zfs.lookup(root, name.as_bytes())?;
        let at = self.random.below(bytes.len().clamp(1, FILE_BYTES_MAX));
        let length = self.random.below(200_000);
        match choice {
            3 => {
                let size = if self.random.chance(2) { at } else { bytes.len() + length };
                zfs.truncate(&node, size as u64)?;
                bytes.resize(size, 0);
            }
            4 if length > 0 => {
                zfs.allocate(&node, at as u64, length as u64, Allocate::Punch)?;
                let end = (at + length).min(bytes.len());
                bytes.get_mut(at..end).unwrap_or_default().fill(0);
            }
            5 => {
                let to = format!("renamed-{}-{name}", self.steps);
                let to = &to[..to.len().min(NAME_BYTES_MAX)];
                let (from, place) = (Place { directory: root, name: name.as_bytes() }, Place { directory: root, name: to.as_bytes() });
                zfs.rename(from, place, RenameMode::default())?;
                self.shadow.files.insert(self.path(to), bytes);
                return Ok(());
            }
            7 => check(zfs, &node, &bytes, &path)?,
            9 => {
                let copy = format!("copy-{}-{name}", self.steps);
                let copy = &copy[..copy.len().min(NAME_BYTES_MAX)];
                share(zfs, root, (&node, copy), &bytes)?;
                self.shadow.files.insert(self.path(copy), bytes.clone());
            }
            _ => self.put(zfs, &node, &mut bytes, if choice == 6 { at + 300_000 } else { at }, length)?,
        }
        self.shadow.files.insert(path, bytes);
        Ok(())
    }

    fn put(&mut self, zfs: &Zfs, node: &Node, bytes: &mut Vec<u8>, at: usize, length: usize) -> Result<(), Failure> {
        let kind = KINDS[self.random.below(KINDS.len())];
        let data = content(length, self.random.next_u64(), kind);
        write(zfs, node, at as u64, &data)?;
        if length > 0 {
            bytes.resize(bytes.len().max(at + length), 0);
            bytes[at..at + length].copy_from_slice(&data);
        }
        Ok(())
    }

    fn add(&mut self, zfs: &Arc<Zfs>, root: &Node) -> Result<(), Failure> {
        let kind = KINDS[self.random.below(KINDS.len())];
        let limit = [600, 20_000, 300_000, 1_000_000][self.random.below(4)];
        let bytes = content(self.random.below(limit), self.random.next_u64(), kind);
        let name = format!("file-{:x}", self.random.next_u64());
        drop(new_file(zfs, root, name.as_bytes(), &bytes)?);
        self.shadow.files.insert(self.path(&name), bytes);
        Ok(())
    }
}

/// Checks that the file reads as it must, while its blocks may be on their way to disk.
fn check(zfs: &Zfs, node: &Node, bytes: &[u8], path: &str) -> Result<(), Failure> {
    let found = zfs.read(node, 0, FILE_BYTES_MAX as u64 * 2)?.to_vec();
    if found == bytes[..bytes.len().min(FILE_BYTES_MAX * 2)] { Ok(()) } else { Err(format!("{path} reads as something else").into()) }
}
