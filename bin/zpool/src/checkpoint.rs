//! `zpool checkpoint`: keeps the state of a pool, or discards the one that is kept; and what `zpool status` says of it.

use crate::wait;
use cli::number::nice_count;
use cli::{Client, Stop, done, time};
use control_api::{CheckpointReport, PoolCheckpoint, Request, ScanReport};

/// Words for whoever names a dataset (OpenZFS: `zpool_do_checkpoint`).
const NO_DATASETS: &str = "'zpool checkpoint' doesn't work on datasets. To save the state of a dataset from a specific point in time please use \
                           'zfs snapshot'";

/// Runs the verb.
pub fn run(client: &Client, pool: String, (discard, waits): (bool, bool)) -> Result<u8, Stop> {
    if waits && !discard {
        return Err(Stop::usage("--wait only valid when --discard also specified"));
    }
    let request = Request::PoolCheckpoint(PoolCheckpoint { pool: pool.clone(), discard });
    if pool.contains('/') {
        if let Err(failure) = done(client, &request) {
            cli::errln!("{failure}");
        }
        cli::errln!("{NO_DATASETS}");
        return Ok(cli::EXIT_FAILURE);
    }
    let code = done(client, &request)?;
    if waits {
        wait::until_idle(client, &pool, &["discard".to_string()])?;
    }
    Ok(code)
}

/// Line `checkpoint:` of `zpool status` (OpenZFS: `print_checkpoint_status`).
pub fn line(checkpoint: &CheckpointReport) -> String {
    let bytes = nice_count(checkpoint.bytes);
    match checkpoint.is_discarding {
        true => format!("checkpoint: discarding, {bytes} remaining.\n"),
        false => format!("checkpoint: created {}, consumes {bytes}\n", time::long(checkpoint.start_time)),
    }
}

/// Line on blocks that a scan passes over, or has, since only the checkpoint has them (OpenZFS: `print_checkpoint_scan_warning`).
pub fn scan_warning(checkpoint: &CheckpointReport, scan: &ScanReport) -> &'static str {
    let has_ended = matches!(scan.state.as_str(), "finished" | "canceled");
    match (checkpoint.is_discarding, has_ended) {
        (true, _) => "",
        (false, true) if scan.end_time < checkpoint.start_time => "",
        (false, true) => "    scan warning: skipped blocks that are only referenced by the checkpoint.\n",
        (false, false) => "    scan warning: skipping blocks that are only referenced by the checkpoint.\n",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, scripts wait for ever for words that they know, or somebody trusts in a scrub of what it did not read.
    #[test]
    fn a_checkpoint_reads_as_openzfs_prints_it() {
        let known = CheckpointReport { is_discarding: false, start_time: 61, bytes: 3 << 20 };
        assert_eq!(line(&known), format!("checkpoint: created {}, consumes 3M\n", time::long(61)));
        let going = CheckpointReport { is_discarding: true, bytes: 0, ..known.clone() };
        assert_eq!(line(&going), "checkpoint: discarding, 0 remaining.\n");
        let scan = |state: &str, end_time| ScanReport { state: state.into(), end_time, ..ScanReport::default() };
        assert_eq!([scan_warning(&known, &scan("finished", 60)), scan_warning(&going, &scan("scanning", 0))], ["", ""]);
        assert!(scan_warning(&known, &scan("finished", 62)).contains(" skipped blocks "));
        assert!(scan_warning(&known, &scan("scanning", 0)).contains(" skipping blocks "));
    }
}
