//! Ways by which a machine shares file systems: exportfs(8), with a file of exports of our own, and Samba's `net usershare` (OpenZFS:
//! `lib/libshare/os/linux`).
//!
//! Both are run by their paths, without a shell, with an environment of their own. What comes from properties is looked at first: names of hosts and
//! options are letters, digits and a few signs, and paths are escaped, so that no value makes a second line or another command.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Exports of ours; exportfs(8) reads them beside /etc/exports.
const EXPORTS: &str = "/etc/exports.d/zirconia.exports";
/// First line of that file.
const HEADER: &str = "# Written by 'zfs share' and 'zfs unshare' of Zirconia.\n";
/// Folder in which Samba keeps a file for each user share.
const USERSHARES: &str = "/var/lib/samba/usershares";
/// Folders of the programs.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// Search path of the programs.
const SEARCH_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// Options of exports(5) without a value that `sharenfs` passes on.
const PLAIN: [&str; 22] = [
    "all_squash",
    "async",
    "auth_nlm",
    "crossmnt",
    "hide",
    "insecure",
    "insecure_locks",
    "mountpoint",
    "mp",
    "no_acl",
    "no_all_squash",
    "no_auth_nlm",
    "no_root_squash",
    "no_subtree_check",
    "no_wdelay",
    "nohide",
    "root_squash",
    "secure",
    "secure_locks",
    "subtree_check",
    "sync",
    "wdelay",
];
/// First half of the ids of exports, by which clients know a file system again: mounts in user space have none of their own.
const ID: &str = "7a697263-6f6e-6961";

/// Path as exports(5) has it: bytes that mean something there are in octal.
fn escaped(place: &str) -> String {
    let one = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' | b'+' | b':' | b'@' | b'%' => char::from(byte).to_string(),
        other => format!("\\{other:03o}"),
    };
    place.bytes().map(one).collect()
}

/// Hosts between colons; addresses that have colons themselves are in brackets, with a prefix length behind.
fn hosts(list: &str) -> Result<Vec<String>, String> {
    let (mut found, mut rest) = (Vec::new(), list);
    while !rest.is_empty() {
        let begin = if rest.starts_with('[') { rest.find(']').unwrap_or(0) } else { 0 };
        let end = rest[begin..].find(':').map(|end| begin + end);
        let (host, more) = end.map_or((rest, ""), |end| (&rest[..end], &rest[end + 1..]));
        let host = host.replace(['[', ']'], "");
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-*?@/:".contains(&byte);
        if host.is_empty() || host.starts_with('-') || !host.bytes().all(is_known) {
            return Err(format!("'{host}' is no host"));
        }
        found.push(host);
        rest = more;
    }
    if found.is_empty() { Err("it names no host".to_string()) } else { Ok(found) }
}

/// Option of exports(5) for a word of `sharenfs` that is neither access nor `sec`.
fn option(key: &str, value: Option<&str>) -> Result<String, String> {
    let number = || value.filter(|value| value.parse::<i64>().is_ok()).ok_or_else(|| format!("'{key}' wants a number"));
    match (key, value) {
        ("nosub", None) => Ok("subtree_check".to_string()),
        ("fsid", Some("root")) => Ok("fsid=root".to_string()),
        ("anon", _) => Ok(format!("anonuid={}", number()?)),
        ("root_mapping", _) => Ok(format!("root_squash,anonuid={}", number()?)),
        ("anonuid" | "anongid" | "fsid", _) => Ok(format!("{key}={}", number()?)),
        (key, None) if PLAIN.contains(&key) => Ok(key.to_string()),
        _ => Err(format!("option '{key}' is not passed on in this version")),
    }
}

/// Lines of exports(5) for a file system that is mounted at `place`, as a value of `sharenfs` says; the error says what of it cannot be.
pub fn lines(place: &str, guid: u64, value: &str) -> Result<Vec<String>, String> {
    let value = if value == "on" { "rw,crossmnt" } else { value };
    let mut security = "sys";
    let (mut clients, mut options) = (Vec::new(), vec!["no_subtree_check".to_string(), "mountpoint".to_string()]);
    for word in value.split(',').filter(|word| !word.is_empty()) {
        let (key, given) = word.split_once('=').map_or((word, None), |(key, given)| (key, Some(given)));
        match (key, given) {
            ("sec", Some(flavours)) if flavours.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b':') => security = flavours,
            ("sec", _) => return Err(format!("'{word}' is no flavour of security")),
            ("ro" | "rw", given) => {
                let named = hosts(given.unwrap_or("*"))?;
                clients.extend(named.into_iter().map(|host| (host, format!("sec={security},{key}"))));
            }
            _ => options.push(option(key, given)?),
        }
    }
    if clients.is_empty() {
        return Err("it says neither 'rw' nor 'ro'".to_string());
    }
    if !options.iter().any(|option| option.starts_with("fsid=")) {
        options.push(format!("fsid={ID}-{:04x}-{:012x}", guid >> 48, guid & 0xffff_ffff_ffff));
    }
    let (place, options) = (escaped(place), options.join(","));
    Ok(clients.into_iter().map(|(host, access)| format!("{place} {host}({access},{options})")).collect())
}

