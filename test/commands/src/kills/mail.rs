//! Mail, as a server of it keeps it: each message is written to a file, made durable, renamed to where it is read, and the directory made durable.

use super::load::{Load, Worker};
use crate::campaign::writer::check_file;
use crate::world::Failure;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Number of servers that deliver to the same folders.
const SERVERS: u64 = 2;
/// Number of folders of messages.
const BOXES: u64 = 3;

/// Servers of mail.
pub struct Mail {
    folder: PathBuf,
    seed: u64,
    workers: Vec<Worker<u64>>,
}

fn message(seed: u64, number: u64) -> Vec<u8> {
    let length = (seed ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    format!("Message {number} of {seed}\n").into_bytes().into_iter().cycle().take(40 + length as usize % 12_000).collect()
}

fn name(number: u64) -> String {
    format!("box{}/{number:012}", number % BOXES)
}

fn deliver(folder: &Path, number: u64, bytes: &[u8]) -> std::io::Result<()> {
    let (written, wanted) = (folder.join(format!("tmp/{number}")), folder.join(name(number)));
    let mut file = OpenOptions::new().write(true).create_new(true).open(&written)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&written, &wanted)?;
    File::open(wanted.parent().unwrap_or(folder))?.sync_all()
}

impl Mail {
    /// Starts servers that deliver below `folder`.
    pub fn start(folder: PathBuf, seed: u64) -> Result<Mail, Failure> {
        std::fs::create_dir(folder.join("tmp"))?;
        (0..BOXES).try_for_each(|number| std::fs::create_dir(folder.join(format!("box{number}"))))?;
        File::open(&folder)?.sync_all()?;
        let worker = |server: u64| {
            let place = folder.clone();
            let mut number = server * 1_000_000_000;
            Worker::start(move || {
                number += 1;
                deliver(&place, number, &message(seed, number)).is_ok().then_some(number)
            })
        };
        let workers = (0..SERVERS).map(worker).collect();
        Ok(Mail { folder, seed, workers })
    }
}

impl Load for Mail {
    fn name(&self) -> &'static str {
        "messages"
    }
    fn acknowledged(&self) -> Vec<usize> {
        self.workers.iter().map(Worker::count).collect()
    }
    fn failures(&self) -> usize {
        self.workers.iter().map(Worker::failures).sum()
    }
    fn finish(&mut self) -> Result<(), Failure> {
        self.workers.iter_mut().try_for_each(Worker::finish)
    }
    /// Every message that was acknowledged is there, and every one that is there is whole.
    fn check(&mut self, when: &str) -> Result<(), Failure> {
        for number in self.workers.iter().flat_map(Worker::list) {
            check_file(&self.folder.join(name(number)), &message(self.seed, number), when)?;
        }
        for number in 0..BOXES {
            for entry in std::fs::read_dir(self.folder.join(format!("box{number}")))? {
                let path = entry?.path();
                let number = path.file_name().and_then(|name| name.to_str()?.parse().ok()).unwrap_or_default();
                check_file(&path, &message(self.seed, number), when)?;
            }
        }
        Ok(())
    }
}
