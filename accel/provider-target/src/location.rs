//! How users write down which target they mean: `tcp:HOST:PORT?secret-file=FILE` or `unix:PATH?secret-file=FILE`, with `&shared-memory=off` behind
//! it (or before it) when payload shall go through the socket also on one machine.

use crate::options::TargetOptions;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use target_wire::{Address, AddressError, Secret, SecretError};

/// Word after the question mark, before the file.
const SECRET_FILE: &str = "secret-file=";
/// Words for sharing memory with a target on this machine or not; on is the default.
const SHARED_MEMORY: [(&str, bool); 2] = [("shared-memory=off", false), ("shared-memory=on", true)];

/// A target's address, and the file with its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Address at which the target listens.
    pub address: Address,
    /// A file with the secret that it knows.
    pub secret_file: PathBuf,
    /// True when payload goes through memory that both share, where that is possible.
    pub shared_memory: bool,
}

/// A text that is no location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocationError {
    /// The text before the question mark is no address.
    Address(AddressError),
    /// There is no file with the secret.
    NoSecretFile,
    /// A word that is not known after the question mark.
    Unknown(String),
    /// An option that is not known behind the file.
    UnknownOption(String),
}

impl fmt::Display for LocationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LocationError::Address(error) => error.fmt(f),
            LocationError::NoSecretFile => f.write_str("the address of a target ends with '?secret-file=FILE'"),
            LocationError::Unknown(text) => write!(f, "'{text}' is not 'secret-file=FILE'"),
            LocationError::UnknownOption(text) => write!(f, "'{text}' is no option of a target's address: 'shared-memory=off' is"),
        }
    }
}
impl std::error::Error for LocationError {}

impl Location {
    /// True for what is meant as the address of a target, not as the path of a library.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with("tcp:") || text.starts_with("unix:")
    }

    /// Options for connecting to it under the name of a provider.
    ///
    /// # Errors
    /// Those of reading the secret.
    pub fn options(&self, name: &str) -> Result<TargetOptions, SecretError> {
        let options = TargetOptions::new(name, self.address.clone(), Secret::read(&self.secret_file)?);
        let shared_bytes = if self.shared_memory { options.shared_bytes } else { 0 };
        Ok(TargetOptions { shared_bytes, ..options })
    }
}

/// Answer of the text about shared memory, and the rest of it.
fn shared_memory(text: &str) -> (bool, &str) {
    let found = SHARED_MEMORY.into_iter().find_map(|(option, is_on)| {
        let behind = || text.strip_suffix(option)?.strip_suffix('&');
        let before = || text.strip_prefix(option).and_then(|rest| if rest.is_empty() { Some(rest) } else { rest.strip_prefix('&') });
        Some((is_on, behind().or_else(before)?))
    });
    found.unwrap_or((true, text))
}

/// First part of a text, behind a `&`, that is meant as an option: `word=…`. Files have other names.
fn option_in(file: &str) -> Option<&str> {
    let is_word = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || matches!(c, '-' | '_'));
    file.split('&').skip(1).find(|part| part.split_once('=').is_some_and(|(word, _)| is_word(word)))
}

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Location, LocationError> {
        let (address, rest) = text.split_once('?').unwrap_or((text, ""));
        let address = address.parse().map_err(LocationError::Address)?;
        let (shared_memory, rest) = shared_memory(rest);
        match rest.strip_prefix(SECRET_FILE) {
            Some(file) if !file.is_empty() => match option_in(file) {
                Some(option) => Err(LocationError::UnknownOption(option.to_string())),
                None => Ok(Location { address, secret_file: file.into(), shared_memory }),
            },
            None if !rest.is_empty() => Err(LocationError::Unknown(rest.to_string())),
            _ => Err(LocationError::NoSecretFile),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared_memory = if self.shared_memory { "" } else { "&shared-memory=off" };
        write!(f, "{}?{SECRET_FILE}{}{shared_memory}", self.address, self.secret_file.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was remembered must lead to the same target after a restart, and a mistake must be named.
    #[test]
    fn locations_come_back_as_they_were_written() {
        for text in
            ["tcp:storage:4420?secret-file=/etc/secret", "unix:/run/target?secret-file=/a b", "unix:/a?secret-file=/b&shared-memory=off"]
        {
            assert_eq!(text.parse::<Location>().map(|location| location.to_string()), Ok(text.to_string()));
        }
        for text in ["unix:/a?secret-file=/b&shared-memory=on", "unix:/a?shared-memory=on&secret-file=/b", "unix:/a?secret-file=/b"] {
            assert_eq!(text.parse::<Location>().map(|location| location.to_string()), Ok("unix:/a?secret-file=/b".to_string()));
        }
        let off = "unix:/a?shared-memory=off&secret-file=/b".parse::<Location>();
        assert_eq!(off.map(|location| location.to_string()), Ok("unix:/a?secret-file=/b&shared-memory=off".to_string()));
        let error = |text: &str| text.parse::<Location>().map_err(|error| error.to_string());
        for text in ["tcp:storage:4420", "tcp:storage:4420?", "tcp:storage:4420?secret-file=", "unix:/a?shared-memory=off"] {
            assert_eq!(error(text), Err("the address of a target ends with '?secret-file=FILE'".to_string()));
        }
        assert_eq!(error("unix:/a?secret=b"), Err("'secret=b' is not 'secret-file=FILE'".to_string()));
        let wrong = "shared-memory=perhaps&secret-file=/b";
        assert_eq!(error(&format!("unix:/a?{wrong}")), Err(format!("'{wrong}' is not 'secret-file=FILE'")));
        let unknown = "'foo=bar' is no option of a target's address: 'shared-memory=off' is";
        for text in ["unix:/a?secret-file=/b&foo=bar", "unix:/a?shared-memory=off&secret-file=/b&foo=bar"] {
            assert_eq!(error(text), Err(unknown.to_string()));
        }
        assert!("unix:/a?secret-file=/salt&pepper".parse::<Location>().is_ok(), "a file may be called so");
        assert_eq!(error("tcp:storage?secret-file=b"), Err("'tcp:storage' is neither unix:PATH nor tcp:HOST:PORT".to_string()));
    }
}
