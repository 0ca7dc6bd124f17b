//! Keys that a web server gives (docs/adr/0036; OpenZFS: `get_key_material_https`): the program `curl` gets them, as the user who typed the command.
//! The daemon connects to nobody for a key.

use control_api::ErrorKind;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::{Child, Command, ExitStatus, Stdio};

const PROGRAM: &str = "curl";
/// Places of the program, tried one after the other: on `PATH`, which services and scripts may have without it, and where systems have it.
const PLACES: [&str; 3] = [PROGRAM, "/usr/bin/curl", "/usr/local/bin/curl"];
/// Seconds that an answer may take, with all redirections, as in OpenZFS.
const SECONDS_MAX: &str = "30";
/// Redirections that are followed.
const REDIRECTIONS_MAX: &str = "30";
/// Bytes of the status that the program writes behind what it got: three digits.
const STATUS_BYTES: usize = 3;
/// Most bytes that are read of what the program says went wrong.
const WORDS_BYTES_MAX: u64 = 4096;
/// Variables that OpenZFS has from fetch(3), each with the option of the program that it becomes.
const VARIABLES: [(&str, &str); 4] = [
    ("SSL_CA_CERT_FILE", "--cacert"),
    ("SSL_CA_CERT_PATH", "--capath"),
    ("SSL_CLIENT_CERT_FILE", CERTIFICATE),
    ("SSL_CLIENT_KEY_FILE", "--key"),
];
const CERTIFICATE: &str = "--cert";
const MISSING: &str = "the program curl, which gets keys from https:// and http://, is not there: install curl.";

/// Kind and reason of a failure.
pub type Unfetched = (ErrorKind, String);

/// True for a `keylocation` that [`get`] takes.
pub fn is_address(location: &str) -> bool {
    is_https(location) || location.starts_with("http://")
}

fn is_https(address: &str) -> bool {
    address.starts_with("https://")
}

/// Contents of what this address names, at most `bytes_max` bytes.
///
/// # Errors
/// [`ErrorKind::Unsupported`] without the program that gets it, [`ErrorKind::Invalid`] for what is no address or longer than a key may be,
/// [`ErrorKind::Io`] where it is not to be had.
pub fn get(address: &str, bytes_max: usize) -> Result<Vec<u8>, Unfetched> {
    if address.chars().any(char::is_control) {
        return Err((ErrorKind::Invalid, "Invalid URI: it has control characters.".to_string()));
    }
    let variable = |name: &str| std::env::var_os(name);
    let is_missing = |tried: &io::Result<Child>| tried.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let mut started = start(command(PROGRAM, address, variable));
    for place in &PLACES[1..] {
        if is_missing(&started) {
            started = start(command(place, address, variable));
        }
    }
    answer(started, address, bytes_max)
}

/// Command line that asks for an address, without the address: everybody on the machine may read command lines.
fn command(program: &str, address: &str, variable: impl Fn(&str) -> Option<OsString>) -> Command {
    let mut command = Command::new(program);
    // `-q` counts in the first place only: settings that the user has for other uses (~/.curlrc) are left out, as OpenZFS's library leaves them out.
    command.args(["-q", "--config", "-", "--silent", "--show-error", "--globoff", "--location"]);
    command.args(["--max-redirs", REDIRECTIONS_MAX, "--max-time", SECONDS_MAX, "--write-out", "%{http_code}"]);
    // Who asks for https never gets, or sends, anything in the clear.
    let protocols = if is_https(address) { "=https" } else { "=https,http" };
    command.args(["--proto", protocols, "--proto-redir", protocols]);
    for (name, option) in VARIABLES {
        let Some(value) = variable(name).filter(|value| !value.is_empty()) else { continue };
        command.arg(option).arg(if option == CERTIFICATE { without_password(&value) } else { value });
    }
    command
}

/// Path of a certificate as the program takes it: behind a colon that is not marked it expects a password.
fn without_password(path: &OsStr) -> OsString {
    let mut marked = Vec::with_capacity(path.len());
    for byte in path.as_bytes() {
        if matches!(byte, b'\\' | b':') {
            marked.push(b'\\');
        }
        marked.push(*byte);
    }
    OsString::from_vec(marked)
}

/// Line of settings with the address, in quotes.
fn setting(address: &str) -> String {
    format!("url = \"{}\"\n", address.replace('\\', "\\\\").replace('"', "\\\""))
}

fn start(mut command: Command) -> io::Result<Child> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

/// Tells the program the address and takes what it got.
fn answer(started: io::Result<Child>, address: &str, bytes_max: usize) -> Result<Vec<u8>, Unfetched> {
    let (shown, most) = (shown(address), bytes_max + STATUS_BYTES);
    let failed = |error: io::Error| (ErrorKind::Io, format!("Couldn't GET {shown}: {PROGRAM}: {}", control_api::os_error(&error)));
    let mut child = started.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => (ErrorKind::Unsupported, format!("Couldn't GET {shown}: {MISSING}")),
        _ => failed(error),
    })?;
    // A program that ended before it read this says why itself.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(setting(address).as_bytes()));
    // All the room at once: what grows leaves copies behind.
    let (mut got, mut words) = (Vec::with_capacity(most + 1), Vec::new());
    let mut read = child.stdout.take().map_or(Ok(0), |out| out.take(most as u64 + 1).read_to_end(&mut got));
    if read.is_err() || got.len() > most {
        // It may have no end.
        let _ = child.kill();
    } else {
        read = child.stderr.take().map_or(Ok(0), |said| said.take(WORDS_BYTES_MAX).read_to_end(&mut words));
    }
    let status = child.wait().map_err(failed)?;
    read.map_err(failed)?;
    if got.len() > most {
        return Err((ErrorKind::Invalid, format!("Couldn't GET {shown}: it has more than {bytes_max} bytes, and no key has.")));
    }
    if !status.success() {
        return Err((ErrorKind::Io, format!("Failed to connect to {shown}: {}", reason(&words, status))));
    }
    let code = got.split_off(got.len().saturating_sub(STATUS_BYTES));
    match code.first() {
        Some(b'2') if code.len() == STATUS_BYTES => Ok(got),
        _ => Err((ErrorKind::Io, format!("Couldn't GET {shown}: {}", String::from_utf8_lossy(&code)))),
    }
}

