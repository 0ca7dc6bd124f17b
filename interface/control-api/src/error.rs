//! A failed request: what, why, and what to do next.

use serde::{Deserialize, Serialize};

/// Kinds that callers tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// The request makes no sense as it is.
    Invalid,
    /// No such pool, dataset, device or property.
    NotFound,
    /// It exists already.
    Exists,
    /// In use: mounted, open, owned by another daemon or host.
    Busy,
    /// No space, or over a quota.
    NoSpace,
    /// The pool has a feature that this program lacks, or the operation is not there.
    Unsupported,
    /// Labels, uberblocks or data are damaged.
    Damaged,
    /// A device failed.
    Io,
    /// The caller may not do that.
    Permission,
    /// The deadline passed; the request may still complete.
    Timeout,
    /// The daemon went away before it answered: whether it was done is not known.
    Disconnected,
    /// A defect of this program.
    Internal,
}

/// One clear message: what failed, why, and the next step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Failure {
    /// The kind.
    pub kind: ErrorKind,
    /// What failed, as OpenZFS words it: `cannot create 'tank'`.
    pub what: String,
    /// Why.
    pub why: String,
    /// What to do next, where there is something to say.
    pub next: Option<String>,
}

impl Failure {
    /// A failure without advice.
    pub fn new(kind: ErrorKind, what: impl Into<String>, why: impl Into<String>) -> Failure {
        Failure { kind, what: what.into(), why: why.into(), next: None }
    }

    /// Adds what to do next.
    #[must_use]
    pub fn advise(mut self, next: impl Into<String>) -> Failure {
        self.next = Some(next.into());
        self
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Reasons that are a list begin on a line of their own.
        let between = if self.why.starts_with('\n') { ":" } else { ": " };
        write!(f, "{}{between}{}", self.what, self.why)?;
        match &self.next {
            Some(next) => write!(f, "\n{next}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}
