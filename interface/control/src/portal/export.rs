//! A volume as an export of NBD: bytes of any alignment. Requests are carried out by the connection's own threads, but for small reads of what is in memory.

use super::reads;
use crate::volume::{Loan, stored};
use abd::Abd;
use exec::{Exec, Hands, Mutex};
use nbd::{Done, Export, ExportError, Piece, Run, Shape};
use std::ops::Range;
use std::sync::Arc;
use zvol::{Access, Volume, VolumeError};

/// Reads of fewer bytes are not looked through for holes: looking costs more than the bytes.
const HOLES_FROM: u64 = 128 << 10;
/// Pieces of one read, at most; what is behind them is read as it is.
const PIECES_MAX: usize = 64;
/// Bytes of zeros that are written at a time, where they are to take space.
const ZEROS_BYTES: u64 = 1 << 20;
/// Bytes that are read at once because a client will want them.
const CACHE_BYTES_MAX: u64 = 32 << 20;

/// Export of a volume that was lent; once that was taken away, every request fails.
pub(super) struct VolumeExport {
    /// Loan of the volume; none only at the end.
    loan: Option<Loan>,
    hands: Arc<Hands>,
    /// Shape that the volume had when it was last looked at.
    last: Mutex<Shape>,
}

fn of(error: VolumeError) -> ExportError {
    match error {
        VolumeError::OutOfRange => ExportError::OutOfRange,
        VolumeError::ReadOnly => ExportError::ReadOnly,
        VolumeError::NoSpace | VolumeError::OverQuota => ExportError::NoSpace,
        VolumeError::Io | VolumeError::Corrupt => ExportError::Io,
        VolumeError::Stopped => ExportError::Gone,
    }
}

fn shape(volume: &Volume) -> Shape {
    Shape { bytes: volume.size(), block_bytes: volume.block_size() as u32, is_read_only: volume.is_read_only() }
}

/// Length of a range in bytes.
fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}

/// Reads a range in one piece, without waiting for what goes past the cache.
fn read_whole(volume: &Arc<Volume>, range: &Range<u64>, done: Done<Vec<Piece>>) {
    reads::whole(volume, range, move |result| done(result.map(|data| vec![Piece::Data(data)]).map_err(of)));
}

/// Reads the parts of a range that are stored, one after the other.
fn read_parts(volume: &Arc<Volume>, range: &Range<u64>, parts: &[(u64, bool)]) -> Vec<Piece> {
    let mut at = range.start;
    let mut pieces = Vec::new();
    let told: u64 = parts.iter().map(|part| part.0).sum();
    for &(bytes, is_stored) in parts.iter().chain(&[(length(range) - told, true)]).filter(|part| part.0 > 0) {
        pieces.push(if is_stored { piece(volume, at, bytes) } else { Piece::Hole(bytes) });
        at += bytes;
    }
    pieces
}

fn piece(volume: &Arc<Volume>, at: u64, bytes: u64) -> Piece {
    match volume.read(at, bytes, Access::default()) {
        Ok(data) if data.len() as u64 == bytes => Piece::Data(data),
        Ok(_) => Piece::Lost(bytes, ExportError::OutOfRange),
        Err(error) => Piece::Lost(bytes, of(error)),
    }
}

/// Writes zeros that take space; with compression they are holes however they are written.
fn write_zeros(volume: &Volume, range: &Range<u64>) -> Result<(), VolumeError> {
    let zeros = Abd::zeroed(length(range).min(ZEROS_BYTES) as usize);
    let mut at = range.start;
    while at < range.end {
        let bytes = (range.end - at).min(ZEROS_BYTES);
        volume.write(at, zeros.slice(0..bytes as usize), Access::default(), false)?;
        at += bytes;
    }
    Ok(())
}

/// Ends a change, with a flush where it is to be durable.
fn ended(volume: &Volume, changed: Result<(), VolumeError>, is_durable: bool) -> Result<(), ExportError> {
    changed.and_then(|()| if is_durable { volume.flush() } else { Ok(()) }).map_err(of)
}

