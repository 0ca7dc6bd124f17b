//! Programs that are run on events, zed's role (OpenZFS: `cmd/zed`): executables of one folder, called by name and with zed's environment.
//!
//! `all-NAME` is run on every event, `SUBCLASS-NAME` and `CLASS-NAME` on events of that class (`io-NAME`, `scrub_finish-NAME`). They run
//! one after the other in the order of events, each for ten seconds at most. More than sixteen error reports at once and ten a second after
//! that are passed over: a flood of errors starts no flood of processes. Of other events (changes of state, scans) none is.

use kstat::{FieldValue, LoggedEvent};
use rustix::process::{Pid, Signal, kill_process_group};
use service::trust;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Environment variable with the folder of the programs; unset, `/etc/zirconia/zed.d` for root and `zirconia/zed.d` in the user's configuration for others.
const FOLDER: &str = "ZIRCONIA_ZEDLETS";
/// Nanoseconds that a program may run before it is killed.
const TIME_MAX_NS: u64 = 10_000_000_000;
/// Nanoseconds between two looks whether a program ended.
const STEP_NS: u64 = 5_000_000;
/// Number of events that may be told at once; below, in a second after that.
const BURST: u64 = 16;
const PER_SECOND: u64 = 10;
/// Search path of the programs, which the daemon does not take from its environment: OpenZFS gives the same, and what begins with `ZED_`.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Folder of the programs of this process.
pub(crate) fn folder() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return Some(PathBuf::from(folder));
    }
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/etc/zirconia/zed.d"));
    }
    let own = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let own = own.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")));
    own.map(|own| own.join("zirconia/zed.d"))
}

/// Allowance of events that may still be told.
#[derive(Debug)]
pub(crate) struct Allowance {
    milli: u64,
    at_ns: u64,
}

impl Default for Allowance {
    fn default() -> Self {
        Allowance { milli: BURST * 1000, at_ns: 0 }
    }
}

impl Allowance {
    /// Takes one event off the allowance; false when no more may be told now.
    pub(crate) fn take(&mut self, now_ns: u64) -> bool {
        let earned = now_ns.saturating_sub(self.at_ns).saturating_mul(PER_SECOND) / 1_000_000;
        self.milli = self.milli.saturating_add(earned).min(BURST * 1000);
        self.at_ns = now_ns;
        let allowed = self.milli >= 1000;
        if allowed {
            self.milli -= 1000;
        }
        allowed
    }
}

/// Last part of a class, as programs are named after it (OpenZFS: `_zed_event_get_subclass`).
fn subclass(class: &str) -> &str {
    class.rsplit('.').next().unwrap_or(class)
}

/// True when a program of this name is meant by the class.
fn is_meant(name: &str, class: &str) -> bool {
    let begins = |prefix: &str| {
        let rest = name.strip_prefix(prefix);
        rest.is_some_and(|rest| !rest.starts_with(|letter: char| letter.is_ascii_alphabetic()))
    };
    [class, subclass(class), "all"].into_iter().any(begins)
}

/// Paths of the programs to run, by name. Not those that others than the daemon's user or root could have put there, or could put in their place.
fn programs(folder: &Path, class: &str) -> Vec<PathBuf> {
    if trust::folder(folder).is_err() {
        return Vec::new();
    }
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let meant = entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| !name.starts_with('.') && is_meant(name, class)));
    let runs = |path: &PathBuf| {
        trust::file(path).is_ok() && std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o100 != 0)
    };
    let mut found: Vec<PathBuf> = meant.map(|entry| entry.path()).filter(runs).collect();
    found.sort();
    found
}

fn text(name: &str, value: &FieldValue) -> String {
    let number =
        |value: &u64| if name.ends_with("guid") || name.ends_with("guids") { format!("0x{value:016X}") } else { value.to_string() };
    match value {
        FieldValue::Bool(value) => u8::from(*value).to_string(),
        FieldValue::U64(value) => number(value),
        FieldValue::I64(value) => value.to_string(),
        FieldValue::Text(value) => value.clone(),
        FieldValue::U64s(values) => values.iter().map(number).collect::<Vec<_>>().join(" "),
        FieldValue::Texts(values) => values.join(" "),
    }
}

/// Word for a state that an event carries as a number: scripts ask for `…_STR` (OpenZFS: `_zed_event_add_nvpair`, `zpool_state_to_name`,
/// `zpool_pool_state_to_name`).
fn state_word(name: &str, value: &FieldValue) -> Option<&'static str> {
    let FieldValue::U64(state) = *value else { return None };
    let words: &[&str] = match name {
        "vdev_state" | "vdev_laststate" => &["UNKNOWN", "OFFLINE", "OFFLINE", "REMOVED", "UNAVAIL", "FAULTED", "DEGRADED", "ONLINE"],
        "pool_state" => &["ACTIVE", "EXPORTED", "DESTROYED", "SPARE", "L2CACHE", "UNINITIALIZED", "UNAVAIL", "POTENTIALLY_ACTIVE"],
        _ => return None,
    };
    let word = usize::try_from(state).ok().and_then(|state| words.get(state).copied());
    Some(word.unwrap_or("UNKNOWN"))
}

