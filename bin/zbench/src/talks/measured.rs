//! Figures that other commands of this program measure on this machine: run at a small size, or read from files that they wrote.

use super::cell::Program;
use crate::files::Scratch;
use crate::measure::text;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// Exit status of a command that measured and missed a bound of its own; also of one that cannot read its command line, which prints nothing.
const MISSED: i32 = 2;
/// Layout whose resilvers count.
const RECOVERED: &str = "raidz1:10";
/// Layout of the writers of `zbench zia` that count, and their compression.
const OFFLOADED: [&str; 2] = ["raidz2:12,", " gzip,"];

/// Output of programs: JSON lines, and printed tables.
#[derive(Clone, Debug, Default)]
pub struct Results {
    rows: Vec<Value>,
    printed: Vec<String>,
}

impl Program {
    /// Parameters of the command; fewer and smaller turns when it has to be quick.
    pub fn parameters(self, is_quick: bool) -> &'static str {
        match (self, is_quick) {
            (Program::Zia, false) => "zia",
            (Program::Zia, true) => "zia --file-mib 16 --reps 1",
            (Program::Resilver, false) => {
                "resilver --devices-are simulated --resilver-layout raidz1:10 --load none,write,read,random-read --no-cpu --rebuild-layout draid1:8d:10c:1s"
            }
            (Program::Resilver, true) => {
                "resilver --devices-are simulated --resilver-layout raidz1:10 --load none,write,read,random-read --no-cpu --turns 1 --device-mib 200 --rebuild-layout draid1:3d:5c:1s --rebuild-device-mib 64"
            }
            (Program::Matrix, false) => "matrix --layers library --devices 4 --size-kib 1024 --patterns write,read --reps 3",
            (Program::Matrix, true) => "matrix --layers library --devices 4 --size-kib 1024 --patterns write,read --reps 1 --seconds 0.4",
            (Program::Mount, false) => "matrix --layers fuse --devices 1 --size-kib 1024 --patterns write --reps 3",
            (Program::Mount, true) => "matrix --layers fuse --devices 1 --size-kib 1024 --patterns write --reps 1 --seconds 0.4",
            (Program::Volumes, false) => "block --parts library",
            (Program::Volumes, true) => "block --parts library --reps 1 --seconds 0.5 --disk-mib 64 --volume-mib 16",
            (Program::Iscsi, false) => "block --parts iscsi",
            (Program::Iscsi, true) => "block --parts iscsi --reps 1 --seconds 0.5 --disk-mib 64",
        }
    }

    /// True when the command writes its rows as JSON lines.
    fn has_json(self) -> bool {
        !matches!(self, Program::Volumes | Program::Iscsi)
    }

    /// Runs the command as a process of its own and gives what it wrote, or why it did not.
    pub fn run(self, is_quick: bool) -> Result<Results, String> {
        let scratch = Scratch::new(&std::env::temp_dir())?;
        let json = scratch.path.join("rows.json");
        let mut command = Command::new(std::env::current_exe().map_err(text)?);
        command.args(self.parameters(is_quick).split_whitespace()).stdin(Stdio::null());
        if self.has_json() {
            command.arg("--json").arg(&json);
        }
        let output = command.output().map_err(text)?;
        let missed = output.status.code() == Some(MISSED) && !output.stdout.is_empty();
        if !output.status.success() && !missed {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it ended without a word").to_string());
        }
        let mut results = Results::default();
        results.add(&String::from_utf8_lossy(&output.stdout));
        if self.has_json() {
            results.read(&json)?;
        }
        Ok(results)
    }
}

impl Results {
    /// Adds what a command wrote.
    pub fn add(&mut self, written: &str) {
        for line in written.lines() {
            match serde_json::from_str::<Value>(line) {
                Ok(row) if row.is_object() => self.rows.push(row),
                _ => self.printed.push(line.trim().to_string()),
            }
        }
    }

    /// Adds a file that a command wrote, or its printed output.
    pub fn read(&mut self, path: &Path) -> Result<(), String> {
        let written = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        self.add(&written);
        Ok(())
    }

