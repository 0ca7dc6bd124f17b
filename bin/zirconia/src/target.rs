//! `zirconia target`: volumes that the network sees as disks of iSCSI, and who may use them; and those that clients of NBD can have.

use clap::Subcommand;
use cli::Client;
use cli::table::{Align, Column, Table};
use control_api::{
    ChapSecret, ErrorKind, Failure, IscsiAllow, IscsiChap, IscsiDeny, IscsiReport, IscsiRight, NbdReport, Request, Response,
};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Bytes of a file with a secret, at most.
const SECRET_FILE_BYTES_MAX: u64 = 4096;
/// Words for a secret that cannot be read.
const READ_SECRET: &str = "cannot read the secret";

/// Verbs of `zirconia target`.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// The targets: their volumes, sessions, and who may use them.
    List {
        /// Separated by tabs, for scripts.
        #[arg(short = 'H')]
        scripted: bool,
    },
    /// Initiators that are logged in, and clients of NBD.
    Sessions {
        /// Separated by tabs, for scripts.
        #[arg(short = 'H')]
        scripted: bool,
    },
    /// Let an initiator use a target; secrets that it had stay.
    Allow {
        /// Let it only read.
        #[arg(long)]
        read_only: bool,
        /// The target, or its volume.
        target: String,
        /// The initiator's name (iqn…).
        initiator: String,
    },
    /// Take the right, and the secrets, from an initiator, and end its sessions.
    Deny {
        /// The target, or its volume.
        target: String,
        /// The initiator's name (iqn…).
        initiator: String,
    },
    /// Have an initiator prove that it knows a secret (CHAP), from its next login on.
    Chap {
        /// A file with the secret, which only its owner may read; - is the standard input.
        #[arg(long, value_name = "file")]
        secret_file: PathBuf,
        /// A file with another secret, which the target proves to know.
        #[arg(long, value_name = "file")]
        mutual_secret_file: Option<PathBuf>,
        /// The target, or its volume.
        target: String,
        /// The initiator's name (iqn…), which is its name in CHAP too.
        initiator: String,
    },
}

pub(crate) fn run(verb: &Verb) -> Result<u8, Failure> {
    match verb {
        Verb::List { scripted } => list(*scripted),
        Verb::Sessions { scripted } => sessions(*scripted),
        Verb::Allow { read_only, target, initiator } => {
            done(&Request::IscsiAllow(IscsiAllow { target: target.clone(), initiator: initiator.clone(), read_only: *read_only }))
        }
        Verb::Deny { target, initiator } => done(&Request::IscsiDeny(IscsiDeny { target: target.clone(), initiator: initiator.clone() })),
        Verb::Chap { secret_file, mutual_secret_file, target, initiator } => done(&Request::IscsiChap(IscsiChap {
            target: target.clone(),
            initiator: initiator.clone(),
            secret: secret(secret_file)?,
            mutual: mutual_secret_file.as_deref().map(secret).transpose()?,
        })),
    }
}

fn done(request: &Request) -> Result<u8, Failure> {
    match Client::from_environment()?.call(request)? {
        Response::Done { remarks } => remarks.iter().for_each(cli::say),
        other => return Err(cli::unexpected("cannot change rights to targets", other)),
    }
    Ok(0)
}

fn report() -> Result<(IscsiReport, NbdReport), Failure> {
    let client = Client::from_environment()?;
    match (client.call(&Request::IscsiList)?, client.call(&Request::NbdList)?) {
        (Response::Iscsi(iscsi), Response::Nbd(nbd)) => Ok((iscsi, nbd)),
        (Response::Iscsi(_), other) | (other, _) => Err(cli::unexpected("cannot ask for targets", other)),
    }
}

/// Sentences about ports of volumes that the daemon cannot open yet.
fn closed_ports() -> Result<Vec<String>, Failure> {
    let is_of_volumes = |sentence: &String| ["iSCSI:", "NBD:"].iter().any(|service| sentence.starts_with(service));
    match Client::from_environment()?.call(&Request::Info)? {
        Response::Info(info) => Ok(info.closed_ports.into_iter().filter(is_of_volumes).collect()),
        other => Err(cli::unexpected("cannot ask for ports", other)),
    }
}

/// Name of an export of NBD among targets.
fn nbd_name(volume: &str) -> String {
    format!("nbd:{volume}")
}

/// Right in a list: `iqn.2026-11.example:a(ro,chap)`.
fn worded(right: &IscsiRight) -> String {
    let words = [(right.read_only, "ro"), (right.chap && !right.mutual, "chap"), (right.mutual, "mutual-chap")];
    let words: Vec<&str> = words.into_iter().filter_map(|(is_so, word)| is_so.then_some(word)).collect();
    if words.is_empty() { right.initiator.clone() } else { format!("{}({})", right.initiator, words.join(",")) }
}

fn listed(words: &[String]) -> String {
    if words.is_empty() { "-".to_string() } else { words.join(" ") }
}

