//! A failed request: what, why, and what to do next.

use serde::{Deserialize, Serialize};

/// Kinds of failures that callers tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// Request makes no sense as it is.
    Invalid,
    /// No such pool, dataset, device or property.
    NotFound,
    /// Name is taken: it exists already.
    Exists,
    /// In use: mounted, open, owned by another daemon or host.
    Busy,
    /// No space, or over a quota.
    NoSpace,
    /// Feature of the pool that this program lacks, or an operation that is not there.
    Unsupported,
    /// Labels, uberblocks or data are damaged.
    Damaged,
    /// Device failed.
    Io,
    /// Caller may not do that.
    Permission,
    /// Deadline passed; the request may still complete.
    Timeout,
    /// Daemon went away before it answered: whether it was done is not known.
    Disconnected,
    /// Request was done, but what it made is not mounted.
    NotMounted,
    /// Defect of this program.
    Internal,
}

/// Message of a request that failed: what failed, why, and the next step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Failure {
    /// Kind of the failure.
    pub kind: ErrorKind,
    /// Words for what failed, as OpenZFS has them: `cannot create 'tank'`.
    pub what: String,
    /// Reason of the failure.
    pub why: String,
    /// Advice what to do next, where there is something to say.
    pub next: Option<String>,
}

/// Words before a list of objections to new devices which `-f` overrides, as OpenZFS has them (`vdev_error`): what failed, in such a failure.
pub const FORCEABLE: &str = "invalid vdev specification\nuse '-f' to override the following errors";

/// Beginning of a warning that says that something was accepted and does nothing.
pub const WITHOUT_EFFECT: &str = "warning: without effect: ";

impl Failure {
    /// Makes a failure without advice.
    pub fn new(kind: ErrorKind, what: impl Into<String>, why: impl Into<String>) -> Failure {
        Failure { kind, what: what.into(), why: without_number(why.into()), next: None }
    }

    /// Adds advice what to do next.
    #[must_use]
    pub fn advise(mut self, next: impl Into<String>) -> Failure {
        self.next = Some(next.into());
        self
    }
}

/// Words of the system for an error, without Rust's own remark of its number: `No such file or directory`.
pub fn os_error(error: &std::io::Error) -> String {
    without_number(error.to_string())
}

/// Takes every ` (os error 2)` out of a text: OpenZFS's messages, and all others of C programs, have the words alone.
fn without_number(mut text: String) -> String {
    const BEGIN: &str = " (os error ";
    while let Some(start) = text.find(BEGIN) {
        let rest = &text[start + BEGIN.len()..];
        let Some(digits) = rest.find(')').filter(|end| rest[..*end].bytes().all(|byte| byte.is_ascii_digit())) else { break };
        text.replace_range(start..=start + BEGIN.len() + digits, "");
    }
    text
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Reasons that are a list begin on a line of their own; what needs no reason has none.
        let between = match self.why.chars().next() {
            None => "",
            Some('\n') => ":",
            Some(_) => ": ",
        };
        write!(f, "{}{between}{}", self.what, self.why)?;
        match &self.next {
            Some(next) => write!(f, "\n{next}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Users and scripts know these errors by the system's words.
    #[test]
    fn errors_of_the_system_are_told_in_its_words() {
        let missing = std::io::Error::from_raw_os_error(2);
        assert_eq!(os_error(&missing), "No such file or directory");
        let failure = Failure::new(ErrorKind::Io, "cannot open 'a'", format!("/a: {missing}; /b: {missing}"));
        assert_eq!(failure.why, "/a: No such file or directory; /b: No such file or directory");
        assert_eq!(without_number("as it is (os error x)".to_string()), "as it is (os error x)");
    }
}
