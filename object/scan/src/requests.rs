//! What users ask of a scan: begin, pause, stop, wait; and who does the work.
//!
//! A request is checked, handed to the sync, and checked again there; the caller waits for the txg. Threads are only begun and joined
//! here.

use crate::ScanError;
use crate::errlog::ErrorLog;
use crate::errorscrub::ErrorScrubRequest;
use crate::record;
use crate::scan::{Request, Scan, Shared};
use crate::work::Worker;
use ondisk::Txg;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zap::Zap;

impl Scan {
    /// Begins a resilver of everything that leaves in use lack, in place of the scan that runs; waits until it began. Nothing
    /// happens when nothing is lacking.
    pub fn resilver(self: &Arc<Self>) -> Result<(), ScanError> {
        self.shared.lock().resilver_wanted = true;
        // A loop that reads for another scan ends first: the sync after that begins.
        while self.shared.lock().resilver_wanted {
            self.txgs.wait_synced(self.txgs.open_txg())?;
        }
        self.spawn();
        Ok(())
    }

    /// True when a resilver that began with what the leaves lack now goes on: none has to be begun for them.
    pub fn is_resilvering(&self, range: (Txg, Txg)) -> bool {
        let shared = self.shared.lock();
        shared.is_resilvering() && shared.phys.scn_min_txg <= range.0.0 && range.1.0 <= shared.phys.scn_max_txg
    }

    /// Begins a scrub of what was born after `after`, or goes on with a paused one; waits for the txg. Errors:
    /// [`ScanError::Running`], [`ScanError::Resilvering`], [`ScanError::ErrorScrubbing`], [`ScanError::ErrorScrubPaused`].
    pub fn start(self: &Arc<Self>, after: Txg) -> Result<(), ScanError> {
        self.ask(|shared| match shared.in_the_way() {
            None => Ok(Request::Start(after)),
            Some(ScanError::PausedToCancel) => Ok(Request::Resume),
            Some(error) => Err(error),
        })?;
        self.spawn();
        Ok(())
    }

    /// The txg up to which the resilver that goes on looks at blocks; None when none does.
    pub fn resilvers_through(&self) -> Option<Txg> {
        let shared = self.shared.lock();
        shared.is_resilvering().then_some(Txg(shared.phys.scn_max_txg))
    }

    /// True when a resilver goes on that has come too far to be begun again for a device that comes now (OpenZFS: `dsl_scan_sync`).
    pub fn defers_resilvers(&self) -> bool {
        let far = |percent: u64| {
            let status = self.status().filter(|_| self.resilvers_through().is_some());
            status.is_some_and(|status| status.issued >= (u128::from(status.to_issue()) * u128::from(percent) / 100) as u64)
        };
        self.tunables().defer_percent.is_some_and(far)
    }

    /// A resilver is about to begin.
    pub fn is_resilver_wanted(&self) -> bool {
        self.shared.lock().resilver_wanted
    }

    /// Waits until the resilver that is wanted began, for the loop that just ended; false when there is none for it. A sync may have begun it as
    /// soon as that loop had ended.
    pub(crate) fn begin_waiting(&self) -> bool {
        let waits = |shared: &Shared| shared.resilver_wanted && !shared.halted && !shared.running;
        let is_there = |shared: &Shared| waits(shared) || shared.unclaimed;
        if !is_there(&self.shared.lock()) {
            return false;
        }
        while waits(&self.shared.lock()) {
            if self.txgs.wait_synced(self.txgs.open_txg()).is_err() {
                return false;
            }
        }
        self.claim()
    }

    /// The txg up to which the last complete scrub verified everything (OpenZFS: `spa_get_last_scrubbed_txg`).
    pub fn last_scrubbed(&self) -> Result<Txg, ScanError> {
        Ok(Txg(Zap::hold(&self.mos, record::DIRECTORY)?.try_lookup_u64(record::LAST_SCRUBBED)?.unwrap_or(0)))
    }

    /// Begins an error scrub, or goes on with a paused one; waits for the txg. Nothing happens when the log is empty. Errors: those of
    /// [`Scan::start`], [`ScanError::PausedToCancel`], and [`ScanError::NoHeadErrlog`] for a pool without that feature.
    pub fn start_errors(self: &Arc<Self>) -> Result<(), ScanError> {
        if !self.host.has_head_errlog() {
            return Err(ScanError::NoHeadErrlog);
        }
        if self.shared.lock().in_the_way().is_none() && ErrorLog::new(&self.mos).last_count()? == 0 {
            return Ok(());
        }
        self.ask(|shared| match shared.in_the_way() {
            None => Ok(Request::ErrorScrub(ErrorScrubRequest::Start)),
            Some(ScanError::ErrorScrubPaused) => Ok(Request::ErrorScrub(ErrorScrubRequest::Resume)),
            Some(error) => Err(error),
        })?;
        self.spawn();
        Ok(())
    }