/// Name of a file system's user share (OpenZFS: `smb_enable_share_one`).
fn usershare(name: &str) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.') { letter } else { '_' };
    name.chars().map(letter).collect()
}

/// Lines of exports, each of one place and one client.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Table(Vec<String>);

impl Table {
    fn read(text: &str) -> Table {
        Table(text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(String::from).collect())
    }

    /// Takes out the lines of a place.
    pub fn remove(&mut self, place: &str) {
        let escaped = escaped(place);
        self.0.retain(|line| line.split(' ').next() != Some(escaped.as_str()));
    }

    /// Puts lines in the place of those of `place`.
    pub fn put(&mut self, place: &str, lines: &[String]) {
        self.remove(place);
        self.0.extend_from_slice(lines);
    }
}

/// Places of files and programs of a machine.
#[derive(Debug)]
pub struct System {
    exports: PathBuf,
    usershares: PathBuf,
    folders: Vec<PathBuf>,
}

impl Default for System {
    fn default() -> System {
        System { exports: EXPORTS.into(), usershares: USERSHARES.into(), folders: FOLDERS.iter().map(PathBuf::from).collect() }
    }
}

impl System {
    fn program(&self, name: &str) -> Result<PathBuf, String> {
        let found = self.folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
        found.ok_or_else(|| format!("'{name}' is not installed"))
    }

