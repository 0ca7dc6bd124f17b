//! Replay of intent logs, at import or once their keys are there, and telling of what it could not do.

use super::Spa;
use crate::PoolError;
use dsl::{DslError, PendingLogs, ReplayFiles, ReplayedLog};

/// Replays what was claimed; everything is on disk when it returns.
///
/// # Errors
/// Those of the devices and of txgs; [`PoolError::IntentLogs`] for a file system that cannot be opened. What was not replayed stays.
pub(crate) fn replay_logs(spa: &Spa, pending: &PendingLogs, files: Option<&dyn ReplayFiles>) -> Result<Vec<ReplayedLog>, PoolError> {
    let replayed = spa.dsl.replay_logs(pending, files).map_err(|ended| match (ended.dataset, ended.error) {
        (Some(dataset), DslError::Unsupported) => PoolError::IntentLogs(vec![dataset]),
        (_, error) => PoolError::Dsl(error),
    })?;
    replayed.iter().for_each(|log| tell(spa, log));
    Ok(replayed)
}

/// Replays the logs of encrypted datasets whose keys are there by now; everything of them is on disk when it returns. Where that is not possible a log
/// waits on, and its dataset stays closed.
pub(crate) fn replay_unlocked(spa: &Spa, files: Option<&dyn ReplayFiles>) -> Vec<ReplayedLog> {
    let mut replayed = Vec::new();
    for object in spa.dsl.unlocked_logs() {
        match spa.dsl.replay_unlocked(object, files) {
            Ok(Some(log)) => {
                tell(spa, &log);
                replayed.push(log);
            }
            Ok(None) => {}
            Err(ended) => {
                let name = ended.dataset.unwrap_or_else(|| format!("dataset {object}"));
                tracing::error!("the intent log of {name} waits on: {}", ended.error);
            }
        }
    }
    replayed
}

/// Tells of a log that was not replayed whole.
fn tell(spa: &Spa, log: &ReplayedLog) {
    let Some(why) = &log.failure else { return };
    let event = spa.services.event("ereport.fs.zfs.log_replay").with("dataset", log.dataset.as_str()).with("why", why.as_str());
    spa.services.events.event(event);
    let text = format!("{}: {} records were replayed; {why}", log.dataset, log.records);
    spa.services.log_now("intent log", &text, spa.txgs.open_txg());
}