    /// Field of a row of `zbench zia`.
    fn zia(&self, name: &str, field: &str) -> Option<f64> {
        let is_it = |row: &&Value| {
            let counts = row["setup"].as_str().is_some_and(|setup| setup.starts_with(OFFLOADED[0]) && setup.contains(OFFLOADED[1]));
            counts && row["name"] == name
        };
        self.rows.iter().map(|row| &row["zia"]).find(is_it)?[field].as_f64()
    }

    /// Rate of a row of `zbench zia`, and the host's CPU.
    pub fn zia_rate(&self, name: &str) -> Option<String> {
        let (rate, cpu) = (self.zia(name, "mb_per_second")?, self.zia(name, "host_cpu")?);
        Some(format!("{rate:.0} MB/s, {cpu:.2} s/GiB of the host"))
    }

    /// Ratio of the rates of two rows of `zbench zia`.
    pub fn zia_ratio(&self, name: &str, other: &str) -> Option<String> {
        Some(format!("{:.1} ×", self.zia(name, "mb_per_second")? / self.zia(other, "mb_per_second")?))
    }

    /// Median over the runs of a load of `zbench resilver` of what is taken of each; those with changed parameters of the scheduler do not count.
    fn resilver(&self, load: &str, of: impl Fn(&Value) -> Option<f64>) -> Option<f64> {
        let mut samples = crate::measure::Samples::default();
        let counts = |row: &Value| row["layout"] == RECOVERED && row["tuned"].is_null() && row["raw_mb"].is_number();
        let runs = self.rows.iter().filter(|row| row["load"] == load && counts(row));
        runs.filter_map(of).for_each(|value| samples.push(value));
        (samples.count() > 0).then(|| samples.median())
    }

    /// Share of its own write bandwidth at which the new device was written.
    pub fn resilver_share(&self, load: &str) -> Option<String> {
        let share = |row: &Value| {
            let rate = row["written"].as_f64()? / 1e6 / row["seconds"].as_f64()?;
            Some(100.0 * rate / row["raw_mb"].as_f64()?)
        };
        Some(format!("{:.1} % of its write bandwidth", self.resilver(load, share)?))
    }

    /// CPU seconds of the process for a GiB that was written to the new device.
    pub fn resilver_cpu(&self, load: &str) -> Option<String> {
        let cpu = |row: &Value| Some(row["cpu"].as_f64()? * crate::measure::GIB / row["written"].as_f64()?);
        Some(format!("{:.2} s of processors for a GiB", self.resilver(load, cpu)?))
    }

    /// Field of a row of `zbench matrix`: requests and records of 1 MiB of four files over a stripe of so many files in memory.
    fn matrix(&self, [layer, pattern, mode]: [&str; 3], devices: u64, field: &str) -> Option<f64> {
        let is_it = |row: &&Value| {
            [("layer", layer), ("pattern", pattern), ("mode", mode), ("devices_are", "files")]
                .iter()
                .all(|(key, value)| row[*key] == *value)
                && row["layout"] == format!("stripe:{devices}")
                && row["size"] == 1u64 << 20
                && row["jobs"] == 4
        };
        self.rows.iter().find(is_it)?[field].as_f64()
    }

    /// Ratio of direct I/O's rate to that through the cache.
    pub fn direct_ratio(&self, layer: &str, pattern: &str, devices: u64) -> Option<String> {
        let rate = |mode| self.matrix([layer, pattern, mode], devices, "mb_per_second");
        Some(format!("{:.2} ×", rate("direct")? / rate("buffered")?))
    }

    /// Copies per byte, and CPU, of direct I/O.
    pub fn direct_copies(&self, layer: &str, pattern: &str, devices: u64) -> Option<String> {
        let field = |name| self.matrix([layer, pattern, "direct"], devices, name);
        Some(format!("{:.2} copies, {:.3} s/GiB", field("copies")?, field("cpu_per_gib")?))
    }

