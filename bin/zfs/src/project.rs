//! `zfs project`: the projects that files and directories are charged to (OpenZFS: `zfs_project.c`).

use clap::Args;
use cli::print::Output;
use cli::{Client, Stop};
use control_api::{Failure, ProjectReport, ProjectRequest, Request, Response};
use std::collections::VecDeque;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Exit code of OpenZFS's program where a file cannot be looked at or changed.
const EXIT_REFUSED: u8 = 255;
/// Words of the system for a file that is not there.
const NO_ENTRY: &str = "No such file or directory";

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

/// Operation on files of one file system.
struct Work<'a> {
    client: &'a Client,
    how: &'a Project,
    action: Action,
    mountpoint: String,
    device: u64,
    /// Project that files are to have.
    expected: u32,
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
    let mut code = 0;
    for path in &arguments.paths {
        if let Err(why) = target(client, arguments, (action, project), path) {
            cli::errln!("{why}");
            code = EXIT_REFUSED;
        }
    }
    Ok(code)
}

/// Does what is asked for with one word of the command line; the error is what is said.
fn target(client: &Client, how: &Project, (action, project): (Action, Option<u32>), path: &str) -> Result<(), String> {
    let found = std::fs::metadata(path).map_err(|error| format!("failed to stat {path}: {}", cli::os_error(&error)))?;
    if !found.is_file() && !found.is_dir() {
        return Err("only support project quota on regular file or directory".to_string());
    }
    if let (false, Some(option)) = (found.is_dir(), [(how.directory, 'd'), (how.recursive, 'r')].iter().find(|(given, _)| *given)) {
        return Err(format!("'-{}' option on non-dir target {path}", option.1));
    }
    let mountpoint = cli::place_of_path(path).map_err(|failure| failure.to_string())?;
    let mut work = Work { client, how, action, mountpoint, device: found.dev(), expected: project.unwrap_or(0) };
    let top = [(PathBuf::from(path), found.ino())];
    if project.is_none() && matches!(action, Action::Set | Action::Check) {
        let reports = work.ask(&[found.ino()], None, None).map_err(|failure| failure.to_string())?;
        work.expected = reports.first().map(|report| report.project).unwrap_or_default();
    }
    work.all(&top, false)?;
    let looks = matches!(action, Action::List | Action::Check);
    if !found.is_dir() || how.directory || !how.recursive && !looks {
        return Ok(());
    }
    let mut left = VecDeque::from([PathBuf::from(path)]);
    while let Some(directory) = left.pop_front() {
        let (files, below) = work.entries(&directory)?;
        work.all(&files, true)?;
        left.extend(below.into_iter().filter(|_| how.recursive));
    }
    Ok(())
}

/// Paths of files with their inode numbers.
type Files = Vec<(PathBuf, u64)>;

impl Work<'_> {
    fn ask(&self, inodes: &[u64], project: Option<u32>, inherit: Option<bool>) -> Result<Vec<ProjectReport>, Failure> {
        let request = ProjectRequest { mountpoint: self.mountpoint.clone(), inodes: inodes.to_vec(), project, inherit };
        match self.client.call(&Request::Project(request))? {
            Response::Projects(reports) => Ok(reports),
            other => Err(cli::unexpected("cannot look at projects", other)),
        }
    }

    /// Files of a directory, and the directories among them; what goes away meanwhile is left out.
    fn entries(&self, directory: &Path) -> Result<(Files, Vec<PathBuf>), String> {
        let failed =
            |what: &str, path: &Path, error: &std::io::Error| format!("failed to {what} {}: {}", path.display(), cli::os_error(error));
        let (mut files, mut below) = (Vec::new(), Vec::new());
        let list = match std::fs::read_dir(directory) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((files, below)),
            list => list.map_err(|error| failed("opendir", directory, &error))?,
        };
        for entry in list {
            let entry = entry.map_err(|error| failed("readdir", directory, &error))?;
            let path = entry.path();
            let found = match std::fs::metadata(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                found => found.map_err(|error| failed("open", &path, &error))?,
            };
            if found.dev() != self.device || !found.is_file() && !found.is_dir() {
                return Err(format!("failed to get xattr for {}: Inappropriate ioctl for device", path.display()));
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                below.push(path.clone());
            }
            files.push((path, found.ino()));
        }
        Ok((files, below))
    }

    /// Looks at files and does what is to be done to them.
    fn all(&self, files: &[(PathBuf, u64)], may_be_gone: bool) -> Result<(), String> {
        let inodes: Vec<u64> = files.iter().map(|(_, inode)| *inode).collect();
        let reports = self.ask(&inodes, None, None).map_err(|failure| failure.to_string())?;
        let mut wrong = Vec::new();
        for ((path, inode), report) in files.iter().zip(&reports) {
            match &report.failure {
                Some(why) if may_be_gone && why == NO_ENTRY => {}
                Some(why) => return Err(format!("failed to get xattr for {}: {why}", path.display())),
                None if self.is_to_change(report) => wrong.push((path, *inode)),
                None => self.tell(path, report),
            }
        }
        if wrong.is_empty() {
            return Ok(());
        }
        let inodes: Vec<u64> = wrong.iter().map(|(_, inode)| *inode).collect();
        let (project, inherit) = match self.action {
            Action::Clear => ((!self.how.keep).then_some(0), Some(false)),
            _ => (Some(self.expected), self.how.mark.then_some(true)),
        };
        let reports = self.ask(&inodes, project, inherit).map_err(|failure| failure.to_string())?;
        let refused = wrong.iter().zip(&reports).find_map(|((path, _), report)| Some((path, report.failure.as_ref()?)));
        match refused {
            Some((_, why)) if may_be_gone && why == NO_ENTRY => Ok(()),
            Some((path, why)) => Err(format!("failed to set xattr for {}: {why}", path.display())),
            None => Ok(()),
        }
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
