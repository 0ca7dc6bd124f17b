//! `-c` of `zpool status` and `zpool iostat`: columns that scripts of the user add to every device (OpenZFS: `vdev_run_cmd`,
//! `zpool_print_cmd`). They run as whoever asks, never in the daemon.

use cli::Stop;
use cli::color::{Color, is_set, paint};
use control_api::{ErrorKind, Failure, VdevReport};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Folder of the scripts that come with the system.
const SYSTEM: &str = "/etc/zfs/zpool.d";
/// Number of devices whose scripts run at a time.
const AT_A_TIME: usize = 16;

/// Device as scripts see it.
#[derive(Clone, Debug)]
pub struct Device {
    /// Name of the pool.
    pub pool: String,
    /// Path of the device.
    pub path: String,
    /// Path of its enclosure, where it has one.
    pub enclosure: String,
}

/// Answer of the scripts on one device.
#[derive(Clone, Debug, Default)]
struct Answer {
    columns: Vec<(String, String)>,
    rest: Vec<String>,
}

/// Columns of what scripts said.
#[derive(Debug, Default)]
pub struct Columns {
    /// Names of the columns and their widths in characters.
    columns: Vec<(String, usize)>,
    answers: BTreeMap<(String, String), Answer>,
}

/// Refuses scripts that may not run at all (OpenZFS: `zpool_do_status`, case 'c').
pub fn allow(names: &str) -> Result<(), Stop> {
    let refuse = |why: &str| Err(Stop::Failed(Failure::new(ErrorKind::Permission, why, "")));
    if names.is_empty() {
        return Ok(());
    }
    if std::env::var_os("ZPOOL_SCRIPTS_ENABLED").is_some() && !is_set("ZPOOL_SCRIPTS_ENABLED") {
        return refuse("Can't run -c, disabled by ZPOOL_SCRIPTS_ENABLED.");
    }
    // Only root's own files are run by root unless that is asked for.
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if is_root && !is_set("ZPOOL_SCRIPTS_AS_ROOT") {
        return refuse("Can't run -c with root privileges unless ZPOOL_SCRIPTS_AS_ROOT is set.");
    }
    Ok(())
}

fn folders() -> Vec<PathBuf> {
    if let Some(path) = std::env::var_os("ZPOOL_SCRIPTS_PATH") {
        return std::env::split_paths(&path).collect();
    }
    let own = std::env::var_os("HOME").map(|home| Path::new(&home).join(".zpool.d"));
    own.into_iter().chain([PathBuf::from(SYSTEM)]).collect()
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Lines that a script prints; none when it fails.
fn lines(program: &Path, words: &[&str], environment: &[(&str, &str)]) -> Vec<String> {
    let mut command = Command::new(program);
    command.args(words).env_clear().env("PATH", "/bin:/sbin:/usr/bin:/usr/sbin").envs(environment.iter().copied());
    match command.stdin(Stdio::null()).stderr(Stdio::null()).output() {
        Ok(ran) if ran.status.success() => String::from_utf8_lossy(&ran.stdout).lines().map(String::from).collect(),
        _ => Vec::new(),
    }
}

/// Lists the scripts that there are, with what they say they do: `-c` alone.
pub fn list(verb: &str) {
    cli::outln!("Available 'zpool {verb} -c' commands:");
    for folder in folders() {
        let mut programs: Vec<PathBuf> =
            std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).filter(|path| is_program(path)).collect();
        programs.sort();
        for program in programs {
            let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
            lines(&program, &["-h"], &[])
                .iter()
                .filter(|line| !line.trim().is_empty())
                .for_each(|line| cli::outln!("  {name:<14}  {line}"));
        }
    }
}