/// Text of a time: `2026-11-22 08:30:00+0000`.
fn time_string(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Howard Hinnant's civil_from_days.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}+0000", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Environment of a program (OpenZFS: zed.8).
fn environment(logged: &LoggedEvent, folder: &Path) -> Vec<(String, String)> {
    let class = logged.event.class.as_ref();
    let (seconds, nanoseconds) = logged.time;
    let version = env!("CARGO_PKG_VERSION");
    let mut variables: Vec<(String, String)> = [
        ("PATH", SEARCH_PATH.to_string()),
        ("ZEVENT_EID", logged.eid.to_string()),
        ("ZEVENT_CLASS", class.to_string()),
        ("ZEVENT_SUBCLASS", subclass(class).to_string()),
        ("ZEVENT_TIME", format!("{seconds} {nanoseconds}")),
        ("ZEVENT_TIME_SECS", seconds.to_string()),
        ("ZEVENT_TIME_NSECS", nanoseconds.to_string()),
        ("ZEVENT_TIME_STRING", time_string(seconds)),
        ("ZED_PID", std::process::id().to_string()),
        ("ZED_ZEDLET_DIR", folder.to_string_lossy().into_owned()),
        ("ZFS_ALIAS", format!("zirconia-{version}")),
        ("ZFS_VERSION", version.to_string()),
        ("ZFS_RELEASE", "1".to_string()),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .into();
    let programs = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.to_path_buf()));
    for name in ["ZDB", "ZFS", "ZINJECT", "ZPOOL"] {
        let path = programs.as_ref().map(|folder| folder.join(name.to_lowercase())).filter(|path| path.is_file());
        variables.push((name.to_string(), path.map_or_else(|| name.to_lowercase(), |path| path.to_string_lossy().into_owned())));
    }
    let passed_on = std::env::vars().filter(|(name, _)| (name.starts_with("ZED_") || name == "ZIRCONIA_STATE") && name != FOLDER);
    variables.extend(passed_on);
    for (name, value) in &logged.event.fields {
        let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' };
        let shown = format!("ZEVENT_{}", name.chars().map(letter).collect::<String>());
        if let Some(word) = state_word(name, value) {
            variables.push((format!("{shown}_STR"), word.to_string()));
        }
        variables.push((shown, text(name, value).replace('\0', "")));
    }
    variables
}

/// Runs every program that is meant by the event, and waits for each.
pub(crate) fn run(exec: &exec::Exec, folder: &Path, logged: &LoggedEvent) {
    let mut variables = None;
    for program in programs(folder, &logged.event.class) {
        let variables = variables.get_or_insert_with(|| environment(logged, folder));
        let mut command = Command::new(&program);
        command.env_clear().envs(variables.iter().cloned()).current_dir("/").process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(why) => {
                tracing::warn!("cannot run {}: {why}", program.display());
                continue;
            }
        };
        let until = exec.now_ns().saturating_add(TIME_MAX_NS);
        while matches!(child.try_wait(), Ok(None)) {
            if exec.now_ns() >= until {
                tracing::warn!("{} runs for too long and is killed", program.display());
                if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                    let _ = kill_process_group(group, Signal::KILL);
                }
                let _ = child.wait();
                break;
            }
            exec.sleep_ns(STEP_NS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kstat::Event;

    fn logged() -> LoggedEvent {
        let event = Event::new("ereport.fs.zfs.checksum").with("pool", "tank").with("vdev_guid", 0xabu64).with("zio-offset", 4096u64);
        LoggedEvent { eid: 7, time: (1_795_336_200, 5), event }
    }

    /// A script for checksum errors that does not run, or runs for something else, is worse than none.
    #[test]
    fn programs_are_meant_by_class_subclass_and_all() {
        for (name, meant) in [
            ("all-log.sh", true),
            ("checksum-notify.sh", true),
            ("ereport.fs.zfs.checksum-x", true),
            ("checksummed-x", false),
            ("io-notify.sh", false),
            ("allowed", false),
        ] {
            assert_eq!(is_meant(name, "ereport.fs.zfs.checksum"), meant, "{name}");
        }
    }

    /// Scripts written for zed read these names.
    #[test]
    fn events_are_told_as_zed_tells_them() {
        let variables = environment(&logged(), Path::new("/hooks"));
        let value = |name: &str| variables.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str());
        for (name, expected) in [
            ("ZEVENT_EID", "7"),
            ("ZEVENT_CLASS", "ereport.fs.zfs.checksum"),
            ("ZEVENT_SUBCLASS", "checksum"),
            ("ZEVENT_POOL", "tank"),
            ("ZEVENT_VDEV_GUID", "0x00000000000000AB"),
            ("ZEVENT_ZIO_OFFSET", "4096"),
            ("ZEVENT_TIME", "1795336200 5"),
            ("ZEVENT_TIME_STRING", "2026-11-22 08:30:00+0000"),
            ("ZED_ZEDLET_DIR", "/hooks"),
        ] {
            assert_eq!(value(name), Some(expected), "{name}");
        }
    }

    /// The mail about a failed device is sent by a script that gives up without these words.
    #[test]
    fn states_are_told_in_words_too() {
        let event =
            Event::new("resource.fs.zfs.statechange").with("pool_state", 0u64).with("vdev_state", 5u64).with("vdev_laststate", 7u64);
        let variables = environment(&LoggedEvent { eid: 8, time: (0, 0), event }, Path::new("/hooks"));
        let value = |name: &str| variables.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str());
        assert_eq!(value("ZEVENT_VDEV_STATE_STR"), Some("FAULTED"));
        assert_eq!(value("ZEVENT_VDEV_LASTSTATE_STR"), Some("ONLINE"));
        assert_eq!(value("ZEVENT_POOL_STATE_STR"), Some("ACTIVE"));
        assert_eq!(value("ZEVENT_VDEV_STATE"), Some("5"));
    }

    /// A dying disk reports thousands of errors a second; each would start processes.
    #[test]
    fn a_flood_of_events_is_cut() {
        let mut allowance = Allowance::default();
        let flood = (0..10_000u64).filter(|index| allowance.take(index * 100_000)).count();
        assert_eq!(flood, 16 + 10 - 1, "a second's worth");
        assert!(allowance.take(60_000_000_000));
    }
}
