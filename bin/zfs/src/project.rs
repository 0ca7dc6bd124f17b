//! `zfs project`: the projects that files and directories are charged to (OpenZFS: `zfs_project.c`).

use clap::Args;
use cli::print::Output;
use cli::{Client, Stop};
use control_api::{ErrorKind, Failure, ProjectReport, ProjectRequest, Request, Response};
use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Exit code of OpenZFS's program where a file cannot be looked at or changed.
const EXIT_REFUSED: u8 = 255;
/// Words of the system for a file that is not there.
const NO_ENTRY: &str = "No such file or directory";
/// Inode number of `.zfs`, which has no project (OpenZFS: `ZFSCTL_INO_ROOT`).
const CONTROL_INODE: u64 = 0x0000_FFFF_FFFF_FFFF;
/// Number of files of one request: a request is not longer than 4 MiB.
const FILES_AT_ONCE: usize = 1 << 14;

/// `zfs project`.
#[derive(Args, Clone, Debug)]
pub struct Project {
    /// Names that end with a zero byte, for what -c finds.
    #[arg(short = '0')]
    pub zero: bool,
    /// Take the project and the mark that hands it on away.
    #[arg(short = 'C')]
    pub clear: bool,
    /// Tell which files have another project than their directory, or lack the mark.
    #[arg(short = 'c')]
    pub check: bool,
    /// The directory itself, not what is in it.
    #[arg(short = 'd', overrides_with = "recursive")]
    pub directory: bool,
    /// Keep the project (-C).
    #[arg(short = 'k')]
    pub keep: bool,
    /// Number of the project.
    #[arg(short = 'p', value_name = "id")]
    pub project: Option<String>,
    /// Everything below directories too.
    #[arg(short = 'r', overrides_with = "directory")]
    pub recursive: bool,
    /// Mark directories, so that new files in them get their project.
    #[arg(short = 's')]
    pub mark: bool,
    /// Files and directories.
    #[arg(value_name = "file|directory")]
    pub paths: Vec<String>,
}

/// Operation on each file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    List,
    Check,
    Clear,
    Set,
}

impl Project {
    fn action(&self) -> Result<Action, Stop> {
        let wrong = |why: &str| Err(Stop::usage(why));
        if [self.clear, self.check, self.mark].iter().filter(|given| **given).count() > 1 {
            return wrong("cannot specify '-C' '-c' '-s' together");
        }
        let action = match (self.clear, self.check, self.mark || self.project.is_some()) {
            (true, ..) => Action::Clear,
            (_, true, _) => Action::Check,
            (_, _, true) => Action::Set,
            _ => Action::List,
        };
        match action {
            Action::Clear if self.directory => wrong("'-d' is useless together with '-C'"),
            Action::Set if self.directory => wrong("'-d' is useless for set project ID and/or inherit flag"),
            Action::Clear if self.project.is_some() => wrong("'-p' is useless together with '-C'"),
            Action::List | Action::Check | Action::Set if self.keep => wrong("'-k' is only valid together with '-C'"),
            Action::List | Action::Clear | Action::Set if self.zero => wrong("'-0' is only valid together with '-c'"),
            action => Ok(action),
        }
    }
}

/// Number of a project, decimal, octal or hexadecimal as strtoull(3) has it.
fn number(word: &str) -> Option<u32> {
    let number = match (word.strip_prefix("0x"), word.strip_prefix('0')) {
        (Some(digits), _) => u64::from_str_radix(digits, 16).ok()?,
        (_, Some(digits)) if !digits.is_empty() => u64::from_str_radix(digits, 8).ok()?,
        _ => word.parse().ok()?,
    };
    u32::try_from(number).ok().filter(|number| *number != u32::MAX)
}

/// Operation on files, wherever the walk meets them.
struct Work<'a> {
    client: &'a Client,
    how: &'a Project,
    action: Action,
    /// Mountpoint of the file system of ours that has this device number; None where it is another's.
    mountpoints: BTreeMap<u64, Option<String>>,
    /// Project that files are to have.
    expected: u32,
    /// True once something could not be looked at or changed, of which was told.
    has_failed: bool,
}

/// File or directory, which may be a mountpoint.
struct Found {
    path: PathBuf,
    inode: u64,
    device: u64,
}

/// Runs the verb.
pub fn run(client: &Client, arguments: &Project) -> Result<u8, Stop> {
    let action = arguments.action()?;
    let project = match &arguments.project {
        None => None,
        Some(word) => Some(number(word).ok_or_else(|| Stop::usage("invalid project ID"))?),
    };
    if arguments.paths.is_empty() {
        return Err(Stop::usage("missing file or directory target(s)"));
    }
    let mut work = Work { client, how: arguments, action, mountpoints: BTreeMap::new(), expected: 0, has_failed: false };
    for path in &arguments.paths {
        if let Err(why) = work.target(project, path) {
            work.complain(&why);
        }
    }
    Ok(if work.has_failed { EXIT_REFUSED } else { 0 })
}

