//! What the files of our pools must hold, kept beside the engine: the third opinion when two manifests agree.

use crate::Failure;
use crate::manifest::{self, Lines, digest};
use exec::SplitMix;
use std::collections::BTreeMap;

/// Kind of contents, by how compressible they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Noise, not compressible at all.
    Random,
    /// Noise of which half is zeros.
    Half,
    /// Letters out of a sentence, at random.
    Text,
    /// Zeros only.
    Zeros,
    /// Letter, repeated.
    Letter,
}

/// Kinds by number, for programs.
pub const KINDS: [Kind; 5] = [Kind::Random, Kind::Half, Kind::Text, Kind::Zeros, Kind::Letter];

/// Bytes that only `seed` decides.
pub fn content(size: usize, seed: u64, kind: Kind) -> Vec<u8> {
    let mut bytes = SplitMix::new(seed).bytes(size);
    match kind {
        Kind::Random => {}
        Kind::Half => bytes.chunks_mut(512).for_each(|part| part.iter_mut().skip(256).for_each(|byte| *byte = 0)),
        Kind::Text => bytes.iter_mut().for_each(|byte| *byte = b"the quick brown fox jumps over it"[usize::from(*byte % 33)]),
        Kind::Zeros => bytes.fill(0),
        Kind::Letter => bytes.fill(b'A'),
    }
    bytes
}

/// Files of one dataset by path.
#[derive(Clone, Default)]
pub struct Shadow {
    /// Contents by path; paths start with `/`.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// Size and digest of files by dataset (or snapshot) and path.
#[derive(Default)]
pub struct Expected {
    files: BTreeMap<String, (u64, String)>,
}

impl Expected {
    /// Remembers a dataset's or snapshot's files.
    pub fn add(&mut self, dataset: &str, shadow: &Shadow) {
        for (path, bytes) in &shadow.files {
            self.add_digest(format!("{dataset}{path}"), bytes.len() as u64, digest(bytes));
        }
    }
    /// Remembers one file.
    pub fn add_digest(&mut self, path: String, size: u64, sha: String) {
        self.files.insert(path, (size, sha));
    }
    /// Forgets what a destroyed dataset or snapshot had.
    pub fn forget(&mut self, dataset: &str) {
        let start = format!("{dataset}/");
        self.files.retain(|path, _| !path.starts_with(&start));
    }
    /// Notes that a snapshot or clone has what a dataset or snapshot has now.
    pub fn copy(&mut self, from: &str, to: &str) {
        let start = format!("{from}/");
        let copied = self.files.iter().filter_map(|(path, file)| Some((format!("{to}/{}", path.strip_prefix(&start)?), file.clone())));
        let copies: Vec<_> = copied.collect();
        self.files.extend(copies);
    }
    /// Forgets one file.
    pub fn forget_file(&mut self, path: &str) {
        self.files.remove(path);
    }
    /// Notes that a dataset got another name.
    pub fn rename(&mut self, from: &str, to: &str) {
        let files = std::mem::take(&mut self.files);
        let renamed = |path: String| match path.strip_prefix(from).filter(|rest| rest.starts_with('/')) {
            Some(rest) => format!("{to}{rest}"),
            None => path,
        };
        self.files = files.into_iter().map(|(path, file)| (renamed(path), file)).collect();
    }
    /// Checks that the manifest has every file as expected.
    pub fn check(&self, lines: &Lines) -> Result<(), Failure> {
        let found: BTreeMap<&str, (u64, &str)> =
            lines.iter().filter_map(|line| manifest::file_line(line)).map(|file| (file.path, (file.size, file.sha))).collect();
        for (path, (size, sha)) in &self.files {
            match found.get(path.as_str()) {
                None => return Err(format!("{path} is missing").into()),
                Some(file) if file.0 != *size => return Err(format!("{path} has {} bytes, not {size}", file.0).into()),
                Some(file) if file.1 != sha => return Err(format!("{path} has other contents than were written").into()),
                Some(_) => {}
            }
        }
        Ok(())
    }
    /// Number of files that are expected.
    pub fn count(&self) -> usize {
        self.files.len()
    }
}
