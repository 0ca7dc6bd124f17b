//! A volume as a disk of SCSI: blocks of 512 bytes, physical ones as large as the volume's. Requests are carried out by the disk's own threads, but for small
//! reads of what is in memory.

use super::{reads, reservations};
use crate::volume::{Loan, stored};
use abd::Abd;
use exec::{Exec, Hands, Mutex};
use iscsi::{Disk, Done, Extent, Geometry, Identity, Kept, LogicalUnit, ReservationStore, Run, UnitError};
use std::sync::Arc;
use zvol::{Access, Volume, VolumeError};

/// Bytes of a logical block: what every initiator takes.
const BLOCK_BYTES: u32 = 512;
/// Runs of one answer about what is stored, at most; an initiator asks again from the end of the last one.
const RUNS_MAX: usize = 512;

/// Disk of a volume that was lent; once that was taken away, every request fails.
pub(super) struct VolumeUnit {
    loan: Loan,
    identity: Identity,
    hands: Arc<Hands>,
    /// Shape that the volume had when it was last looked at.
    last: Mutex<Geometry>,
}

/// Error of a request that changes something.
fn of_change(error: VolumeError) -> UnitError {
    match error {
        VolumeError::OutOfRange => UnitError::OutOfRange,
        VolumeError::ReadOnly => UnitError::ReadOnly,
        VolumeError::NoSpace | VolumeError::OverQuota => UnitError::NoSpace,
        VolumeError::Io | VolumeError::Corrupt => UnitError::Unwritable,
        VolumeError::Stopped => UnitError::Gone,
    }
}

/// Error of a request that reads.
fn of_read(error: VolumeError) -> UnitError {
    match of_change(error) {
        UnitError::Unwritable => UnitError::Unreadable { at: None },
        other => other,
    }
}

fn shape(volume: &Volume) -> Geometry {
    let physical = (volume.block_size() / u64::from(BLOCK_BYTES)).max(1);
    Geometry {
        blocks: volume.size() / u64::from(BLOCK_BYTES),
        block_bytes: BLOCK_BYTES,
        physical_exponent: physical.ilog2() as u8,
        is_thin: true,
        is_read_only: volume.is_read_only(),
    }
}

/// Parts of an extent that are stored, and that are not.
fn runs(volume: &Volume, extent: Extent) -> Result<Vec<Run>, UnitError> {
    let range = extent.at..extent.at.saturating_add(extent.bytes);
    let parts = stored(volume, &range, RUNS_MAX).map_err(of_read)?;
    Ok(parts.into_iter().map(|(bytes, is_mapped)| Run { bytes, is_mapped }).collect())
}

impl VolumeUnit {
    /// Makes the disk of a volume; None when that was taken away already.
    pub(super) fn new(exec: &Exec, loan: Loan, identity: Identity) -> Option<VolumeUnit> {
        let volume = loan.volume()?;
        let last = Mutex::new(shape(&volume));
        Some(VolumeUnit { loan, identity, hands: Hands::new(exec, "z-iscsi-disk", super::THREADS_MAX), last })
    }

    /// Has `disk`, through which initiators see it, follow reservations that `zfs set` or `zfs inherit` changed where they are kept. True when it had
    /// others.
    pub(super) async fn follow_kept(&self, disk: &Disk) -> bool {
        let Some(volume) = self.loan.volume() else { return false };
        disk.follow(|| reservations::now(volume.dataset()).map_err(|_| UnitError::Gone)).await
    }

    /// True until the volume is taken away.
    pub(super) fn is_there(&self) -> bool {
        self.loan.volume().is_some()
    }

    /// Has something done with the volume.
    fn give<T: Send + 'static>(&self, done: Done<T>, work: impl FnOnce(Arc<Volume>, Done<T>) + Send + 'static) {
        match self.loan.volume() {
            Some(volume) => self.hands.give(Box::new(move || work(volume, done))),
            None => done(Err(UnitError::Gone)),
        }
    }
}

impl LogicalUnit for VolumeUnit {
    fn identity(&self) -> Identity {
        self.identity.clone()
    }

    fn geometry(&self) -> Geometry {
        let mut last = self.last.lock();
        if let Some(volume) = self.loan.volume() {
            *last = shape(&volume);
        }
        *last
    }

    /// Reads; what is in memory is answered before this returns, so that a request for it changes no thread.
    fn read(&self, extent: Extent, done: Done<Abd>) {
        let Some(volume) = self.loan.volume() else { return done(Err(UnitError::Gone)) };
        let range = extent.at..extent.at.saturating_add(extent.bytes);
        match reads::at_hand(&volume, &range) {
            Some(data) => done(Ok(data)),
            None => self.hands.give(Box::new(move || reads::whole(&volume, &range, move |result| done(result.map_err(of_read))))),
        }
    }

    fn write(&self, at: u64, data: Abd, is_durable: bool, done: Done<()>) {
        self.give(done, move |volume, done| {
            let then = move |result: Result<(), VolumeError>| done(result.map_err(of_change));
            volume.write_then(at, data, Access::default(), is_durable, Box::new(then));
        });
    }

    fn unmap(&self, extents: Vec<Extent>, done: Done<()>) {
        self.give(done, move |volume, done| {
            let zeroed = extents.iter().try_for_each(|extent| volume.write_zeroes(extent.at, extent.bytes));
            done(zeroed.map_err(of_change));
        });
    }

    /// Zeros are holes here, also for who wants their space kept: with compression they are that however they are written.
    fn write_zeroes(&self, extent: Extent, _may_unmap: bool, is_durable: bool, done: Done<()>) {
        self.give(done, move |volume, done| {
            let zeroed = volume.write_zeroes(extent.at, extent.bytes);
            let zeroed = zeroed.and_then(|()| if is_durable { volume.flush() } else { Ok(()) });
            done(zeroed.map_err(of_change));
        });
    }

    fn flush(&self, done: Done<()>) {
        self.give(done, |volume, done| done(volume.flush().map_err(of_change)));
    }

    fn status(&self, extent: Extent, done: Done<Vec<Run>>) {
        self.give(done, move |volume, done| done(runs(&volume, extent)));
    }
}

impl ReservationStore for VolumeUnit {
    fn save(&self, kept: Option<Kept>, done: Done<()>) {
        self.give(done, move |volume, done| done(reservations::store(volume.dataset(), kept.as_ref())));
    }
}
