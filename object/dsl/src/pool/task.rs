//! Sync tasks: changes of the MOS that open context asks for and the sync of a txg makes (OpenZFS: `dsl_synctask.c`).

use super::DslPool;
use crate::DslError;
use crate::error::fatal;
use dmu::{SyncError, Tx};
use exec::Mutex;
use ondisk::Txg;
use std::sync::Arc;

type Run = Box<dyn FnOnce(&Arc<DslPool>, &Tx) -> Result<(), SyncError> + Send>;

/// A task that waits for its txg.
pub(super) struct Queued {
    txg: Txg,
    run: Run,
}

impl DslPool {
    /// Runs `check` then `sync` in syncing context of one txg and waits until it is on disk. An error of `check` goes to
    /// the caller alone; an error of `sync` fails the txg (OpenZFS: `dsl_sync_task`).
    pub fn sync_task<C, R, F, G>(self: &Arc<Self>, check: F, sync: G) -> Result<R, DslError>
    where
        C: Send + 'static,
        R: Send + 'static,
        F: FnOnce(&Arc<DslPool>, &Tx) -> Result<C, DslError> + Send + 'static,
        G: FnOnce(&Arc<DslPool>, C, &Tx) -> Result<R, DslError> + Send + 'static,
    {
        if !self.meta.services.is_writeable() {
            return Err(DslError::ReadOnly);
        }
        let result = Arc::new(Mutex::new(None));
        let slot = result.clone();
        let run: Run = Box::new(move |pool, tx| {
            let outcome = match check(pool, tx) {
                Err(error) => Err(error),
                Ok(checked) => match sync(pool, checked, tx) {
                    Ok(value) => Ok(value),
                    Err(error) => {
                        *slot.lock() = Some(Err(error.clone()));
                        return Err(fatal(error));
                    }
                },
            };
            *slot.lock() = Some(outcome);
            Ok(())
        });
        let tx = self.txgs.assign(0)?;
        let txg = tx.txg();
        self.tasks.lock().push(Queued { txg, run });
        drop(tx);
        let synced = self.txgs.wait_synced(txg);
        let outcome = result.lock().take();
        match (outcome, synced) {
            (Some(Err(error)), _) => Err(error),
            (_, Err(error)) => Err(error.into()),
            (Some(Ok(value)), Ok(())) => Ok(value),
            (None, Ok(())) => Err(DslError::Sync(SyncError::Stopped)),
        }
    }

    /// Runs the tasks that were queued for `txg`; once per txg, after the datasets were synced.
    pub fn run_sync_tasks(self: &Arc<Self>, txg: Txg) -> Result<(), SyncError> {
        let due: Vec<Queued> = {
            let mut tasks = self.tasks.lock();
            let (due, later) = std::mem::take(&mut *tasks).into_iter().partition(|task| task.txg <= txg);
            *tasks = later;
            due
        };
        if due.is_empty() {
            return Ok(());
        }
        let tx = Tx::syncing(txg);
        let _config = self.config.write();
        for task in due {
            (task.run)(self, &tx)?;
        }
        Ok(())
    }
}