    /// Pauses the scrub or error scrub that runs; waits for the txg. Errors: [`ScanError::NotRunning`], [`ScanError::Paused`],
    /// [`ScanError::ErrorScrubPaused`].
    pub fn pause(&self) -> Result<(), ScanError> {
        self.ask(|shared| match shared.in_the_way() {
            Some(ScanError::Running) if shared.is_scanning() => Ok(Request::Pause),
            Some(ScanError::ErrorScrubbing) => Ok(Request::ErrorScrub(ErrorScrubRequest::Pause)),
            Some(ScanError::PausedToCancel) => Err(ScanError::Paused),
            Some(error @ ScanError::ErrorScrubPaused) => Err(error),
            _ => Err(ScanError::NotRunning),
        })
    }

    /// Ends the scrub or error scrub that runs or is paused; waits for the txg. Errors: [`ScanError::NotRunning`],
    /// [`ScanError::Resilvering`].
    pub fn stop(&self) -> Result<(), ScanError> {
        self.ask(|shared| match shared.in_the_way() {
            Some(ScanError::Resilvering) => Err(ScanError::Resilvering),
            Some(ScanError::ErrorScrubbing | ScanError::ErrorScrubPaused) => Ok(Request::ErrorScrub(ErrorScrubRequest::Stop)),
            Some(_) if shared.is_scanning() => Ok(Request::Stop),
            _ => Err(ScanError::NotRunning),
        })
    }

    fn ask(&self, choose: impl Fn(&Shared) -> Result<Request, ScanError>) -> Result<(), ScanError> {
        choose(&self.shared.lock())?;
        // A loop that was told to stop still knows what the next one begins with.
        self.changed.wait_until(self.exec(), &|| !self.shared.lock().running || !self.is_stopping());
        {
            let mut shared = self.shared.lock();
            let request = choose(&shared)?;
            shared.request = Some(request);
        }
        Ok(self.txgs.wait_synced(self.txgs.open_txg())?)
    }

    /// Has the loop run on a thread of its own when there is work for it; under an inline executor [`Scan::run`] must be called.
    pub fn spawn(self: &Arc<Self>) {
        let scan = self.clone();
        self.crew.start_if(self.exec(), "z-scan", || self.claim(), Box::new(move || scan.work()));
    }

    /// Ends the loop, which can go on after the next import. Nothing is started any more.
    pub fn halt(&self) {
        self.shared.lock().halted = true;
        self.stopping.store(true, Ordering::Release);
        self.changed.notify_all();
        self.crew.join();
    }

    /// Waits until no scrub makes progress any more: it ended, was paused, or the pool is being closed.
    pub fn wait(&self) {
        self.changed.wait_until(self.exec(), &|| {
            let shared = self.shared.lock();
            let scans = shared.is_scanning() && !shared.is_paused();
            !(scans || shared.resilver_wanted || shared.errorscrub.is_active()) || shared.halted
        });
    }

    /// Does the work of the scan on this thread until there is none.
    pub fn run(self: &Arc<Self>) {
        if self.claim() || self.begin_waiting() {
            self.work();
        }
    }

    fn work(self: &Arc<Self>) {
        let worker = Worker { scan: self };
        worker.work();
        // A resilver that waited for the scan that ended is this loop's too.
        while self.begin_waiting() {
            worker.work();
        }
        self.changed.notify_all();
    }

    /// True when there is work and nobody does it; the caller does now.
    fn claim(&self) -> bool {
        let mut shared = self.shared.lock();
        if shared.running || !shared.has_work() {
            return false;
        }
        (shared.running, shared.unclaimed) = (true, false);
        self.stopping.store(false, Ordering::Release);
        true
    }

    /// Does a part of the scan's work on this thread: collects and reads about `blocks` blocks of data.
    pub fn run_part(self: &Arc<Self>, blocks: usize) {
        self.set_queue_max(blocks.max(1));
        self.one_batch.store(true, Ordering::Relaxed);
        self.run();
        self.one_batch.store(false, Ordering::Relaxed);
        self.set_queue_max(0);
    }

    /// Does a part of the scan's work on this thread: ends after `blocks` blocks of data were read, whatever was found by then.
    pub fn run_reads(self: &Arc<Self>, blocks: usize) {
        self.reads_left.store(blocks.max(1), Ordering::Relaxed);
        self.run();
        self.reads_left.store(usize::MAX, Ordering::Relaxed);
    }

    /// Bounds the blocks that are found before they are read; 0 means by memory.
    pub fn set_queue_max(&self, blocks: usize) {
        self.queue_max.store(blocks, Ordering::Relaxed);
    }
}
