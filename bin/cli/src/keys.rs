//! Keys that users give: typed in, from another program, of a file, or from a web server; and what they must look like (OpenZFS: `libzfs_crypto.c`).

use crate::fetch;
use control_api::{ErrorKind, Failure, UserKey};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use std::collections::BTreeMap;
use std::io::{BufRead, IsTerminal, Read, Write};

/// Bytes of a key of `keyformat=raw`.
const RAW_BYTES: usize = 32;
/// Most bytes that are read of a file, or taken of an answer, with a key.
const FILE_BYTES_MAX: usize = 4096;

/// Key that somebody is asked for.
#[derive(Clone, Copy, Debug)]
pub struct KeyWanted<'a> {
    /// Words that a failure begins with.
    pub what: &'a str,
    /// Value of the property `keyformat`.
    pub format: &'a str,
    /// Value of the property `keylocation`.
    pub location: &'a str,
    /// Name of the dataset, where it has one already.
    pub name: Option<&'a str>,
    /// True for a key that nothing is encrypted with yet: who types it types it twice.
    pub is_new: bool,
}

/// Gets a key from where it is said to be.
///
/// # Errors
/// [`ErrorKind::Io`] where it cannot be read, [`ErrorKind::Invalid`] for what is no key of this format.
pub fn read(wanted: &KeyWanted<'_>) -> Result<UserKey, Failure> {
    let given = wanted.given()?;
    Ok(UserKey::new(&wanted.checked(given)?))
}

/// The key of a new encryption root with these properties; None where they ask for none. `what` are the words that a failure begins with; `is_above`
/// says whether what is not said to be encrypted would be, as the dataset above is.
///
/// # Errors
/// Those of [`read`].
pub fn of_new(what: &str, properties: &BTreeMap<String, String>, is_above: impl FnOnce() -> bool) -> Result<Option<UserKey>, Failure> {
    let text = |name: &str| properties.get(name).map(String::as_str).filter(|value| *value != "none");
    let Some(format) = text("keyformat") else { return Ok(None) };
    // The daemon says what is wrong with a key for what is not encrypted.
    if !properties.get("encryption").map_or_else(is_above, |value| value != "off") {
        return Ok(None);
    }
    let location = text("keylocation").unwrap_or("prompt");
    read(&KeyWanted { what, format, location, name: None, is_new: true }).map(Some)
}

impl KeyWanted<'_> {
    fn refused(&self, kind: ErrorKind, why: impl Into<String>) -> Failure {
        Failure::new(kind, self.what, why)
    }

    /// Bytes that somebody gives for a key, a line with its end where it is no raw key.
    fn given(&self) -> Result<Vec<u8>, Failure> {
        if self.location == "prompt" {
            return self.asked();
        }
        if fetch::is_address(self.location) {
            return fetch::get(self.location, FILE_BYTES_MAX).map_err(|(kind, why)| self.refused(kind, why));
        }
        let Some(path) = self.location.strip_prefix("file://") else {
            let why = format!("keylocation '{}' is not supported: 'prompt', 'file://', 'https://' and 'http://' are.", self.location);
            return Err(self.refused(ErrorKind::Unsupported, why));
        };
        let mut bytes = Vec::new();
        let read = std::fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX as u64).read_to_end(&mut bytes));
        let unreadable =
            |error| self.refused(ErrorKind::Io, format!("Failed to open key material file: {}", control_api::os_error(&error)));
        read.map_err(unreadable)?;
        Ok(bytes)
    }

    /// Bytes that somebody types, which are not shown, or that come from another program.
    fn asked(&self) -> Result<Vec<u8>, Failure> {
        let unreadable =
            |error: std::io::Error| self.refused(ErrorKind::Io, format!("the key cannot be read: {}", control_api::os_error(&error)));
        let (stdin, mut bytes) = (std::io::stdin(), Vec::new());
        if !stdin.is_terminal() {
            let read = match self.format {
                "raw" => stdin.lock().take(RAW_BYTES as u64 + 1).read_to_end(&mut bytes),
                _ => stdin.lock().read_until(b'\n', &mut bytes),
            };
            return read.map(|_| bytes).map_err(unreadable);
        }
        let first = typed(&self.prompt(if self.is_new { "Enter new" } else { "Enter" })).map_err(unreadable)?;
        if self.is_new && typed(&self.prompt("Re-enter new")).map_err(unreadable)? != first {
            return Err(self.refused(ErrorKind::Invalid, "Provided keys do not match."));
        }
        Ok(first)
    }

    fn prompt(&self, verb: &str) -> String {
        let what = if self.format == "passphrase" { "passphrase".to_string() } else { format!("{} key", self.format) };
        self.name.map_or_else(|| format!("{verb} {what}: "), |name| format!("{verb} {what} for '{name}': "))
    }

    /// The key in what was given: a raw key whole, of the others the first line without its end. Says in OpenZFS's words what is wrong with its length.
    fn checked(&self, mut given: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let (what, least, most) = match self.format {
            "raw" => ("Raw key", RAW_BYTES, RAW_BYTES),
            "hex" => ("Hex key", 2 * RAW_BYTES, 2 * RAW_BYTES),
            "passphrase" => ("Passphrase", 8, 512),
            other => return Err(self.refused(ErrorKind::Unsupported, format!("keyformat '{other}' is not supported."))),
        };
        if self.format != "raw" {
            given.truncate(given.iter().position(|byte| *byte == b'\n').unwrap_or(given.len()));
        }
        let limit = |word: &str, bytes: usize| {
            let bound = if least == most { "expected" } else { word };
            format!("({bound} {bytes}).")
        };
        if given.len() < least {
            return Err(self.refused(ErrorKind::Invalid, format!("{what} too short {}", limit("min", least))));
        }
        if given.len() > most {
            return Err(self.refused(ErrorKind::Invalid, format!("{what} too long {}", limit("max", most))));
        }
        Ok(given)
    }
}

