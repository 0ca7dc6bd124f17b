//! Sync tasks: changes of the MOS that open context asks for and the sync of a txg makes (OpenZFS: `dsl_synctask.c`).

use crate::DslError;
use crate::error::fatal;
use dmu::{SyncError, Tx, TxgManager};
use exec::Mutex;
use ondisk::Txg;
use std::sync::Arc;

type Run<P> = Box<dyn FnOnce(&Arc<P>, &Tx) -> Result<(), SyncError> + Send>;

/// A task that waits for its txg.
struct Queued<P> {
    txg: Txg,
    run: Run<P>,
}

/// Tasks that wait, of a pool of type `P`.
pub(super) struct Tasks<P> {
    queued: Mutex<Vec<Queued<P>>>,
}

impl<P> Default for Tasks<P> {
    fn default() -> Tasks<P> {
        Tasks { queued: Mutex::default() }
    }
}

impl<P: 'static> Tasks<P> {
    /// Queues `check` and `sync` for the open txg and waits until that is on disk.
    pub(super) fn run<C, R, F, G>(&self, txgs: &Arc<TxgManager>, check: F, sync: G) -> Result<R, DslError>
    where
        C: Send + 'static,
        R: Send + 'static,
        F: FnOnce(&Arc<P>, &Tx) -> Result<C, DslError> + Send + 'static,
        G: FnOnce(&Arc<P>, C, &Tx) -> Result<R, DslError> + Send + 'static,
    {
        let result = Arc::new(Mutex::new(None));
        let slot = result.clone();
        let run: Run<P> = Box::new(move |pool, tx| {
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
        let tx = txgs.assign(0)?;
        let txg = tx.txg();
        self.queued.lock().push(Queued { txg, run });
        drop(tx);
        let synced = txgs.wait_synced(txg);
        let outcome = result.lock().take();
        match (outcome, synced) {
            (Some(Err(error)), _) => Err(error),
            (_, Err(error)) => Err(error.into()),
            (Some(Ok(value)), Ok(())) => Ok(value),
            (None, Ok(())) => Err(DslError::Sync(SyncError::Stopped)),
        }
    }

    /// Takes out the tasks that were queued for `txg` or before it.
    pub(super) fn take_due(&self, txg: Txg) -> Vec<Run<P>> {
        let mut queued = self.queued.lock();
        let (due, later) = std::mem::take(&mut *queued).into_iter().partition(|task: &Queued<P>| task.txg <= txg);
        *queued = later;
        due.into_iter().map(|task| task.run).collect()
    }
}