impl Work<'_> {
    /// Does what is asked for with one word of the command line; the error is what is said.
    fn target(&mut self, project: Option<u32>, path: &str) -> Result<(), String> {
        let found = std::fs::metadata(path).map_err(|error| format!("failed to stat {path}: {}", cli::os_error(&error)))?;
        if !found.is_file() && !found.is_dir() {
            return Err("only support project quota on regular file or directory".to_string());
        }
        let given = [(self.how.directory, 'd'), (self.how.recursive, 'r')];
        if let (false, Some(option)) = (found.is_dir(), given.iter().find(|(given, _)| *given)) {
            return Err(format!("'-{}' option on non-dir target {path}", option.1));
        }
        let mountpoint = cli::place_of_path(path).map_err(|failure| failure.to_string())?;
        self.expected = match project {
            Some(project) => project,
            None if matches!(self.action, Action::Set | Action::Check) => {
                let reports = self.ask(&mountpoint, &[found.ino()], None, None).map_err(|failure| failure.to_string())?;
                reports.first().map(|report| report.project).unwrap_or_default()
            }
            None => 0,
        };
        self.mountpoints.insert(found.dev(), Some(mountpoint));
        self.all(&[Found { path: PathBuf::from(path), inode: found.ino(), device: found.dev() }], false)?;
        let looks = matches!(self.action, Action::List | Action::Check);
        if !found.is_dir() || self.how.directory || !self.how.recursive && !looks {
            return Ok(());
        }
        let mut left = VecDeque::from([PathBuf::from(path)]);
        while let Some(directory) = left.pop_front() {
            let (files, below) = self.entries(&directory)?;
            self.all(&files, true)?;
            left.extend(below.into_iter().filter(|_| self.how.recursive));
        }
        Ok(())
    }

    /// Says what failed.
    fn complain(&mut self, why: &str) {
        cli::errln!("{why}");
        self.has_failed = true;
    }

    fn ask(&self, mountpoint: &str, inodes: &[u64], project: Option<u32>, inherit: Option<bool>) -> Result<Vec<ProjectReport>, Failure> {
        let request = ProjectRequest { mountpoint: mountpoint.to_string(), inodes: inodes.to_vec(), project, inherit };
        match self.client.call(&Request::Project(request))? {
            Response::Projects(reports) => Ok(reports),
            other => Err(cli::unexpected("cannot look at projects", other)),
        }
    }

    /// Mountpoint of the file system that has this device number; None where it is none of ours.
    fn mountpoint(&mut self, device: u64) -> Result<Option<String>, String> {
        if let Some(known) = self.mountpoints.get(&device) {
            return Ok(known.clone());
        }
        // Others have file systems in userspace too: the daemon knows its own.
        let place = cli::place_of_device(device).map_err(|error| format!("cannot read the table of mounts: {}", cli::os_error(&error)))?;
        let is_own = |place: &String| match self.ask(place, &[], None, None) {
            Err(failure) if failure.kind == ErrorKind::NotFound => Ok(false),
            answer => answer.map(|_| true).map_err(|failure| failure.to_string()),
        };
        let place = match place {
            Some(place) if is_own(&place)? => Some(place),
            _ => None,
        };
        self.mountpoints.insert(device, place.clone());
        Ok(place)
    }

    /// Files of a directory, and the directories among them, also where other file systems of ours are mounted in it. What has no project is told of and
    /// left out, so is what cannot be looked at; what goes away meanwhile is left out.
    fn entries(&mut self, directory: &Path) -> Result<(Vec<Found>, Vec<PathBuf>), String> {
        let (mut files, mut below) = (Vec::new(), Vec::new());
        let list = match std::fs::read_dir(directory) {
            Ok(list) => list,
            Err(error) => {
                self.cannot("opendir", directory, &error);
                return Ok((files, below));
            }
        };
        for entry in list {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.cannot("readdir", directory, &error);
                    break;
                }
            };
            let path = entry.path();
            let found = match std::fs::metadata(&path) {
                Ok(found) => found,
                Err(error) => {
                    self.cannot("open", &path, &error);
                    continue;
                }
            };
            if found.ino() == CONTROL_INODE && entry.file_name() == ".zfs" {
                continue;
            }
            if !found.is_file() && !found.is_dir() {
                cli::errln!("skipped {}: only regular files and directories have projects", path.display());
            } else if self.mountpoint(found.dev())?.is_none() {
                cli::errln!("skipped {}: not on a mounted ZFS filesystem", path.display());
            } else {
                below.extend(entry.file_type().is_ok_and(|kind| kind.is_dir()).then(|| path.clone()));
                files.push(Found { path, inode: found.ino(), device: found.dev() });
            }
        }
        Ok((files, below))
    }

    /// Says what a walk cannot do with a file or directory, if that is there.
    fn cannot(&mut self, verb: &str, path: &Path, error: &std::io::Error) {
        if error.kind() != std::io::ErrorKind::NotFound {
            self.complain(&format!("failed to {verb} {}: {}", path.display(), cli::os_error(error)));
        }
    }

    /// Looks at files and does what is to be done to them. What goes wrong with one of them, met in a walk, keeps it from none of the others.
    fn all(&mut self, files: &[Found], walks: bool) -> Result<(), String> {
        for files in files.chunk_by(|one, next| one.device == next.device).flat_map(|files| files.chunks(FILES_AT_ONCE)) {
            self.some(files, walks)?;
        }
        Ok(())
    }

    /// Does the same with some files of one file system.
    fn some(&mut self, files: &[Found], walks: bool) -> Result<(), String> {
        let Some(first) = files.first() else { return Ok(()) };
        let Some(mountpoint) = self.mountpoint(first.device)? else { return Ok(()) };
        let inodes: Vec<u64> = files.iter().map(|file| file.inode).collect();
        let reports = self.ask(&mountpoint, &inodes, None, None).map_err(|failure| failure.to_string())?;
        let mut wrong = Vec::new();
        for (file, report) in files.iter().zip(&reports) {
            match &report.failure {
                Some(why) => self.refused("get", file, why, walks)?,
                None if self.is_to_change(report) => wrong.push(file),
                None => self.tell(&file.path, report),
            }
        }
        if wrong.is_empty() {
            return Ok(());
        }
        let inodes: Vec<u64> = wrong.iter().map(|file| file.inode).collect();
        let (project, inherit) = match self.action {
            Action::Clear => ((!self.how.keep).then_some(0), Some(false)),
            _ => (Some(self.expected), self.how.mark.then_some(true)),
        };
        let reports = self.ask(&mountpoint, &inodes, project, inherit).map_err(|failure| failure.to_string())?;
        for (file, report) in wrong.iter().zip(&reports) {
            if let Some(why) = &report.failure {
                self.refused("set", file, why, walks)?;
            }
        }
        Ok(())
    }

    /// Says why a file is not looked at or changed, or, where it is what was named, ends with that. What goes away during a walk is nobody's loss.
    fn refused(&mut self, verb: &str, file: &Found, why: &str, walks: bool) -> Result<(), String> {
        let words = format!("failed to {verb} xattr for {}: {why}", file.path.display());
        if !walks {
            return Err(words);
        }
        if why != NO_ENTRY {
            self.complain(&words);
        }
        Ok(())
    }

    fn is_to_change(&self, report: &ProjectReport) -> bool {
        match self.action {
            Action::List | Action::Check => false,
            Action::Clear => report.inherits || !self.how.keep && report.project != 0,
            Action::Set => report.project != self.expected || self.how.mark && !report.inherits,
        }
    }

    /// Says what a look at a file finds.
    fn tell(&self, path: &Path, report: &ProjectReport) {
        let say = |before: &str, after: &str| {
            // What fails here ends the program.
            let _ = Output.write_all(&[before.as_bytes(), path.as_os_str().as_bytes(), after.as_bytes()].concat());
        };
        match self.action {
            Action::List => say(&format!("{:5} {} ", report.project, if report.inherits { 'P' } else { '-' }), "\n"),
            Action::Check if report.project == self.expected && report.inherits => {}
            Action::Check if self.how.zero => say("", "\0"),
            Action::Check => {
                if report.project != self.expected {
                    say("", &format!(" - project ID is not set properly ({}/{})\n", report.project, self.expected));
                }
                if !report.inherits {
                    say("", " - project inherit flag is not set\n");
                }
            }
            Action::Clear | Action::Set => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        project: Project,
    }

    fn action(words: &[&str]) -> Result<Action, String> {
        let line = Line::try_parse_from([&["project"][..], words].concat()).expect("options that are there");
        line.project.action().map_err(|stop| match stop {
            Stop::Usage(why) => why,
            Stop::Failed(failure) => failure.to_string(),
        })
    }

    /// If this fails, scripts that set projects change files that they meant to look at.
    #[test]
    fn options_say_what_is_done() {
        let of = |words: &[&str]| action(words).expect("a possible combination");
        assert_eq!([of(&["x"]), of(&["-r", "x"]), of(&["-c", "x"])], [Action::List, Action::List, Action::Check]);
        assert_eq!([of(&["-p", "1", "x"]), of(&["-s", "x"]), of(&["-C", "-k", "x"])], [Action::Set, Action::Set, Action::Clear]);
        assert_eq!([of(&["-c", "-d", "-r", "x"]), of(&["-c", "-p", "1", "x"])], [Action::Check, Action::Check]);
        for words in ["-c -C", "-c -s", "-c -k", "-C -d", "-C -p 1", "-C -0", "-s -d", "-s -k", "-s -0", "-p 1 -d", "-k", "-0"] {
            let words: Vec<&str> = words.split(' ').chain(["x"]).collect();
            assert!(action(&words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn numbers_are_those_that_a_project_can_have() {
        let numbers = ["7", "0x10", "010", "0", "4294967294", "4294967295", "-1", "x"].map(number);
        assert_eq!(numbers, [Some(7), Some(16), Some(8), Some(0), Some(u32::MAX - 1), None, None, None]);
    }
}