/// Export of a volume that was lent; None when that was taken away already.
#[cfg(feature = "testing")]
pub(crate) fn export_of(exec: &Exec, loan: Loan) -> Option<Arc<dyn Export>> {
    VolumeExport::new(exec, loan).map(|export| Arc::new(export) as Arc<dyn Export>)
}

impl VolumeExport {
    /// Makes the export of a volume; None when that was taken away already.
    pub(super) fn new(exec: &Exec, loan: Loan) -> Option<VolumeExport> {
        let volume = loan.volume()?;
        let last = Mutex::new(shape(&volume));
        Some(VolumeExport { loan: Some(loan), hands: Hands::new(exec, "z-nbd-disk", super::THREADS_MAX), last })
    }

    fn volume(&self) -> Option<Arc<Volume>> {
        self.loan.as_ref()?.volume()
    }

    /// Has something done with the volume.
    fn give<T: Send + 'static>(&self, done: Done<T>, work: impl FnOnce(Arc<Volume>, Done<T>) + Send + 'static) {
        match self.volume() {
            Some(volume) => self.hands.give(Box::new(move || work(volume, done))),
            None => done(Err(ExportError::Gone)),
        }
    }
}

impl Drop for VolumeExport {
    /// Gives the volume back where that may wait: somebody may just be opening another one.
    fn drop(&mut self) {
        if let Some(loan) = self.loan.take() {
            self.hands.give(Box::new(move || drop(loan)));
        }
    }
}

impl Export for VolumeExport {
    fn shape(&self) -> Shape {
        let mut last = self.last.lock();
        if let Some(volume) = self.volume() {
            *last = shape(&volume);
        }
        *last
    }

    /// Reads; what is in memory is answered before this returns, so that a request for it changes no thread.
    fn read(&self, range: Range<u64>, is_whole: bool, done: Done<Vec<Piece>>) {
        if let Some(data) = self.volume().and_then(|volume| reads::at_hand(&volume, &range)) {
            return done(Ok(vec![Piece::Data(data)]));
        }
        self.give(done, move |volume, done| {
            if is_whole || length(&range) < HOLES_FROM {
                return read_whole(&volume, &range, done);
            }
            match stored(&volume, &range, PIECES_MAX) {
                Ok(parts) if parts.iter().all(|part| part.1) => read_whole(&volume, &range, done),
                Ok(parts) => done(Ok(read_parts(&volume, &range, &parts))),
                Err(error) => done(Err(of(error))),
            }
        });
    }

    fn write(&self, at: u64, data: Abd, is_durable: bool, done: Done<()>) {
        self.give(done, move |volume, done| {
            let then = move |result: Result<(), VolumeError>| done(result.map_err(of));
            volume.write_then(at, data, Access::default(), is_durable, Box::new(then));
        });
    }

    /// Lets go of whole blocks only: a client that trims expects nothing of the rest.
    fn trim(&self, range: Range<u64>, is_durable: bool, done: Done<()>) {
        self.give(done, move |volume, done| {
            let discarded = volume.discard(range.start, length(&range));
            done(ended(&volume, discarded, is_durable));
        });
    }

    fn write_zeroes(&self, range: Range<u64>, keeps_space: bool, is_durable: bool, done: Done<()>) {
        self.give(done, move |volume, done| {
            let zeroed = match keeps_space {
                true => write_zeros(&volume, &range),
                false => volume.write_zeroes(range.start, length(&range)),
            };
            done(ended(&volume, zeroed, is_durable));
        });
    }

    fn flush(&self, done: Done<()>) {
        self.give(done, |volume, done| done(ended(&volume, Ok(()), true)));
    }

    fn cache(&self, range: Range<u64>, done: Done<()>) {
        self.give(done, move |volume, done| {
            let read = volume.read(range.start, length(&range).min(CACHE_BYTES_MAX), Access::default());
            done(read.map(drop).map_err(of));
        });
    }

    fn status(&self, range: Range<u64>, runs_max: usize, done: Done<Vec<Run>>) {
        self.give(done, move |volume, done| {
            let parts = stored(&volume, &range, runs_max).map_err(of);
            done(parts.map(|parts| parts.into_iter().map(|(bytes, is_stored)| Run { bytes, is_stored }).collect()));
        });
    }
}