    /// Fields of a line of `zbench block`, without the bars between them.
    fn block(&self, load: &str, subject: &str) -> Option<Vec<&str>> {
        let rest = self.printed.iter().find_map(|line| line.strip_prefix(load)?.trim_start().strip_prefix(subject))?;
        Some(rest.split_whitespace().filter(|word| *word != "|").collect())
    }

    /// Rate of a load of `zbench block`, with its unit.
    pub fn block_rate(&self, load: &str, subject: &str) -> Option<String> {
        let fields = self.block(load, subject)?;
        Some(format!("{} {}", fields.first()?, fields.get(1)?))
    }

    /// Rate of a load of `zbench block` whose requests are of 4 KiB, in requests, and with its unit.
    pub fn block_requests(&self, load: &str, subject: &str) -> Option<String> {
        let mib: f64 = self.block(load, subject)?.first()?.parse().ok()?;
        Some(format!("{:.0} blocks a second, {mib:.0} MiB/s", mib * 256.0))
    }

    /// Rate of the volumes beside modelled drives, and the part of those drives' own rate in this direction.
    pub fn volumes_share(&self, load: &str, direction: &str) -> Option<String> {
        let rate = self.block_rate(load, "volumes, direct")?;
        let share = self.printed.iter().find_map(|line| line.strip_prefix(direction)?.strip_prefix(": "))?;
        Some(format!("{rate}, {}, which are modelled and slowed down", share.split_once(" (")?.0))
    }

    /// CPU of the process that has the volumes and the modelled drives, of a load.
    pub fn volumes_cpu(&self, load: &str) -> Option<String> {
        let cpu = *self.block(load, "volumes, direct")?.get(6)?;
        Some(format!("{cpu} s of processors for a GiB, those of the modelled drives among them"))
    }

    /// Copies per byte of a load of `zbench block`.
    pub fn block_copies(&self, load: &str, subject: &str) -> Option<String> {
        self.block(load, subject)?.get(7).filter(|copies| **copies != "-").map(|copies| format!("{copies} besides the kernel's socket"))
    }

    /// CPU of the serving process of a load of `zbench block`.
    pub fn block_cpu(&self, load: &str, subject: &str) -> Option<String> {
        self.block(load, subject)?.get(3).filter(|cpu| **cpu != "-").map(|cpu| format!("{cpu} s of processors for a GiB"))
    }

