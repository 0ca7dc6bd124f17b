//! What a figure must carry to mean something: the machine, its load, the commit, and whether others used the processor.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Machine and build of a run.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Machine {
    /// Model of the processor as the kernel names it.
    pub cpu: String,
    /// Number of processors that this process may use.
    pub cores: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// Commit of the tree that the program was built from (with `+` when the tree has changes), or "unknown".
    pub commit: String,
    /// Time of the run, UTC.
    pub date: String,
    /// Number of runnable tasks averaged over the last minute, when the run began.
    pub load: f64,
    /// Percent of the processors that were in use for a moment before the run began. The load remembers the command before.
    #[serde(default)]
    pub used_percent: f64,
}

/// Time to look at what others do.
const LOOK: Duration = Duration::from_millis(500);
/// Percent of the processors in use above which it is somebody else's work, not the kernel's housekeeping.
const USED_PERCENT_MAX: f64 = 20.0;

/// Clock ticks of all processors so far.
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    used: u64,
    stolen: u64,
    all: u64,
}

impl Ticks {
    /// Ticks until now.
    pub fn now() -> Ticks {
        Ticks::parse(&line_of("/proc/stat", "cpu ").unwrap_or_default())
    }

    fn parse(line: &str) -> Ticks {
        let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).take(8).collect();
        let (all, idle) = (ticks.iter().sum::<u64>(), ticks.iter().skip(3).take(2).sum::<u64>());
        Ticks { used: all - idle, stolen: ticks.get(7).copied().unwrap_or(0), all }
    }

    fn percent_since(self, before: Ticks, of: impl Fn(&Ticks) -> u64) -> f64 {
        100.0 * of(&self).saturating_sub(of(&before)) as f64 / self.all.saturating_sub(before.all).max(1) as f64
    }

    /// Percent of the processors' time since then that the host of this virtual machine kept for others: none of it can be seen as load.
    pub fn stolen_percent_since(self, before: Ticks) -> f64 {
        self.percent_since(before, |ticks| ticks.stolen)
    }
}

fn used_percent() -> f64 {
    let before = Ticks::now();
    std::thread::sleep(LOOK);
    Ticks::now().percent_since(before, |ticks| ticks.used)
}

fn line_of(path: &str, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(key)).map(|rest| rest.trim_start_matches([':', ' ', '\t']).trim().to_string())
}

fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// Number of runnable tasks, averaged over the last minute.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

/// Path of the root of the source tree that this program was built from (`target/release/zbench` → three up), or the current directory.
pub fn root() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let here = program.ancestors().find(|folder| folder.join("Cargo.lock").is_file());
    here.map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

impl Machine {
    /// Description of this machine, now.
    pub fn describe() -> Machine {
        let git = |arguments: &[&str]| output(Command::new("git").arg("-C").arg(root()).args(arguments));
        let changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| !text.is_empty());
        let commit = git(&["rev-parse", "--short=12", "HEAD"]).map(|hash| if changed { format!("{hash}+") } else { hash });
        let kib = line_of("/proc/meminfo", "MemTotal").and_then(|text| text.split(' ').next().and_then(|word| word.parse::<u64>().ok()));
        Machine {
            cpu: line_of("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_string()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: kib.unwrap_or(0) >> 10,
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_string(),
            commit: commit.unwrap_or_else(|| "unknown".to_string()),
            date: output(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"])).unwrap_or_default(),
            load: load(),
            used_percent: used_percent(),
        }
    }

    /// Header of a report: two lines for a terminal.
    pub fn header(&self) -> String {
        let busy = if self.is_busy() { "  ** busy machine: only ratios of one run mean something **" } else { "" };
        format!(
            "{}, {} cores, {} MiB, Linux {}\ncommit {}, {}, load {:.2}, {:.0} % of the processors used by others{busy}",
            self.cpu, self.cores, self.memory_mib, self.kernel, self.commit, self.date, self.load, self.used_percent
        )
    }

    /// True when others used a good part of the processors as the run began.
    pub fn is_busy(&self) -> bool {
        self.used_percent > USED_PERCENT_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else a busy host would be taken for a busy machine, or for a slow engine.
    #[test]
    fn what_a_host_kept_is_told_from_what_was_used() {
        let before = Ticks::parse("100 0 50 800 10 0 0 40 0 0");
        let after = Ticks::parse("130 0 60 850 10 0 0 50 7 7");
        assert_eq!(after.stolen_percent_since(before), 10.0);
        assert_eq!(after.percent_since(before, |ticks| ticks.used), 50.0);
        assert_eq!(Ticks::parse("").stolen_percent_since(after), 0.0);
    }
}