    fn run(program: &Path, words: &[&str]) -> Result<(), String> {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let mut command = Command::new(program);
        command.args(words).env_clear().env("PATH", SEARCH_PATH).current_dir("/").stdin(Stdio::null());
        let output = command.output().map_err(|error| format!("{name}: {}", cli::os_error(&error)))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("{name}: {}", said.lines().last().unwrap_or("it failed").trim()))
    }

    /// Changes what is exported over NFS. Whoever else does so waits.
    ///
    /// # Errors
    /// That exportfs(8) is not there or fails, or the file cannot be written.
    pub fn export(&self, change: impl Fn(&mut Table)) -> Result<(), String> {
        let told = |error: std::io::Error| format!("{}: {}", self.exports.display(), cli::os_error(&error));
        let text = || {
            std::fs::read_to_string(&self.exports).or_else(|error| match error.kind() {
                std::io::ErrorKind::NotFound => Ok(String::new()),
                _ => Err(error),
            })
        };
        // None where nothing is exported, before and after.
        let changed = || {
            let mut table = Table::read(&text().map_err(told)?);
            let was_empty = table.0.is_empty();
            change(&mut table);
            Ok::<_, String>((!was_empty || !table.0.is_empty()).then_some(table))
        };
        if changed()?.is_none() {
            return Ok(());
        }
        let program = self.program("exportfs")?;
        let folder = self.exports.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(folder).map_err(told)?;
        let lock = File::open(folder).map_err(told)?;
        lock.lock().map_err(told)?;
        let table = changed()?.unwrap_or_default();
        let lines: String = table.0.iter().map(|line| format!("{line}\n")).collect();
        service::trust::replace(&self.exports, format!("{HEADER}{lines}").as_bytes()).map_err(told)?;
        System::run(&program, &["-ra"])
    }

    /// True when a place is among the exports of ours.
    pub fn is_exported(&self, place: &str) -> bool {
        let mut table = Table::read(&std::fs::read_to_string(&self.exports).unwrap_or_default());
        let before = table.0.len();
        table.remove(place);
        table.0.len() != before
    }

    /// True when Samba shares a place under the name of this file system.
    pub fn is_usershare(&self, name: &str, place: &str) -> bool {
        let file = self.usershares.join(usershare(name).to_ascii_lowercase());
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.lines().any(|line| line.strip_prefix("path=") == Some(place))
    }

    /// Shares a place over SMB, with everybody whom the files themselves allow it.
    ///
    /// # Errors
    /// That `net` is not there or fails.
    pub fn add_usershare(&self, name: &str, place: &str) -> Result<(), String> {
        System::run(&self.program("net")?, &["usershare", "add", &usershare(name), place, name, "Everyone:F"])
    }

    /// Ends what [`System::add_usershare`] began.
    ///
    /// # Errors
    /// Those of the same.
    pub fn remove_usershare(&self, name: &str) -> Result<(), String> {
        System::run(&self.program("net")?, &["usershare", "delete", &usershare(name)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const GUID: u64 = 0x0123_4567_89ab_cdef;
    const ID_OF_GUID: &str = "7a697263-6f6e-6961-0123-456789abcdef";

    /// A value that is read wrongly opens a file system to hosts that it was closed to.
    #[test]
    fn values_become_exports_of_the_hosts_that_they_name() {
        let made = |value: &str| lines("/tank/a b", GUID, value).expect(value);
        let common = format!("no_subtree_check,mountpoint,crossmnt,fsid={ID_OF_GUID}");
        assert_eq!(made("on"), [format!("/tank/a\\040b *(sec=sys,rw,{common})")]);
        assert_eq!(made("rw,crossmnt"), made("on"));
        assert_eq!(
            made("sec=krb5:krb5p,rw=@net:[fe80::1]/64:10.0.0.0/8,ro=*.example,fsid=7,anon=99"),
            [("@net", "rw"), ("fe80::1/64", "rw"), ("10.0.0.0/8", "rw"), ("*.example", "ro")].map(|(host, access)| format!(
                "/tank/a\\040b {host}(sec=krb5:krb5p,{access},no_subtree_check,mountpoint,fsid=7,anonuid=99)"
            ))
        );
    }

    /// Properties come with streams of others: one that could write a line of its own would export `/` to everybody.
    #[test]
    fn no_value_makes_more_than_it_says() {
        for value in [
            "rw=a b",
            "rw=a\n/ *(rw)",
            "rw=*(rw)",
            "rw=-sync",
            "rw=",
            "ro=a::b",
            "anonuid=x",
            "fsid=x",
            "sec=sys)",
            "no_root_squash",
            "refer=/x@y",
            "sync",
            "",
        ] {
            assert!(lines("/tank", GUID, value).is_err(), "{value}");
        }
        let made = lines("/tank\n/ *(rw)#", GUID, "rw=host").expect("a place");
        assert!(made.len() == 1 && made[0].starts_with("/tank\\012/\\040\\052\\050rw\\051\\043 host("), "{made:?}");
        assert_eq!(usershare("tank/a b:c"), "tank_a_b_c");
    }

    /// Machine with programs that write down what they are asked; gone when it goes.
    struct Machine(PathBuf);

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    impl Machine {
        fn new(name: &str) -> Machine {
            let machine = Machine(std::env::temp_dir().join(format!("zirconia-export-{}-{name}", std::process::id())));
            std::fs::create_dir_all(machine.0.join("bin")).expect("a folder");
            machine
        }

        fn system(&self) -> System {
            System { exports: self.0.join("d/ours.exports"), usershares: self.0.join("shares"), folders: vec![self.0.join("bin")] }
        }

        fn install(&self, program: &str) {
            let path = self.0.join("bin").join(program);
            let script = format!("#!/bin/sh\necho \"$*\" >>'{}'\n", self.0.join(program).display());
            std::fs::write(&path, script).expect("written");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("can be run");
        }

        fn text(&self, file: &str) -> String {
            std::fs::read_to_string(self.0.join(file)).unwrap_or_default()
        }
    }

    /// What is not shared any more must be gone for clients too, and what others export must stay.
    #[test]
    fn exports_come_and_go_by_place() {
        let machine = Machine::new("nfs");
        let system = machine.system();
        assert_eq!(system.export(|table| table.remove("/tank")), Ok(()), "nothing is needed for what nobody shared");
        let put = |table: &mut Table, place: &str, host: &str| table.put(place, &[format!("{place} {host}(rw)")]);
        assert_eq!(system.export(|table| put(table, "/tank", "a")), Err("'exportfs' is not installed".to_string()));
        assert!(!system.is_exported("/tank"));
        machine.install("exportfs");
        assert_eq!(system.export(|table| put(table, "/tank", "a")), Ok(()));
        assert_eq!(system.export(|table| put(table, "/tank/b", "b")), Ok(()));
        assert_eq!(system.export(|table| put(table, "/tank", "c")), Ok(()));
        assert_eq!(machine.text("d/ours.exports"), format!("{HEADER}/tank/b b(rw)\n/tank c(rw)\n"));
        assert!(system.is_exported("/tank") && !system.is_exported("/tan"));
        assert_eq!(system.export(|table| table.remove("/tank")), Ok(()));
        assert_eq!(machine.text("d/ours.exports"), format!("{HEADER}/tank/b b(rw)\n"));
        assert_eq!(system.export(|table| table.remove("/tank/b")), Ok(()));
        assert_eq!((machine.text("d/ours.exports"), machine.text("exportfs")), (HEADER.to_string(), "-ra\n".repeat(5)));
    }

    /// A share that is not known again cannot be taken back.
    #[test]
    fn user_shares_are_known_by_name_and_place() {
        let machine = Machine::new("smb");
        let system = machine.system();
        assert_eq!(system.add_usershare("tank/B", "/tank/B"), Err("'net' is not installed".to_string()));
        machine.install("net");
        assert_eq!(system.add_usershare("tank/B", "/tank/B"), Ok(()));
        assert_eq!(system.remove_usershare("tank/B"), Ok(()));
        assert_eq!(machine.text("net"), "usershare add tank_B /tank/B tank/B Everyone:F\nusershare delete tank_B\n");
        std::fs::create_dir_all(machine.0.join("shares")).expect("a folder");
        std::fs::write(machine.0.join("shares/tank_b"), "#VERSION 2\npath=/tank/B\nusershare_acl=S-1-1-0:F\n").expect("written");
        assert!(system.is_usershare("tank/B", "/tank/B") && !system.is_usershare("tank/B", "/tank"));
    }
}
