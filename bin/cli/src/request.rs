//! Requests that need no output of their own, and the words that become them.

use crate::property::{self, Described, described};
use crate::{Client, Stop};
use control_api::{ErrorKind, Failure, Remark, Request};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;

/// Performs a request and prints its remarks.
pub fn done(client: &Client, request: &Request) -> Result<u8, Failure> {
    client.perform(request)?.iter().for_each(say);
    Ok(0)
}

/// Prints a remark where it says that it belongs.
pub fn say(remark: &Remark) {
    match remark {
        Remark::Output(text) => crate::outln!("{text}"),
        Remark::Warning(text) => crate::errln!("{text}"),
    }
}

/// Failure about what the user asked for, found before the daemon was asked.
pub fn invalid(what: &str, why: &str) -> Failure {
    Failure::new(ErrorKind::Invalid, what, why)
}

/// Map of `a=b` words; a property given twice is an error.
pub fn assignments(words: &[String]) -> Result<BTreeMap<String, String>, Stop> {
    properties(&[], words)
}

/// Map of `a=b` words by the properties' own names (`compress` is `compression`); one that is given twice is an error.
pub fn properties(table: &'static [Described], words: &[String]) -> Result<BTreeMap<String, String>, Stop> {
    let wrong = |why: String| Stop::Failed(Failure::new(ErrorKind::Invalid, why, ""));
    let mut map = BTreeMap::new();
    for word in words {
        let (name, value) = word.split_once('=').ok_or_else(|| wrong(format!("missing '=' for property=value argument '{word}'")))?;
        let number = || if property::is_asked(name) { property::with_number(name) } else { name.to_string() };
        let name = described(table, name).map_or_else(number, |known| known.name.to_string());
        if map.insert(name.clone(), value.to_string()).is_some() {
            return Err(wrong(format!("property '{name}' specified multiple times")));
        }
    }
    Ok(map)
}

/// Mountpoint of the file system that a file or directory is in: what `zfs list FILE` means (OpenZFS: `zfs_path_to_zhandle`).
pub fn place_of_path(path: &str) -> Result<String, Failure> {
    let cannot = |error: std::io::Error| Failure::new(ErrorKind::NotFound, format!("cannot open '{path}'"), crate::os_error(&error));
    let number = std::fs::metadata(path).map_err(cannot)?.dev();
    let place = place_of_device(number).map_err(cannot)?;
    place.ok_or_else(|| Failure::new(ErrorKind::Invalid, format!("'{path}' is not on a mounted ZFS filesystem"), ""))
}

/// Mountpoint of the file system with this device number; None where that is no ZFS file system, and no other in userspace.
///
/// # Errors
/// Those of reading the table of mounts.
pub fn place_of_device(number: u64) -> std::io::Result<Option<String>> {
    let device = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    // Number, parent, device, root, place, options …, a dash, type, source (proc(5)).
    Ok(mounts.lines().rev().find_map(|line| {
        let (head, tail) = line.split_once(" - ")?;
        let fields: Vec<&str> = head.split(' ').collect();
        let is_it = fields.get(2) == Some(&device.as_str());
        fields.get(4).filter(|_| is_it && (tail.starts_with("fuse") || tail.starts_with("zfs "))).map(|place| unescape(place))
    }))
}

/// Replaces the octal codes of blanks in mount tables.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
}

/// Path made absolute: the daemon has another working directory.
pub fn absolute(path: &str) -> String {
    std::path::absolute(path).map_or_else(|_| path.to_string(), |path| path.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_is_given_once_and_with_a_value() {
        let words = |list: &[&str]| list.iter().map(|word| (*word).to_string()).collect::<Vec<_>>();
        assert_eq!(assignments(&words(&["a=1", "b=x=y"])).expect("two").get("b").map(String::as_str), Some("x=y"));
        let why = |list: &[&str]| match properties(crate::property::DATASET, &words(list)) {
            Err(Stop::Failed(failure)) => failure.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(why(&["a=1", "a=2"]), "property 'a' specified multiple times");
        assert_eq!(why(&["compress=on", "compression=lz4"]), "property 'compression' specified multiple times");
        assert_eq!(why(&["a"]), "missing '=' for property=value argument 'a'");
        let aliases = properties(crate::property::DATASET, &words(&["recsize=8K", "rdonly=on"])).expect("two");
        assert_eq!(aliases.keys().collect::<Vec<_>>(), ["readonly", "recordsize"]);
        assert_eq!(
            place_of_path("/proc").err().map(|failure| failure.to_string()).as_deref(),
            Some("'/proc' is not on a mounted ZFS filesystem")
        );
    }
}
