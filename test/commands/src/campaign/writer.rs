//! A load that remembers what it was promised: files written and fsynced one after another, as long as it is let.
//!
//! What an fsync acknowledged must be there for good. What failed, or was not acknowledged, may be there or not.

use crate::world::Failure;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pause after a failure, before the next file.
const PAUSE: Duration = Duration::from_millis(20);
/// Number of files of one load at most, so that the pool does not fill up.
const FILES_MAX: u64 = 400;

/// Bytes of file `number`.
fn contents(seed: u64, number: u64) -> Vec<u8> {
    let mut word = seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let words = (1 << (6 + number % 8)) * 8;
    let next = |_| {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word.to_le_bytes()
    };
    (0..words).flat_map(next).collect()
}

/// Load: a thread that writes files and keeps in mind which were promised.
pub struct Writer {
    folder: PathBuf,
    seed: u64,
    stop: Arc<AtomicBool>,
    promised: Arc<Mutex<Vec<u64>>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Writes files below `folder` from now on.
    pub fn start(folder: PathBuf, seed: u64) -> Writer {
        let (stop, promised) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (told, kept, place) = (stop.clone(), promised.clone(), folder.clone());
        let work = move || {
            for number in 0..FILES_MAX {
                if told.load(Ordering::Acquire) {
                    return;
                }
                let written = File::create(place.join(number.to_string())).and_then(|mut file| {
                    file.write_all(&contents(seed, number))?;
                    file.sync_all()
                });
                match written.and_then(|()| File::open(&place)?.sync_all()) {
                    Ok(()) => kept.lock().unwrap_or_else(PoisonError::into_inner).push(number),
                    Err(_) => std::thread::sleep(PAUSE),
                }
            }
        };
        Writer { folder, seed, stop, promised, thread: Some(std::thread::spawn(work)) }
    }

    /// Number of files that were promised so far.
    pub fn promised(&self) -> usize {
        self.promised.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Ends the load; a write that does not come back by then is a failure.
    pub fn finish(&mut self, deadline: Duration) -> Result<(), Failure> {
        self.stop.store(true, Ordering::Release);
        let begun = Instant::now();
        let Some(thread) = self.thread.take() else { return Ok(()) };
        while !thread.is_finished() {
            if begun.elapsed() > deadline {
                return Err(format!("      a writer waits for more than {} s", deadline.as_secs()).into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        thread.join().map_err(|_| "      the writer failed".into())
    }

    /// Checks that everything that was promised is there, byte by byte.
    pub fn check(&self, when: &str) -> Result<(), Failure> {
        for number in self.promised.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let path = self.folder.join(number.to_string());
            check_file(&path, &contents(self.seed, *number), when)?;
        }
        Ok(())
    }
}

/// Checks that the file has these bytes.
pub fn check_file(path: &Path, wanted: &[u8], when: &str) -> Result<(), Failure> {
    match std::fs::read(path) {
        Ok(found) if found == wanted => Ok(()),
        Ok(found) => Err(format!("      {when}: {} has other bytes ({} of {})", path.display(), found.len(), wanted.len()).into()),
        Err(error) => Err(format!("      {when}: {}: {error}", path.display()).into()),
    }
}
