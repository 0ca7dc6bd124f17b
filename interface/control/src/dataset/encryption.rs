//! Encryption of new datasets: what of their properties goes together, in OpenZFS's words (`zfs_crypto_create`).

use crate::failure::because;
use control_api::{ErrorKind, Failure, KeyBytes, UserKey};
use std::collections::BTreeMap;

/// Fewest iterations of PBKDF2 that a passphrase may have (OpenZFS: `MIN_PBKDF2_ITERATIONS`).
const ITERATIONS_MIN: u64 = 100_000;
/// Most iterations of PBKDF2 that the daemon works out for a user who is not its owner: some seconds.
const ITERATIONS_MAX: u64 = 10_000_000;

/// Objection to properties of a new dataset below one that is encrypted, or not.
fn objection(properties: &BTreeMap<String, String>, is_above: bool) -> Option<String> {
    let text = |name: &str, none: &str| properties.get(name).map(String::as_str).filter(|value| *value != none);
    let (format, location, iterations) = (text("keyformat", "none"), text("keylocation", "none"), text("pbkdf2iters", "0"));
    let is_on = properties.get("encryption").map_or(is_above, |value| value != "off");
    let is_any = format.or(location).or(iterations).is_some();
    if !is_on {
        return is_any.then(|| "Encryption must be turned on to set encryption properties.".to_string());
    }
    let Some(format) = format else {
        return (is_any || !is_above).then(|| "Keyformat required for new encryption root.".to_string());
    };
    let count = iterations.map(|text| dsl::prop::table::size(text).unwrap_or(0));
    match count {
        Some(_) if format != "passphrase" => Some("'pbkdf2iters' is for keyformat=passphrase only.".to_string()),
        Some(count) if count < ITERATIONS_MIN => Some(format!("Minimum pbkdf2 iterations is {ITERATIONS_MIN}.")),
        _ => None,
    }
}

/// Objection to properties of a dataset that a user makes who is not the daemon's owner: its key would keep the daemon busy.
pub(crate) fn users_objection(properties: &BTreeMap<String, String>) -> Option<String> {
    let iterations = properties.get("pbkdf2iters").and_then(|text| dsl::prop::table::size(text).ok());
    iterations.filter(|count| *count > ITERATIONS_MAX).map(|_| format!("Maximum pbkdf2 iterations is {ITERATIONS_MAX} for users."))
}

/// Refuses properties of a new dataset that do not go together.
///
/// # Errors
/// [`ErrorKind::Invalid`].
pub(crate) fn check(what: &str, properties: &BTreeMap<String, String>, is_above: bool) -> Result<(), Failure> {
    objection(properties, is_above).map_or(Ok(()), |why| Err(because(ErrorKind::Invalid, what, why)))
}

/// Bytes of the key that a new dataset comes with, whose properties go together; None for one without a key of its own.
///
/// # Errors
/// [`ErrorKind::Invalid`] without a key, or for one that is not written in hexadecimal.
pub(crate) fn key_of(what: &str, properties: &BTreeMap<String, String>, key: Option<&UserKey>) -> Result<Option<KeyBytes>, Failure> {
    if properties.get("keyformat").is_none_or(|format| format == "none") {
        return Ok(None);
    }
    let bytes = key.and_then(UserKey::bytes);
    bytes.map(Some).ok_or_else(|| because(ErrorKind::Invalid, what, "a new encryption root needs a key"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, somebody believes that a dataset is encrypted, or with another key than the one that it has.
    #[test]
    fn what_does_not_go_together_is_refused_as_openzfs_refuses_it() {
        let said = |words: &[(&str, &str)], is_above: bool| {
            let properties = words.iter().map(|(name, value)| ((*name).to_string(), (*value).to_string())).collect();
            objection(&properties, is_above)
        };
        let off = Some("Encryption must be turned on to set encryption properties.".to_string());
        let formless = Some("Keyformat required for new encryption root.".to_string());
        assert_eq!(said(&[("keyformat", "raw")], false), off);
        assert_eq!(said(&[("encryption", "off"), ("keylocation", "prompt")], true), off);
        assert_eq!(said(&[("encryption", "on")], false), formless);
        assert_eq!(said(&[("keylocation", "prompt")], true), formless);
        assert_eq!((said(&[("encryption", "aes-128-ccm")], true), said(&[], true), said(&[("atime", "off")], false)), (None, None, None));
        assert_eq!(said(&[("keyformat", "passphrase"), ("pbkdf2iters", "200000")], true), None);
        assert!(said(&[("keyformat", "passphrase"), ("pbkdf2iters", "99999")], true).is_some());
        assert!(said(&[("encryption", "on"), ("keyformat", "hex"), ("pbkdf2iters", "200000")], false).is_some());
        let key = UserKey::new(b"12345678");
        let properties = BTreeMap::from([("keyformat".to_string(), "passphrase".to_string())]);
        assert_eq!(key_of("cannot create 'a/b'", &properties, Some(&key)), Ok(Some(KeyBytes::new(b"12345678".to_vec()))));
        assert!(key_of("cannot create 'a/b'", &properties, None).is_err() && check("cannot create 'a/b'", &properties, false).is_err());
    }

    /// If this fails, a user who may make encrypted datasets keeps all others from what was delegated to them, for years.
    #[test]
    fn users_ask_for_no_more_iterations_than_take_a_moment() {
        let said = |count: &str| users_objection(&BTreeMap::from([("pbkdf2iters".to_string(), count.to_string())])).is_some();
        assert_eq!(["350000", "10000000", "10000001", "10G"].map(said), [false, false, true, true]);
        assert_eq!(users_objection(&BTreeMap::new()), None);
    }
}