    /// Share of samples in locks of the profile with this title: the engine's, and the kernel's.
    pub fn locks(&self, title: &str) -> Option<String> {
        let from = self.printed.iter().position(|line| line.starts_with(title))?;
        let share = |of: &str| {
            let line = self.printed.iter().skip(from).find_map(|line| line.strip_prefix(of))?;
            line.split_whitespace().next().map(str::to_string)
        };
        let [engine, kernel] = ["engine locks, all together", "kernel locks, all together"].map(share);
        Some(format!("{} % in the engine's locks, {} % in the kernel's", engine?, kernel?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, the page shows nothing, or another row's figure, of what was measured.
    #[test]
    fn figures_are_found_in_what_programs_write() {
        let mut results = Results::default();
        results.add(
            "{\"machine\":{},\"command\":\"zbench zia\"}\n\
             {\"zia\":{\"setup\":\"raidz2:12, 16 files of 64 MiB, records of 1024 KiB, gzip, fletcher4; 1 modelled cards\",\"name\":\"software, no provider\",\"mb_per_second\":250.0,\"host_cpu\":8.0}}\n\
             {\"zia\":{\"setup\":\"raidz2:12, 16 files of 64 MiB, records of 1024 KiB, lz4, fletcher4; 1 modelled cards\",\"name\":\"modelled cards, Z.I.A.\",\"mb_per_second\":9.0}}\n\
             {\"zia\":{\"setup\":\"raidz2:12, 16 files of 64 MiB, records of 1024 KiB, gzip, fletcher4; 1 modelled cards\",\"name\":\"modelled cards, Z.I.A.\",\"mb_per_second\":2500.0,\"host_cpu\":0.25}}\n\
             {\"load\":\"none\",\"layout\":\"raidz1:10\",\"seconds\":2.0,\"written\":190000000,\"raw_mb\":100.0,\"cpu\":0.5}\n\
             {\"load\":\"none\",\"layout\":\"raidz2:12\",\"seconds\":2.0,\"written\":1,\"raw_mb\":100.0,\"cpu\":0.5}\n\
             {\"load\":\"none\",\"layout\":\"raidz1:10\",\"tuned\":\"zfs_vdev_max_active=1\",\"seconds\":2.0,\"written\":1,\"raw_mb\":100.0,\"cpu\":0.5}\n\
             {\"layer\":\"fuse\",\"devices_are\":\"files\",\"jobs\":4,\"layout\":\"stripe:1\",\"size\":1048576,\"pattern\":\"write\",\"mode\":\"direct\",\"mb_per_second\":300.0,\"copies\":0.0,\"cpu_per_gib\":0.4}\n\
             {\"layer\":\"fuse\",\"devices_are\":\"files\",\"jobs\":4,\"layout\":\"stripe:1\",\"size\":1048576,\"pattern\":\"write\",\"mode\":\"buffered\",\"mb_per_second\":200.0}\n\
             256K Q32 × 2 read      our iSCSI                     3632 MiB/s   13 |    0.310   11        -    0.280 |    0.00 |      950     1900\n\
             1M Q1 × 12 read        bare devices                   758 MiB/s    1 |        -    0        -    0.100 |       - |    15000    16000\n\
             1M Q1 × 12 read        volumes, direct                750 MiB/s    1 |        -    0        -    0.300 |       - |    15000    16000\n\
             \x20 read: 98.9 % of the bare devices (≥ 95) ok\n\
             4K Q4 × 12 read        blocks of 4K, direct           500 MiB/s    5 |        -    0        -    9.000 |    0.00 |       90      190\n\
             4K Q4 × 12 write, blocks of 4K, direct: locks: 100 MB/s, 4000 samples\n\
             \x20 engine locks, all together    0.03 %  (bound 3 % for any one) ok\n\
             \x20 kernel locks, all together    0.10 %  ok\n",
        );
        let some = |text: &str| Some(text.to_string());
        assert_eq!(results.zia_ratio("modelled cards, Z.I.A.", "software, no provider"), some("10.0 ×"));
        assert_eq!(results.zia_rate("software, no provider"), some("250 MB/s, 8.00 s/GiB of the host"));
        assert_eq!(results.resilver_share("none"), some("95.0 % of its write bandwidth"));
        assert_eq!(results.resilver_share("read"), None);
        assert_eq!(results.direct_ratio("fuse", "write", 1), some("1.50 ×"));
        assert_eq!(results.direct_copies("fuse", "write", 1), some("0.00 copies, 0.400 s/GiB"));
        assert_eq!(results.direct_ratio("fuse", "write", 4), None);
        assert_eq!(results.block_rate("256K Q32 × 2 read", "our iSCSI"), some("3632 MiB/s"));
        assert_eq!(results.block_cpu("256K Q32 × 2 read", "our iSCSI"), some("0.310 s of processors for a GiB"));
        assert_eq!(results.block_copies("256K Q32 × 2 read", "our iSCSI"), some("0.00 besides the kernel's socket"));
        let share = "750 MiB/s, 98.9 % of the bare devices, which are modelled and slowed down";
        assert_eq!(results.volumes_share("1M Q1 × 12 read", "read"), some(share));
        assert_eq!(results.volumes_share("1M Q1 × 12 write", "write"), None);
        let cpu = "0.300 s of processors for a GiB, those of the modelled drives among them";
        assert_eq!(results.volumes_cpu("1M Q1 × 12 read"), some(cpu));
        assert_eq!(results.block_requests("4K Q4 × 12 read", "blocks of 4K, direct"), some("128000 blocks a second, 500 MiB/s"));
        assert_eq!(results.locks("4K Q4 × 12 write, blocks of 4K, direct"), some("0.03 % in the engine's locks, 0.10 % in the kernel's"));
    }
}