/// A line that somebody types at a terminal, which does not show it.
fn typed(prompt: &str) -> std::io::Result<Vec<u8>> {
    let (stdin, mut bytes) = (std::io::stdin(), Vec::new());
    crate::out!("{prompt}");
    std::io::stdout().flush()?;
    let before = tcgetattr(&stdin)?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &hidden)?;
    let read = stdin.lock().read_until(b'\n', &mut bytes);
    tcsetattr(&stdin, OptionalActions::Flush, &before)?;
    crate::outln!();
    read.map(|_| bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(format: &str) -> KeyWanted<'_> {
        KeyWanted { what: "Key load error", format, location: "prompt", name: Some("tank"), is_new: false }
    }

    /// If this fails, a key from an editor, with the end of its line, is another one than the same key typed in; or half a key is taken for one.
    #[test]
    fn keys_are_taken_as_openzfs_takes_them() {
        let taken = |format: &str, given: &[u8]| wanted(format).checked(given.to_vec()).map_err(|failure| failure.why);
        assert_eq!(taken("passphrase", b"correct horse\nbattery"), Ok(b"correct horse".to_vec()));
        assert_eq!(taken("passphrase", b"correct horse"), Ok(b"correct horse".to_vec()));
        assert_eq!(taken("raw", &[b'\n'; 32]), Ok(vec![b'\n'; 32]));
        assert_eq!(taken("passphrase", b"short\n"), Err("Passphrase too short (min 8).".to_string()));
        assert_eq!(taken("passphrase", &[b'x'; 513]), Err("Passphrase too long (max 512).".to_string()));
        assert_eq!(taken("raw", &[1; 33]), Err("Raw key too long (expected 32).".to_string()));
        assert_eq!(taken("hex", b"00ff\n"), Err("Hex key too short (expected 64).".to_string()));
    }

    /// If this fails, who makes an encrypted dataset is asked for another key than he thinks, or for none.
    #[test]
    fn new_keys_are_asked_for_by_keyformat() {
        let asked = |words: &[(&str, &str)], is_above: bool| {
            let properties = words.iter().map(|(name, value)| ((*name).to_string(), (*value).to_string())).collect();
            of_new("cannot create 'tank/a'", &properties, || is_above).map(|key| key.is_some()).map_err(|failure| failure.why)
        };
        assert_eq!(asked(&[("encryption", "on"), ("atime", "off")], true), Ok(false), "the key of the dataset above");
        assert_eq!(asked(&[("keyformat", "none"), ("keylocation", "prompt")], true), Ok(false));
        assert_eq!(asked(&[("keyformat", "raw"), ("keylocation", "file:///nowhere/at/all")], false), Ok(false), "nothing is encrypted");
        let missing = asked(&[("keyformat", "raw"), ("keylocation", "file:///nowhere/at/all")], true);
        assert!(missing.is_err_and(|why| why.starts_with("Failed to open key material file")));
        assert_eq!(
            (wanted("hex").prompt("Enter new"), wanted("passphrase").prompt("Enter")),
            ("Enter new hex key for 'tank': ".to_string(), "Enter passphrase for 'tank': ".to_string())
        );
    }
}
