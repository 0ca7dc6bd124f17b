//! `zirconia hostid`: gives this system the id by which others know it, as OpenZFS's zgenhostid(8) does. The program is that one, too, when it is
//! called by its name.

use clap::{Args, Parser};
use control_api::{ErrorKind, Failure, os_error};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// File that has the id, as gethostid(3) reads it.
const HOSTID: &str = "/etc/hostid";
/// Source of random ids.
const RANDOM: &str = "/dev/urandom";
/// Name of OpenZFS's program, by which this one is called for the id alone.
const ALONE: &str = "zgenhostid";
/// Words for an id that is not given.
const WHAT: &str = "cannot give this system an id";

/// Options and arguments of the verb.
#[derive(Debug, Args)]
pub(crate) struct Wish {
    /// Write it although there is one.
    #[arg(short = 'f')]
    force: bool,
    /// Another file than /etc/hostid.
    #[arg(short = 'o', value_name = "file")]
    output: Option<PathBuf>,
    /// The id, of up to eight hexadecimal digits; a random one otherwise.
    #[arg(value_name = "id")]
    id: Option<String>,
}

/// Command line of zgenhostid(8).
#[derive(Debug, Parser)]
#[command(name = ALONE)]
struct Alone {
    #[command(flatten)]
    wish: Wish,
}

/// True when this program was called as zgenhostid(8).
pub(crate) fn is_called() -> bool {
    cli::is_called(&[ALONE])
}

/// Does what zgenhostid(8) does: prints nothing, and 1 is the exit code of every error, a wrong command line and `-h` too.
pub(crate) fn alone() -> ExitCode {
    if let Some(refused) = cli::refuse_bytes(cli::EXIT_FAILURE) {
        return refused;
    }
    let given = Alone::try_parse().map_err(|error| error.to_string());
    match given.and_then(|alone| give(&alone.wish).map_err(|failure| failure.to_string())) {
        Ok(_) => ExitCode::SUCCESS,
        Err(why) => {
            cli::errln!("{}", why.trim_end());
            ExitCode::from(cli::EXIT_FAILURE)
        }
    }
}

/// Writes the id, and prints it.
///
/// # Errors
/// An id that cannot be one, a file that is there, and those of writing it.
pub(crate) fn run(wish: &Wish) -> Result<u8, Failure> {
    cli::outln!("{:08x}", give(wish)?);
    Ok(0)
}

/// Writes the id, and returns it.
fn give(wish: &Wish) -> Result<u32, Failure> {
    let asked = wish.id.as_deref().map_or(Ok(0), parse)?;
    let id = if asked == 0 { random().map_err(|error| failed(Path::new(RANDOM), &error))? } else { asked };
    write(wish.output.as_deref().unwrap_or(Path::new(HOSTID)), id, wish.force)?;
    Ok(id)
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    let kind = if error.kind() == io::ErrorKind::PermissionDenied { ErrorKind::Permission } else { ErrorKind::Io };
    Failure::new(kind, WHAT, format!("{}: {}", path.display(), os_error(error)))
}

fn parse(text: &str) -> Result<u32, Failure> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let is_one = (1..=8).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = u32::from_str_radix(digits, 16).ok().filter(|_| is_one);
    id.ok_or_else(|| Failure::new(ErrorKind::Invalid, WHAT, format!("'{text}' is no hexadecimal number of up to eight digits")))
}

fn random() -> io::Result<u32> {
    let mut source = File::open(RANDOM)?;
    let mut bytes = [0; 4];
    // 0 is none.
    while bytes == [0; 4] {
        source.read_exact(&mut bytes)?;
    }
    Ok(u32::from_le_bytes(bytes))
}

fn write(path: &Path, id: u32, force: bool) -> Result<(), Failure> {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o644).create(force).truncate(force).create_new(!force);
    match options.open(path).and_then(|mut file| file.write_all(&id.to_le_bytes())) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(Failure::new(ErrorKind::Exists, WHAT, format!("it has one: {} is there", path.display()))
                .advise("'-f' gives it another one; pools that it did not export are another system's then"))
        }
        Err(error) => Err(failed(path, &error)),
        Ok(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a system gets another id than it was told, or loses the one that its pools know.
    #[test]
    fn an_id_is_written_once() {
        let path = std::env::temp_dir().join(format!("zirconia-hostid-{}", std::process::id()));
        let wish = |id: Option<&str>, force| Wish { force, output: Some(path.clone()), id: id.map(String::from) };
        assert_eq!(run(&wish(Some("89abcdef"), false)), Ok(0));
        assert_eq!(std::fs::read(&path).expect("it was written"), [0xEF, 0xCD, 0xAB, 0x89]);
        assert_eq!(run(&wish(Some("1"), false)).map_err(|failure| failure.kind), Err(ErrorKind::Exists));
        assert_eq!(std::fs::read(&path).expect("it is there"), [0xEF, 0xCD, 0xAB, 0x89]);
        assert_eq!(run(&wish(Some("0x1a"), true)), Ok(0));
        assert_eq!(std::fs::read(&path).expect("it was written"), [0x1A, 0, 0, 0]);
        assert_eq!(run(&wish(None, true)), Ok(0));
        let drawn = std::fs::read(&path).expect("it was written");
        assert!(drawn.len() == 4 && drawn != [0; 4], "{drawn:?}");
        for wrong in ["", "0x", "123456789", "+1", "g"] {
            assert_eq!(run(&wish(Some(wrong), true)).map_err(|failure| failure.kind), Err(ErrorKind::Invalid), "{wrong}");
        }
        std::fs::remove_file(&path).expect("a temporary file");
    }

    /// If this fails, "No such file or directory" is all that is said of a file that cannot be written.
    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let path = std::env::temp_dir().join(format!("zirconia-hostid-none-{}/x", std::process::id()));
        let refused = run(&Wish { force: false, output: Some(path.clone()), id: Some("1".to_string()) }).expect_err("no such folder");
        assert_eq!(refused.why, format!("{}: No such file or directory", path.display()));
    }
}
