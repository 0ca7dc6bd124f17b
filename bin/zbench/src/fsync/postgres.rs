//! PostgreSQL on one side of the comparison: a server whose data lie there, and `pgbench` with four clients.

use crate::cleanup::Guard;
use crate::measure::text;
use crate::sys;
use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Folder of Debian's packages, which has one for each version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// User and group that the server runs as: it refuses root.
const NOBODY: u32 = 65_534;
const CLIENTS: &str = "4";
const START_SECONDS: u64 = 60;

/// Folder of the newest server's programs, if there is one.
pub fn find() -> Option<PathBuf> {
    let is_whole = |folder: &PathBuf| ["initdb", "postgres", "pgbench"].iter().all(|program| folder.join(program).is_file());
    let versions = std::fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    versions.map(|version| version.path().join("bin")).filter(is_whole).max()
}

/// Server that runs, until it is dropped.
pub struct Postgres {
    programs: PathBuf,
    folder: PathBuf,
    _server: Guard,
}

fn program(programs: &Path, folder: &Path, name: &str) -> Command {
    let mut command = Command::new(programs.join(name));
    command.current_dir("/").uid(NOBODY).gid(NOBODY).env("PGHOST", folder).env("PGUSER", "postgres").env("PGDATABASE", "postgres");
    command.stdin(Stdio::null());
    command
}

fn done(mut command: Command) -> Result<String, String> {
    let output = command.output().map_err(text)?;
    if !output.status.success() {
        return Err(format!("{:?}: {}", command.get_program(), String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

impl Postgres {
    /// Starts a server, with the settings that it comes with, over the data in `place`/`pg`. Where there are none they are made, with tables of
    /// `scale` hundred thousand rows.
    pub fn start(programs: &Path, place: &Path, scale: u32) -> Result<Postgres, String> {
        let folder = place.join("pg");
        let data = folder.join("data");
        let is_new = !data.exists();
        if is_new {
            DirBuilder::new().recursive(true).mode(0o755).create(&folder).map_err(text)?;
            chown(&folder, Some(NOBODY), Some(NOBODY)).map_err(text)?;
            let mut command = program(programs, &folder, "initdb");
            command.arg("-D").arg(&data).args(["-A", "trust", "-U", "postgres", "--no-locale"]);
            done(command)?;
        }
        let said = File::create(folder.join("log")).map_err(text)?;
        let mut command = program(programs, &folder, "postgres");
        command.arg("-D").arg(&data).args(["-c", "listen_addresses=", "-c"]).arg(format!("unix_socket_directories={}", folder.display()));
        sys::end_with_us(&mut command);
        let mut child = command.stdout(said.try_clone().map_err(text)?).stderr(said).spawn().map_err(text)?;
        let server = Guard::new(move || {
            sys::interrupt(child.id());
            let _ = child.wait();
        });
        let postgres = Postgres { programs: programs.to_path_buf(), folder, _server: server };
        postgres.wait_for_it()?;
        if is_new {
            postgres.bench(&["-i", "-q", "-s", &scale.to_string()])?;
        }
        Ok(postgres)
    }

    fn wait_for_it(&self) -> Result<(), String> {
        let deadline = Instant::now() + Duration::from_secs(START_SECONDS);
        while done(program(&self.programs, &self.folder, "pg_isready")).is_err() {
            if Instant::now() > deadline {
                let said = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                return Err(format!("PostgreSQL did not start: {}", said.trim()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn bench(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = program(&self.programs, &self.folder, "pgbench");
        command.args(arguments);
        done(command)
    }

    /// Has four clients do transactions for so many seconds; gives their number in a second.
    pub fn run(&self, seconds: f64) -> Result<f64, String> {
        let seconds = (seconds.ceil() as u64).max(1).to_string();
        let said = self.bench(&["-n", "-c", CLIENTS, "-j", "1", "-T", &seconds])?;
        rate_of(&said).ok_or_else(|| format!("pgbench: {}", said.trim()))
    }
}

/// Transactions in a second, by what `pgbench` says.
fn rate_of(said: &str) -> Option<f64> {
    said.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::rate_of;

    /// A figure that is not found is a row without one, or a wrong one.
    #[test]
    fn the_rate_is_found() {
        let said = "latency average = 3.271 ms\ninitial connection time = 4.2 ms\ntps = 1222.7 (without initial connection time)\n";
        assert_eq!(rate_of(said), Some(1222.7));
        assert_eq!(rate_of("tps = many"), None);
    }
}
