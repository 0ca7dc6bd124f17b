//! `zfs share` and `zfs unshare`: what file systems' properties say about NFS and SMB is done by [`crate::export`], where they are mounted (OpenZFS:
//! `share_mount`, `unshare_unmount`). Only mounts of the daemon that is asked are shared.

use crate::export::{self, System};
use clap::Args;
use cli::{Client, Stop, done};
use control_api::{DatasetQuery, DatasetReport, ErrorKind, Failure, MountReport, MountRequest, Request, Response};
use std::collections::BTreeMap;

/// `zfs share` and `zfs unshare`.
#[derive(Debug, Args)]
pub struct Share {
    /// All; of NFS or SMB alone where one is named.
    #[arg(short)]
    all: bool,
    /// File system, or its mountpoint.
    #[arg(value_name = "nfs|smb|filesystem|mountpoint")]
    words: Vec<String>,
}

/// Protocol by which file systems are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Nfs,
    Smb,
}

const BOTH: [Protocol; 2] = [Protocol::Nfs, Protocol::Smb];

impl Share {
    /// Protocols that are meant, and the file system; none with `-a`.
    fn read(&self) -> Result<(Vec<Protocol>, Option<&str>), Stop> {
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        match (self.all, words.as_slice()) {
            (true, []) => Ok((BOTH.to_vec(), None)),
            (true, ["nfs"]) => Ok((vec![Protocol::Nfs], None)),
            (true, ["smb"]) => Ok((vec![Protocol::Smb], None)),
            (false, [target]) => Ok((BOTH.to_vec(), Some(*target))),
            (false, []) => Err(Stop::usage("missing filesystem argument (specify -a for all)")),
            _ => Err(Stop::usage("too many arguments")),
        }
    }
}

/// File system with what counts for shares of it.
#[derive(Debug)]
struct FileSystem {
    name: String,
    sharenfs: String,
    sharesmb: String,
    canmount: String,
    mountpoint: String,
    guid: u64,
    /// Path at which it is mounted.
    place: Option<String>,
}

impl FileSystem {
    fn of(report: &DatasetReport, places: &BTreeMap<String, String>) -> FileSystem {
        let text = |name: &str| cli::find(&report.properties, name).map_or_else(String::new, |property| cli::show(&property.value, true));
        FileSystem {
            name: report.name.clone(),
            sharenfs: text("sharenfs"),
            sharesmb: text("sharesmb"),
            canmount: text("canmount"),
            mountpoint: text("mountpoint"),
            guid: text("guid").parse().unwrap_or_default(),
            place: places.get(&report.name).cloned(),
        }
    }

    /// True where a property says that it is shared so.
    fn wants(&self, protocol: Protocol) -> bool {
        let value = if protocol == Protocol::Nfs { &self.sharenfs } else { &self.sharesmb };
        !matches!(value.as_str(), "" | "-" | "off")
    }

    /// Path at which it is, or would be, mounted.
    fn shown(&self) -> &str {
        self.place.as_deref().unwrap_or(&self.mountpoint)
    }

    fn is_shared(&self, system: &System, protocol: Protocol) -> bool {
        match protocol {
            Protocol::Nfs => system.is_exported(self.shown()),
            Protocol::Smb => system.is_usershare(&self.name, self.shown()),
        }
    }

    /// Refuses what is not shared by a property, or nowhere (OpenZFS: `share_mount_one`).
    fn check(&self, system: &System) -> Result<(), Failure> {
        let refuse = |kind, why: &str| Err(Failure::new(kind, format!("cannot share '{}'", self.name), why));
        match self.mountpoint.as_str() {
            _ if !BOTH.into_iter().any(|protocol| self.wants(protocol)) => {
                refuse(ErrorKind::Invalid, "legacy share\nto share this filesystem set sharenfs property on")
            }
            "legacy" => refuse(ErrorKind::Invalid, "legacy mountpoint\nuse exports(5) or smb.conf(5) to share this filesystem"),
            "none" => refuse(ErrorKind::Invalid, "no mountpoint set"),
            _ if self.canmount == "off" => refuse(ErrorKind::Invalid, "'canmount' property is set to 'off'"),
            _ if BOTH.into_iter().all(|protocol| !self.wants(protocol) || self.is_shared(system, protocol)) => {
                refuse(ErrorKind::Exists, "filesystem already shared")
            }
            _ => Ok(()),
        }
    }
}

/// File systems: that of this name or mountpoint, or all.
fn file_systems(client: &Client, target: Option<&str>) -> Result<Vec<FileSystem>, Failure> {
    let places: BTreeMap<String, String> = mounted(client)?.into_iter().map(|mount| (mount.name, mount.mountpoint)).collect();
    let name = target.map(|target| {
        let at = places.iter().find(|(_, place)| target.starts_with('/') && *place == target);
        at.map_or_else(|| target.to_string(), |(name, _)| name.clone())
    });
    let depth = name.as_ref().map(|_| 0);
    let query = DatasetQuery { names: name.into_iter().collect(), depth, types: vec!["filesystem".to_string()], asked: Vec::new() };
    match client.call(&Request::DatasetQuery(query))? {
        Response::Datasets(reports) => Ok(reports.iter().map(|report| FileSystem::of(report, &places)).collect()),
        other => Err(cli::unexpected("cannot list file systems", other)),
    }
}

