//! `zfs redact`: a bookmark that says what of a snapshot is not to be sent.

use cli::{Client, Stop, done};
use control_api::{ErrorKind, Failure, RedactRequest, Request};

/// Exit codes for failures, by how their message begins: numbers of errors, as OpenZFS's command has it (`zfs_do_redact`).
const CODES: [(&str, u8); 9] = [
    ("provided snapshot", 2),
    ("attempted to resume redaction", 3),
    ("too many redaction snapshots", 7),
    ("specified redaction bookmark", 17),
    ("potentially invalid redaction snapshot", 18),
    ("redaction ", 22),
    ("provided bookmark name", 36),
    ("redaction bookmarks feature", 95),
    ("attempted to redact", 114),
];

/// Runs the verb.
pub fn run(client: &Client, request: RedactRequest) -> Result<u8, Stop> {
    match done(client, &Request::Redact(request)) {
        Ok(code) => Ok(code),
        Err(failure) => match exit_code(&failure) {
            Some(code) => {
                cli::errln!("{failure}");
                Ok(code)
            }
            None => Err(failure.into()),
        },
    }
}

/// Exit code of a failure that has one of its own.
fn exit_code(failure: &Failure) -> Option<u8> {
    let is_of_verb = !matches!(failure.kind, ErrorKind::Permission | ErrorKind::Disconnected);
    let of_message = CODES.iter().filter(|(start, _)| failure.what.starts_with(start)).max_by_key(|(start, _)| start.len());
    of_message.filter(|_| is_of_verb).map(|(_, code)| *code)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scripts tell by the code whether a bookmark was there, or a name was wrong.
    #[test]
    fn codes_are_numbers_of_errors() {
        let code = |what: &str| exit_code(&Failure::new(ErrorKind::Invalid, what, ""));
        assert_eq!(code("redaction bookmark name must not contain '#'"), Some(22));
        assert_eq!(code("redaction bookmarks feature not enabled"), Some(95));
        assert_eq!(code("provided snapshot tank@a does not exist"), Some(2));
        assert_eq!(code("cannot redact 'tank@a'"), None);
        assert_eq!(exit_code(&Failure::new(ErrorKind::Permission, "redaction ", "")), None);
    }
}
