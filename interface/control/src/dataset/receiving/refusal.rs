//! Words for a stream that is not received, as OpenZFS's command has them (`zfs_receive_one`).

use crate::failure::{self, because};
use control_api::{ErrorKind, Failure};
use dsl::{DslError, ResumeState};
use receive::ReceiveError;
use stream::StreamError;

/// Stream that was to be received, for who reads why it was not.
pub(super) struct Refused<'a> {
    /// Words for what cannot be done: `cannot receive incremental stream`.
    pub what: &'a str,
    /// Full name of the dataset.
    pub dataset: &'a str,
    /// Full name of the snapshot.
    pub snapshot: &'a str,
    /// True for a dataset that is not there.
    pub is_new: bool,
    /// True while another stream is received into it.
    pub has_other: bool,
    /// State that is kept of it, to be resumed.
    pub kept: Option<ResumeState>,
}

/// Failure to read a stream, before it is known what it is.
pub(super) fn unreadable(what: &str, error: &StreamError) -> Failure {
    let (kind, why) = match error {
        StreamError::Io(error) => (ErrorKind::Io, format!("failed to read from stream: {}", control_api::os_error(error))),
        StreamError::Truncated { .. } => (ErrorKind::Io, "failed to read from stream".to_string()),
        StreamError::NotAStream { .. } => (ErrorKind::Invalid, "invalid stream (bad magic number)".to_string()),
        StreamError::Checksum { .. } => (ErrorKind::Damaged, "invalid stream (checksum mismatch)".to_string()),
        StreamError::Malformed { .. } | StreamError::TooLong { .. } => (ErrorKind::Invalid, "invalid backup stream".to_string()),
    };
    let failure = because(kind, what, why);
    match error {
        StreamError::Io(_) | StreamError::NotAStream { .. } => failure,
        error => failure.advise(error.to_string()),
    }
}

impl Refused<'_> {
    /// Failure with what went wrong.
    pub(super) fn by(&self, error: &ReceiveError) -> Failure {
        match error {
            ReceiveError::Stream(error) => self.by_stream(error),
            ReceiveError::Invalid(_) | ReceiveError::NotResumed(_) => {
                because(ErrorKind::Invalid, self.what, "invalid backup stream").advise(error.to_string())
            }
            ReceiveError::Unsupported(what) => {
                let failure = because(ErrorKind::Unsupported, self.what, error);
                let is_old = what.starts_with("deduplicated");
                if is_old { failure.advise("'zstream redup' makes an ordinary stream of one in a file") } else { failure }
            }
            ReceiveError::Dsl(error) => self.by_datasets(error),
        }
    }

    fn by_stream(&self, error: &StreamError) -> Failure {
        let why = match error {
            StreamError::Io(_) | StreamError::Truncated { .. } => "incomplete stream",
            StreamError::Checksum { .. } => "checksum mismatch",
            StreamError::NotAStream { .. } | StreamError::Malformed { .. } | StreamError::TooLong { .. } => "invalid backup stream",
        };
        let Some(state) = &self.kept else { return because(ErrorKind::Damaged, self.what, why).advise(error.to_string()) };
        let why = "checksum mismatch or incomplete stream.\nPartially received snapshot is saved.\n\
                   A resuming stream can be generated on the sending system by running:";
        because(ErrorKind::Damaged, self.what, format!("{why}\n    zfs send -t {}", state.token()))
    }

    fn by_datasets(&self, error: &DslError) -> Failure {
        let Refused { what, dataset, .. } = self;
        let refused = |kind, why: String| because(kind, *what, why);
        match error {
            DslError::NotIncremental => {
                refused(ErrorKind::Invalid, format!("most recent snapshot of {dataset} does not\nmatch incremental source"))
            }
            DslError::Modified => refused(ErrorKind::Busy, format!("destination {dataset} has been modified\nsince most recent snapshot")),
            DslError::Exists => {
                let place = if self.is_new { self.dataset } else { self.snapshot };
                because(ErrorKind::Exists, format!("cannot restore to {place}"), "destination already exists")
            }
            DslError::HasSnapshots => {
                refused(ErrorKind::Exists, "destination has snapshots\nmust destroy them to overwrite it".to_string())
            }
            DslError::Busy if self.has_other => {
                let why = format!("destination '{dataset}' is busy: a receive into it is under way");
                refused(ErrorKind::Busy, why).advise("wait until that one is through, or end its 'zfs receive'")
            }
            DslError::Busy if self.kept.is_some() => {
                refused(ErrorKind::Busy, format!("destination {dataset} contains partially-complete state from \"zfs receive -s\"."))
            }
            DslError::Encrypted => {
                let why = "zfs receive -F cannot be used to destroy an encrypted filesystem or overwrite an unencrypted one with an encrypted one";
                refused(ErrorKind::Unsupported, why.to_string())
            }
            DslError::NoIvSet => refused(ErrorKind::Invalid, "IV set guid missing. See errata 4 of OpenZFS.".to_string())
                .advise(
                "send it whole, or from a snapshot that names its IVs; with the parameter zfs_disable_ivset_guid_check such streams are received",
            ),
            DslError::OtherIvSet => refused(ErrorKind::Invalid, "IV set guid mismatch.".to_string())
                .advise("what is there was encrypted here: raw streams go on only from what came raw"),
            DslError::Redacted => refused(ErrorKind::Invalid, "invalid backup stream".to_string()).advise(
                "what is there was redacted: streams go on from it that were sent from its redaction bookmark, or are redacted by some of the same snapshots",
            ),
            DslError::NotEncrypted => refused(ErrorKind::Invalid, format!("destination {dataset} is not encrypted."))
                .advise("raw streams go on only from what came raw"),
            DslError::Unsupported => refused(ErrorKind::Unsupported, "pool must be upgraded to receive this stream.".to_string()),
            DslError::LargeBlocks => {
                let why = "incremental send stream requires -L (--large-block), to match previous receive.";
                refused(ErrorKind::Invalid, why.to_string())
            }
            DslError::Quota => refused(ErrorKind::NoSpace, format!("destination {dataset} space quota exceeded.")),
            DslError::NotFound => refused(ErrorKind::NotFound, format!("destination '{dataset}' does not exist")),
            error => Failure { what: (*what).to_string(), ..failure::dataset("receive", dataset, error) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, whoever has an old backup of deduplicated streams takes it for lost.
    #[test]
    fn deduplicated_streams_are_refused_with_the_way_out() {
        let refused =
            Refused { what: "cannot receive", dataset: "tank/a", snapshot: "tank/a@b", is_new: true, has_other: false, kept: None };
        let advice = |what| refused.by(&ReceiveError::Unsupported(what)).next;
        assert!(advice("deduplicated streams").is_some_and(|advice| advice.contains("zstream redup")));
        assert_eq!(advice("redacted streams"), None);
    }
}