/// Says why something could not be shared, or unshared; returns the exit code.
fn failed(verb: &str, name: &str, why: &str) -> u8 {
    cli::errln!("{}", Failure::new(ErrorKind::Io, format!("cannot {verb} '{name}'"), why));
    cli::EXIT_FAILURE
}

/// `zfs share`.
pub fn share(client: &Client, arguments: &Share) -> Result<u8, Stop> {
    let (protocols, target) = arguments.read()?;
    let system = System::default();
    let mut found = file_systems(client, target)?;
    if let (Some(target), Some(one)) = (target, found.first()) {
        one.check(&system)?;
        if one.place.is_none() {
            done(client, &Request::Mount(MountRequest { name: Some(one.name.clone()), ..MountRequest::default() }))?;
            found = file_systems(client, Some(target))?;
        }
    }
    let mut code = 0;
    let mut exports = Vec::new();
    let mounted = found.iter().filter_map(|one| Some((one, one.place.as_deref()?)));
    for (one, place) in mounted {
        if protocols.contains(&Protocol::Nfs) && one.wants(Protocol::Nfs) {
            match export::lines(place, one.guid, &one.sharenfs) {
                Ok(lines) => exports.push((place, lines)),
                Err(why) => code = failed("share", &one.name, &format!("sharenfs: {why}")),
            }
        }
        let is_smb = protocols.contains(&Protocol::Smb) && one.wants(Protocol::Smb);
        if let Some(Err(why)) = is_smb.then(|| system.add_usershare(&one.name, place)) {
            code = failed("share", &one.name, &why);
        }
    }
    if protocols.contains(&Protocol::Nfs) {
        // Of file systems that are not there any more lines may be left: exportfs passes over what is no mountpoint.
        let outcome = system.export(|table| {
            found.iter().for_each(|one| table.remove(one.shown()));
            exports.iter().for_each(|(place, lines)| table.put(place, lines));
        });
        if let Err(why) = outcome {
            code = failed("share", target.unwrap_or("-a"), &why);
        }
    }
    Ok(code)
}

/// `zfs unshare`.
pub fn unshare(client: &Client, arguments: &Share) -> Result<u8, Stop> {
    let (protocols, target) = arguments.read()?;
    let system = System::default();
    let found = file_systems(client, target)?;
    let is_shared = |one: &FileSystem, protocol| protocols.contains(&protocol) && one.is_shared(&system, protocol);
    let named = found.first().filter(|_| target.is_some());
    if let Some(one) = named.filter(|one| !protocols.iter().any(|protocol| is_shared(one, *protocol))) {
        return Ok(failed("unshare", &one.name, "not currently shared"));
    }
    let mut code = 0;
    for one in found.iter().filter(|one| is_shared(one, Protocol::Smb)) {
        if let Err(why) = system.remove_usershare(&one.name) {
            code = failed("unshare", &one.name, &why);
        }
    }
    if protocols.contains(&Protocol::Nfs) {
        let outcome = system.export(|table| found.iter().for_each(|one| table.remove(one.shown())));
        if let Err(why) = outcome {
            code = failed("unshare", target.unwrap_or("-a"), &why);
        }
    }
    Ok(code)
}

/// Mounts of the daemon.
pub fn mounted(client: &Client) -> Result<Vec<MountReport>, Failure> {
    match client.call(&Request::Mount(MountRequest::default()))? {
        Response::Mounts(mounts) => Ok(mounts),
        other => Err(cli::unexpected("cannot list mounts", other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(all: bool, words: &[&str]) -> Share {
        Share { all, words: words.iter().map(|word| (*word).to_string()).collect() }
    }

    /// `zfs share nfs` is a pool of that name, and `-a nfs` all that is exported: one for the other opens what nobody meant.
    #[test]
    fn protocols_are_named_with_all_only() {
        let read = |share: &Share| share.read().map(|(protocols, target)| (protocols, target.map(String::from))).ok();
        assert_eq!(read(&words(true, &["nfs"])), Some((vec![Protocol::Nfs], None)));
        assert_eq!(read(&words(true, &["smb"])), Some((vec![Protocol::Smb], None)));
        assert_eq!(read(&words(true, &[])), Some((BOTH.to_vec(), None)));
        assert_eq!(read(&words(false, &["nfs"])), Some((BOTH.to_vec(), Some("nfs".to_string()))));
        assert!([words(true, &["tank"]), words(false, &[]), words(false, &["a", "b"])].iter().all(|share| read(share).is_none()));
    }

    /// Who shares a file system by name is told why nothing is to be seen.
    #[test]
    fn what_cannot_be_shared_is_refused_with_the_reason() {
        let file_system = |sharenfs: &str, mountpoint: &str, canmount: &str| FileSystem {
            name: "tank/a".into(),
            sharenfs: sharenfs.into(),
            sharesmb: "off".into(),
            canmount: canmount.into(),
            mountpoint: mountpoint.into(),
            guid: 7,
            place: None,
        };
        let why = |one: FileSystem| one.check(&System::default()).err().map(|failure| failure.why).unwrap_or_default();
        assert!(why(file_system("off", "/tank/a", "on")).starts_with("legacy share"));
        assert!(why(file_system("on", "legacy", "on")).starts_with("legacy mountpoint"));
        assert_eq!(why(file_system("on", "none", "on")), "no mountpoint set");
        assert_eq!(why(file_system("on", "/tank/a", "off")), "'canmount' property is set to 'off'");
        assert_eq!(why(file_system("on", "/no/such/place", "on")), "");
    }
}