impl Answer {
    fn of(names: &str, device: &Device) -> Answer {
        let real = std::fs::canonicalize(&device.path).unwrap_or_default();
        let real = real.to_string_lossy();
        let environment = [
            ("POOL_NAME", device.pool.as_str()),
            ("VDEV_PATH", &device.path),
            ("VDEV_UPATH", &real),
            ("VDEV_ENC_SYSFS_PATH", &device.enclosure),
        ];
        let mut answer = Answer::default();
        for name in names.split(',').filter(|name| !name.is_empty() && !name.contains('/')) {
            let Some(program) = folders().into_iter().map(|folder| folder.join(name)).find(|path| is_program(path)) else { continue };
            for line in lines(&program, &[], &environment) {
                match line.split_once('=') {
                    Some((column, _)) if answer.columns.iter().any(|(known, _)| known == column) => {}
                    Some((column, value)) => answer.columns.push((column.to_string(), value.to_string())),
                    // A line without a name ends what the script says in columns.
                    None => {
                        answer.rest.push(line);
                        break;
                    }
                }
            }
        }
        answer
    }
}

impl Columns {
    /// Runs the scripts for every device.
    pub fn ask(names: &str, devices: &[Device]) -> Columns {
        let mut answers = Vec::new();
        for some in devices.chunks(AT_A_TIME) {
            std::thread::scope(|scope| {
                let running: Vec<_> = some.iter().map(|device| scope.spawn(|| Answer::of(names, device))).collect();
                answers.extend(running.into_iter().map(|one| one.join().unwrap_or_default()));
            });
        }
        let mut columns: Vec<(String, usize)> = Vec::new();
        for (name, value) in answers.iter().flat_map(|answer| &answer.columns) {
            let width = value.chars().count().max(name.chars().count());
            match columns.iter_mut().find(|(known, _)| known == name) {
                Some((_, known)) => *known = width.max(*known),
                None => columns.push((name.clone(), width)),
            }
        }
        let keys = devices.iter().map(|device| (device.pool.clone(), device.path.clone()));
        Columns { columns, answers: keys.zip(answers).collect() }
    }

    /// Names of the columns, or dashes below them.
    pub fn heading(&self, dashes: bool) -> String {
        let cell = |(name, width): &(String, usize)| {
            let text = if dashes { "-".repeat(*width) } else { paint(Some(Color::Bold), &format!("{name:>width$}")).into_owned() };
            format!("  {text}")
        };
        self.columns.iter().map(cell).collect()
    }

    /// Cells of one device; empty for what is none.
    pub fn cells(&self, pool: &str, path: &str) -> String {
        let Some(answer) = self.answers.get(&(pool.to_string(), path.to_string())) else { return String::new() };
        let value = |name: &str| answer.columns.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value);
        let cell = |(name, width): &(String, usize)| {
            let value = value(name);
            format!("  {:>width$}", if value.trim().is_empty() { "-" } else { value })
        };
        self.columns.iter().map(cell).chain(answer.rest.iter().map(|line| format!("  {line}"))).collect()
    }
}

/// Devices below a vdev, every one.
pub fn devices(pool: &str, vdev: &VdevReport) -> Vec<Device> {
    if vdev.children.is_empty() {
        let enclosure = vdev.identity[2].clone().unwrap_or_default();
        return vdev.path.iter().map(|path| Device { pool: pool.to_string(), path: path.clone(), enclosure: enclosure.clone() }).collect();
    }
    vdev.children.iter().flat_map(|child| devices(pool, child)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scripts that read this by columns must find a word in each.
    #[test]
    fn every_device_has_every_column() {
        let answer = |columns: &[(&str, &str)]| Answer {
            columns: columns.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
            rest: Vec::new(),
        };
        let key = |path: &str| ("tank".to_string(), path.to_string());
        let columns = Columns {
            columns: vec![("media".into(), 5), ("temp".into(), 4)],
            answers: BTreeMap::from([
                (key("/dev/a"), answer(&[("media", "ssd"), ("temp", "31")])),
                (key("/dev/b"), answer(&[("temp", " ")])),
            ]),
        };
        assert_eq!(columns.heading(false), "  media  temp");
        assert_eq!(columns.heading(true), "  -----  ----");
        assert_eq!(columns.cells("tank", "/dev/a"), "    ssd    31");
        assert_eq!(columns.cells("tank", "/dev/b"), "      -     -");
        assert_eq!(columns.cells("tank", "mirror-0"), "");
    }
}
