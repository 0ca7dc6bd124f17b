//! Sources of providers: texts that a person names one by, and that are written down for the daemon's next life.
//!
//! A provider comes from elsewhere (a library, a target), is the driver of a GPU, or is one of two that are built in to rehearse with: `sim`, a model of an
//! accelerator, and `faulty`, which begins to fail in the manner that was asked for as soon as its tests are over.

use dpusm::{OpError, OpKind};
use provider_faulty::{Fault, Harm, When};
use provider_target::{Location, LocationError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Name of the provider that is always there.
pub(crate) const SOFTWARE: &str = "software";
/// Name of the modelled accelerator.
pub(crate) const SIM: &str = "sim";
/// Name of the provider that fails on demand.
pub(crate) const FAULTY: &str = "faulty";
/// Nanoseconds by which a slow operation is late: more than what is slow to a pool, less than its deadline.
const LATE_NS: u64 = 2_000_000_000;
/// Ways in which an operation can be told to fail, by their names.
const HARMS: [(&str, Harm); 6] = [
    ("fail", Harm::Fail(OpError::Failed)),
    ("lie", Harm::Lie),
    ("short", Harm::Short),
    ("stall", Harm::Stall),
    ("slow", Harm::Slow(LATE_NS)),
    ("die", Harm::Die),
];

/// Place of a provider outside of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Target: a process on the storage side.
    Target(Location),
    /// Shared object, for a process of ours.
    Library(PathBuf),
}

/// Failure that is rehearsed: none, or one kind of operation going wrong from some number on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rehearsal {
    text: String,
    /// Fault that strikes once the provider was tested.
    pub fault: Option<Fault>,
}

/// Text that names no provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SourceError {
    /// Address of a target that makes no sense.
    Location(LocationError),
    /// Part behind the question mark that is no failure to rehearse.
    Rehearsal(String),
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceError::Location(error) => error.fmt(f),
            SourceError::Rehearsal(text) => {
                write!(f, "'{text}' is no failure to rehearse: 'OPERATION=MANNER' is, with '&after=NUMBER' behind it; operations are ")?;
                OpKind::ALL.iter().try_for_each(|kind| write!(f, "{}, ", kind.name()))?;
                f.write_str("manners ")?;
                let names: Vec<&str> = HARMS.iter().map(|(name, _)| *name).collect();
                f.write_str(&names.join(", "))
            }
        }
    }
}
impl std::error::Error for SourceError {}

impl Rehearsal {
    /// Failure of a text behind the question mark; None: one that makes no sense.
    fn fault(text: &str) -> Option<Fault> {
        let (what, after) = text.split_once("&after=").unwrap_or((text, "0"));
        let (kind, harm) = what.split_once('=')?;
        let (_, harm) = HARMS.into_iter().find(|(name, _)| *name == harm)?;
        Some(Fault { harm, when: When::Kind { kind: OpKind::from_name(kind)?, skip: after.parse().ok()? } })
    }
}

impl FromStr for Rehearsal {
    type Err = SourceError;

    /// Reads `faulty`, or `faulty?OPERATION=MANNER&after=NUMBER`.
    fn from_str(text: &str) -> Result<Rehearsal, SourceError> {
        let fault = match text.split_once('?') {
            None => None,
            Some((_, what)) => Some(Rehearsal::fault(what).ok_or_else(|| SourceError::Rehearsal(what.to_string()))?),
        };
        Ok(Rehearsal { text: text.to_string(), fault })
    }
}

/// Source of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Process of its own.
    Apart(Place),
    /// First GPU of NVIDIA in this machine.
    Cuda,
    /// Model of an accelerator.
    Sim,
    /// Provider that fails on demand.
    Faulty(Rehearsal),
}

impl Source {
    /// Name of a provider that has only one, by what it is.
    pub fn own_name(&self) -> Option<&'static str> {
        match self {
            Source::Apart(_) => None,
            Source::Cuda => Some(provider_cuda::NAME),
            Source::Sim => Some(SIM),
            Source::Faulty(_) => Some(FAULTY),
        }
    }
}

impl FromStr for Source {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Source, SourceError> {
        match text {
            provider_cuda::NAME => Ok(Source::Cuda),
            SIM => Ok(Source::Sim),
            _ if text.split('?').next() == Some(FAULTY) => text.parse().map(Source::Faulty),
            _ if Location::is_meant(text) => {
                text.parse().map(|location| Source::Apart(Place::Target(location))).map_err(SourceError::Location)
            }
            _ => Ok(Source::Apart(Place::Library(text.into()))),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Apart(Place::Library(path)) => path.display().fmt(f),
            Source::Apart(Place::Target(location)) => location.fmt(f),
            Source::Cuda => f.write_str(provider_cuda::NAME),
            Source::Sim => f.write_str(SIM),
            Source::Faulty(rehearsal) => f.write_str(&rehearsal.text),
        }
    }
}

/// Entry of a provider in the file of those that were loaded.
#[derive(Deserialize, Serialize)]
#[serde(untagged)]
pub(crate) enum Remembered {
    /// Source of the provider, as text.
    From(String),
    /// Provider that was caught lying, and the operation that it lied at.
    Liar { from: Option<String>, lied_at: String },
}

impl Remembered {
    pub fn parts(&self) -> (Option<&str>, Option<OpKind>) {
        match self {
            Remembered::From(from) => (Some(from), None),
            // Whatever it was, it was a lie.
            Remembered::Liar { from, lied_at } => (from.as_deref(), Some(OpKind::from_name(lied_at).unwrap_or(OpKind::Checksum))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rehearsal that is another one after a restart, or of which a mistyped word is taken for none, shows what will not happen.
    #[test]
    fn a_rehearsal_is_what_was_written() {
        let kind = |kind, skip| When::Kind { kind, skip };
        for (text, fault) in [
            ("faulty", None),
            ("faulty?checksum=lie", Some(Fault { harm: Harm::Lie, when: kind(OpKind::Checksum, 0) })),
            ("faulty?raidz_gen=stall&after=12", Some(Fault { harm: Harm::Stall, when: kind(OpKind::RaidGenerate, 12) })),
            ("faulty?alloc=fail", Some(Fault { harm: Harm::Fail(OpError::Failed), when: kind(OpKind::Alloc, 0) })),
        ] {
            let source: Source = text.parse().unwrap();
            assert_eq!(source.to_string(), text);
            assert!(matches!(&source, Source::Faulty(rehearsal) if rehearsal.fault == fault), "{source:?}");
            assert_eq!(source.own_name(), Some(FAULTY));
        }
        for text in
            ["faulty?", "faulty?checksum", "faulty?checksum=ly", "faulty?sum=lie", "faulty?checksum=lie&after=", "faulty?checksum=lie&x=1"]
        {
            let error = text.parse::<Source>().unwrap_err().to_string();
            assert!(error.contains("raidz_gen, ") && error.contains("stall"), "{error}");
        }
        assert_eq!("sim".parse::<Source>(), Ok(Source::Sim));
        assert_eq!("/lib/faulty".parse::<Source>(), Ok(Source::Apart(Place::Library("/lib/faulty".into()))));
    }
}