/// Reason in what the program said: `curl: (6) Could not resolve host: …`, perhaps with advice on further lines.
fn reason(words: &[u8], status: ExitStatus) -> String {
    let words = String::from_utf8_lossy(words);
    let behind_number = |line: &str| Some(line.strip_prefix("curl: (")?.split_once(") ")?.1.trim().to_string());
    let found =
        words.lines().find_map(behind_number).or_else(|| words.lines().map(str::trim).find(|line| !line.is_empty()).map(String::from));
    found.unwrap_or_else(|| format!("{PROGRAM} ended with {status}"))
}

/// Address as messages have it, without what may be secret in it: a user's name and password, and what stands behind a question mark.
fn shown(address: &str) -> String {
    let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
    let (place, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = place.rsplit_once('@').map_or(place, |(_, host)| host);
    let path = path.split(['?', '#']).next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: &str = "https://me:secret@keys.example/tank?token=secret";

    /// Script in place of the program.
    fn script(text: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        command
    }

    fn got(text: &str) -> Result<Vec<u8>, Unfetched> {
        answer(start(script(text)), ADDRESS, 40)
    }

    fn words(address: &str, variables: &[(&str, &str)]) -> String {
        let variable = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value));
        let command = command(PROGRAM, address, variable);
        command.get_args().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    /// If this fails, a key is another one than the server's, an error page is taken for one, or a server that never ends fills the memory.
    #[test]
    fn an_answer_is_a_key_or_says_why_not() {
        assert_eq!(got(r"cat >/dev/null; printf 'a\nb\000c200'"), Ok(b"a\nb\0c".to_vec()));
        assert_eq!(got("printf 204"), Ok(Vec::new()));
        let io = |why: &str| Err((ErrorKind::Io, why.to_string()));
        assert_eq!(got("printf nothing404"), io("Couldn't GET https://keys.example/tank: 404"));
        assert_eq!(got("printf nothing301"), io("Couldn't GET https://keys.example/tank: 301"));
        assert_eq!(got("printf 20"), io("Couldn't GET https://keys.example/tank: 20"));
        let told = "printf half000; echo 'Warning: x' >&2; echo 'curl: (6) Could not resolve host: x.' >&2; echo 'More: y' >&2; exit 6";
        assert_eq!(got(told), io("Failed to connect to https://keys.example/tank: Could not resolve host: x."));
        assert!(got("exit 3").is_err_and(|(_, why)| why.contains("curl ended with exit status: 3")));
        let long = got("exec yes");
        assert!(long.is_err_and(|(kind, why)| kind == ErrorKind::Invalid && why.contains("more than 40 bytes")));
        let missing = answer(start(Command::new("/nowhere/curl")), ADDRESS, 40);
        assert!(missing.is_err_and(|(kind, why)| kind == ErrorKind::Unsupported && why.ends_with("install curl.")));
    }

    /// If this fails, a password in an address is read by everybody on the machine, a key that was asked for over https goes in the clear, or settings
    /// of the user's for something else decide where it comes from.
    #[test]
    fn addresses_are_no_words_of_the_command_line() {
        let plain = words(ADDRESS, &[]);
        assert!(plain.starts_with("-q --config - ") && plain.ends_with(" --proto =https --proto-redir =https"), "{plain}");
        assert!(!plain.contains("example") && !plain.contains("secret"), "{plain}");
        assert!(words("http://keys.example/", &[]).ends_with(" --proto =https,http --proto-redir =https,http"));
        let files =
            [("SSL_CA_CERT_FILE", "/ca"), ("SSL_CA_CERT_PATH", ""), ("SSL_CLIENT_CERT_FILE", r"/a:b\c"), ("SSL_CLIENT_KEY_FILE", "/k:y")];
        assert!(words(ADDRESS, &files).ends_with(r" =https --cacert /ca --cert /a\:b\\c --key /k:y"));
        assert_eq!(setting(r#"https://a/"b\"#), "url = \"https://a/\\\"b\\\\\"\n");
        assert!(get("https://a/\noutput = /etc/passwd", 40).is_err_and(|(kind, _)| kind == ErrorKind::Invalid));
    }

    #[test]
    fn secrets_of_addresses_are_not_shown() {
        assert_eq!(shown(ADDRESS), "https://keys.example/tank");
        assert_eq!(shown("http://[::1]:80?a#b"), "http://[::1]:80");
        assert_eq!(shown("https://keys.example/a@b"), "https://keys.example/a@b");
    }

    #[test]
    fn other_locations_are_left_to_others() {
        assert!(is_address("https://a") && is_address("http://a"));
        assert!(!is_address("prompt") && !is_address("file:///http://a") && !is_address("ftp://a"));
    }
}