fn list(scripted: bool) -> Result<u8, Failure> {
    let (report, nbd) = report()?;
    let columns = [("TARGET", Align::Left), ("VOLUME", Align::Left), ("SESSIONS", Align::Right), ("ALLOWED", Align::Left)];
    let mut table = Table::new(columns.map(|(heading, align)| Column::new(heading, align)));
    for target in &report.targets {
        let rights: Vec<String> = target.rights.iter().map(worded).collect();
        let volume = target.volume.clone().unwrap_or_else(|| "-".to_string());
        table.row(vec![target.name.clone(), volume, target.sessions.len().to_string(), listed(&rights)]);
    }
    for export in &nbd.exports {
        // Whoever reaches it.
        table.row(vec![nbd_name(&export.volume), export.volume.clone(), export.clients.len().to_string(), "*".to_string()]);
    }
    if !scripted {
        let closed = closed_ports()?;
        match &report.address {
            Some(address) => cli::outln!("iSCSI is served at {address}"),
            None if closed.iter().any(|sentence| sentence.starts_with("iSCSI:")) => {}
            None => cli::outln!("iSCSI is not served: ZIRCONIA_ISCSI in the daemon's environment says where (zirconiad(8))"),
        }
        let places: Vec<&str> = [&nbd.socket, &nbd.address].into_iter().flatten().map(String::as_str).collect();
        if !places.is_empty() {
            cli::outln!("NBD is served at {}", places.join(" and "));
        }
        closed.iter().for_each(|sentence| cli::outln!("{sentence}"));
    }
    if scripted || !table.is_empty() {
        cli::out!("{}", table.render(scripted));
    }
    Ok(0)
}

fn sessions(scripted: bool) -> Result<u8, Failure> {
    let headings = ["TARGET", "INITIATOR", "ISID"];
    let mut table = Table::new(headings.map(|heading| Column::new(heading, Align::Left)));
    let (report, nbd) = report()?;
    for target in &report.targets {
        for session in &target.sessions {
            table.row(vec![target.name.clone(), session.initiator.clone(), format!("{:012x}", session.isid)]);
        }
    }
    for export in &nbd.exports {
        for client in &export.clients {
            table.row(vec![nbd_name(&export.volume), client.clone(), "-".to_string()]);
        }
    }
    if !table.is_empty() {
        cli::out!("{}", table.render(scripted));
    }
    if !scripted {
        crowd(report.waiting, report.turned_away).iter().for_each(|line| cli::outln!("{line}"));
    }
    Ok(0)
}

/// Words about connections that have not logged in, and those that had to go for others.
fn crowd(waiting: u64, turned_away: u64) -> Option<String> {
    match (waiting, turned_away) {
        (0, 0) => None,
        (waiting, 0) => Some(format!("connections that have not logged in: {waiting}")),
        (waiting, gone) => {
            Some(format!("connections that have not logged in: {waiting}; closed for others, or refused, since the daemon began: {gone}"))
        }
    }
}

/// Reads a secret from a file that is its owner's alone, or from the standard input; the end of its line is none of it.
fn secret(path: &Path) -> Result<ChapSecret, Failure> {
    let refused = |why: String| Failure::new(ErrorKind::Invalid, READ_SECRET, format!("{}: {why}", path.display()));
    let bytes = if path == Path::new("-") {
        let mut bytes = Vec::new();
        let read = std::io::stdin().lock().take(SECRET_FILE_BYTES_MAX).read_to_end(&mut bytes);
        read.map(|_| bytes).map_err(|error| refused(error.to_string()))?
    } else {
        let real = service::trust::file(path).map_err(|why| Failure::new(ErrorKind::Invalid, READ_SECRET, why.to_string()))?;
        let mode = std::fs::metadata(&real).map_err(|error| refused(error.to_string()))?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(
                refused("others than its owner can read it".to_string()).advise(format!("'chmod 600 {}' ends that", path.display()))
            );
        }
        service::given::read(&real, SECRET_FILE_BYTES_MAX).map_err(|error| refused(error.to_string()))?
    };
    let text = String::from_utf8(bytes).map_err(|_| refused("it is not text".to_string()))?;
    Ok(ChapSecret(text.strip_suffix('\n').unwrap_or(&text).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::DirBuilderExt;

    /// If this fails, everybody on the machine can read the secret that guards a disk, and nobody says so.
    #[test]
    fn a_secret_comes_from_a_file_that_nobody_else_can_read() {
        let folder = std::env::temp_dir().join(format!("zirconia-secret-{}", std::process::id()));
        // Whatever the umask is: a folder that others can write is not believed.
        std::fs::DirBuilder::new().mode(0o755).create(&folder).expect("a temporary directory");
        let path = folder.join("secret");
        std::fs::write(&path, "a secret of 23 bytes...\n").expect("a file");
        let set_mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("its mode");
        for mode in [0o644, 0o640, 0o604, 0o620] {
            set_mode(mode);
            assert_eq!(secret(&path).map_err(|failure| failure.kind), Err(ErrorKind::Invalid), "{mode:o}");
        }
        set_mode(0o600);
        assert_eq!(secret(&path), Ok(ChapSecret("a secret of 23 bytes...".to_string())));
        assert!(secret(&folder.join("none")).is_err() && secret(Path::new("/dev/zero")).is_err());
        std::fs::remove_dir_all(&folder).expect("a temporary directory");
    }

    /// If this fails, nobody learns that connections which say nothing are why initiators are cut off.
    #[test]
    fn crowds_are_worded() {
        assert_eq!(crowd(0, 0), None);
        assert!(crowd(3, 0).is_some_and(|line| line.ends_with("in: 3")));
        assert!(crowd(0, 7).is_some_and(|line| line.ends_with("began: 7")));
    }

    #[test]
    fn rights_are_worded() {
        let right = IscsiRight { initiator: "iqn.a".to_string(), ..IscsiRight::default() };
        assert_eq!(worded(&right), "iqn.a");
        assert_eq!(worded(&IscsiRight { read_only: true, chap: true, ..right.clone() }), "iqn.a(ro,chap)");
        assert_eq!(worded(&IscsiRight { chap: true, mutual: true, ..right }), "iqn.a(mutual-chap)");
    }
}
