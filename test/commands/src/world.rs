//! A daemon of its own, a folder for its vdevs and mounts, and the programs run against it.
//!
//! Dropping a [`World`] stops its daemon and removes its folder.

use need::Need;
use std::fmt::Display;
use std::fs::File;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Failure with what went wrong, the command line and its output.
pub type Failure = Box<dyn std::error::Error>;

/// Bytes of a file vdev.
pub const VDEV_BYTES: u64 = 256 << 20;

/// Time by which `zdb` has read every block of a pool.
const JUDGEMENT: Duration = Duration::from_secs(600);

/// Time after which a daemon that has not ended is killed.
const STOP: Duration = Duration::from_secs(60);

/// Variable by which a daemon uses providers however slow they are: most scenarios are about what they do, and this machine may be quicker.
const ADMISSION: &str = "ZIRCONIA_PROVIDER_ADMISSION";

/// Options of the command line for scenarios that can be made longer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Seed that their programs follow from.
    pub seed: Option<u64>,
    /// Number of steps of their programs.
    pub steps: Option<u64>,
}

/// Path of the `zdb` that judges pools: OpenZFS's; where there is none, and may be none, ours, and `what` was not run.
pub fn judge(what: &str) -> Result<String, Failure> {
    need::lacks(Need::Zdb, what)?;
    Ok(need::zdb().map_or_else(|| "zdb".into(), |path| path.display().to_string()))
}

/// Surroundings of one scenario.
pub struct World {
    options: Options,
    folder: PathBuf,
    programs: PathBuf,
}

/// Outcome of a command.
#[derive(Clone, Debug)]
pub struct Ran {
    line: String,
    /// Exit status of the command; -1 for a signal.
    pub code: i32,
    /// Text of the standard output.
    pub out: String,
    /// Text of the standard error.
    pub err: String,
}

impl Ran {
    /// Makes the outcome of a command line.
    pub fn of(line: &str, output: &std::process::Output) -> Ran {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ran { code: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr), line: line.to_string() }
    }

    /// Failure that shows the command and what it printed.
    pub fn fault(&self, why: impl Display) -> Failure {
        format!("      {why}\n      $ {}\n      exit {}\n--- out\n{}\n--- err\n{}", self.line, self.code, self.out, self.err).into()
    }

    /// Text of the command line.
    pub fn line(&self) -> &str {
        &self.line
    }

    /// Checks that the standard output contains this.
    pub fn shows(&self, text: &str) -> Result<&Ran, Failure> {
        if self.out.contains(text) { Ok(self) } else { Err(self.fault(format!("standard output lacks '{text}'"))) }
    }

    /// Checks that the standard output does not contain this.
    pub fn hides(&self, text: &str) -> Result<&Ran, Failure> {
        if self.out.contains(text) { Err(self.fault(format!("standard output shows '{text}'"))) } else { Ok(self) }
    }

    /// Checks that the standard error contains this.
    pub fn says(&self, text: &str) -> Result<&Ran, Failure> {
        if self.err.contains(text) { Ok(self) } else { Err(self.fault(format!("standard error lacks '{text}'"))) }
    }

    /// Checks that the standard output, without the last line's end, is this.
    pub fn prints(&self, text: &str) -> Result<&Ran, Failure> {
        if self.out.trim_end_matches('\n') == text { Ok(self) } else { Err(self.fault(format!("standard output is not '{text}'"))) }
    }
}

/// Folder of the folders of worlds.
pub fn base() -> PathBuf {
    std::env::var_os("ZIRCONIA_COMMANDS_DIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from)
}

/// Beginning of the names of the folders of a process's worlds.
pub fn prefix(process: u32) -> String {
    format!("zirconia-commands-{process}-")
}

/// True for the number of a process that is a daemon, or starts one.
pub fn is_daemon(process: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{process}/comm")).is_ok_and(|name| name.trim() == "zirconiad")
}

impl World {
    /// Makes a fresh folder; the daemon starts with the first command.
    pub fn new(options: Options) -> Result<World, Failure> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        std::fs::create_dir_all(base())?;
        // Whatever the umask is: a folder that others can write is refused.
        let make = |folder: &Path| std::fs::DirBuilder::new().mode(0o755).create(folder);
        let folder = loop {
            let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let folder = base().join(format!("{}{number}", prefix(std::process::id())));
            match make(&folder) {
                Ok(()) => break folder,
                // An earlier process with this number left it, perhaps as another user.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error.into()),
            }
        };
        make(&folder.join("state"))?;
        let beside = std::env::current_exe()?.parent().map(Path::to_path_buf).unwrap_or_default();
        let programs = std::env::var_os("ZIRCONIA_BIN").map_or(beside, PathBuf::from);
        if !programs.join("zirconiad").exists() {
            return Err(format!("no zirconiad in {}: build the release programs first (make build)", programs.display()).into());
        }
        Ok(World { options, folder, programs })
    }

    /// Options of the command line.
    pub fn options(&self) -> Options {
        self.options
    }

    /// Path in the world's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Path in the world's folder, as text.
    pub fn at(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Path of one of our programs.
    pub fn program(&self, name: &str) -> String {
        self.programs.join(name).display().to_string()
    }

    /// True when another user could not run `zpool`, and `what` may be left out for that.
    pub fn out_of_reach(&self, tried: Ran, what: &str) -> Result<bool, Failure> {
        if tried.code == 0 {
            return Ok(false);
        }
        need::missing(Need::Stranger, what, format!("another user cannot run {}: {}", self.program("zpool"), tried.err.trim()))?;
        Ok(true)
    }

    /// Makes file vdevs and returns their paths.
    pub fn vdevs(&self, names: &[&str]) -> Result<Vec<String>, Failure> {
        let folder = self.path("vdevs");
        std::fs::create_dir_all(&folder)?;
        let mut paths = Vec::new();
        for name in names {
            let path = folder.join(name);
            std::fs::File::create(&path)?.set_len(VDEV_BYTES)?;
            paths.push(path.display().to_string());
        }
        Ok(paths)
    }

    /// Runs a command line (words split at blanks; `{vdevs}`, `{mnt}` and `{dir}` stand for folders of this world).
    pub fn run(&self, line: &str) -> Result<Ran, Failure> {
        self.run_with(line, &[])
    }

    fn run_with(&self, line: &str, variables: &[(&str, &Path)]) -> Result<Ran, Failure> {
        let (line, mut command) = self.command(line)?;
        Ok(Ran::of(&line, &command.envs(variables.iter().copied()).output()?))
    }

    /// Text of a command line as it is shown, and the command ready to be started.
    fn command(&self, line: &str) -> Result<(String, Command), Failure> {
        let line = line.replace("{vdevs}", &self.at("vdevs")).replace("{mnt}", &self.at("mnt")).replace("{dir}", &self.at("."));
        let mut words = line.split_whitespace();
        let program = words.next().ok_or("an empty command line")?;
        let ours = self.programs.join(program);
        let mut command = Command::new(if ours.exists() { ours } else { PathBuf::from(program) });
        command.args(words).env("ZIRCONIA_STATE", self.path("state")).env(ADMISSION, "0").current_dir(&self.folder);
        Ok((line, command))
    }

    /// Starts a command line that has to end by itself within `deadline`; see [`Running::finish`].
    pub fn start(&self, line: &str, deadline: Duration) -> Result<Running, Failure> {
        self.start_until(line, deadline, |_| false)
    }

    /// Does [`World::start`], and ends the command as one that succeeded as soon as the file of its standard output is enough.
    fn start_until(&self, line: &str, deadline: Duration, is_enough: impl Fn(&Path) -> bool + Send + 'static) -> Result<Running, Failure> {
        let (line, command) = self.command(line)?;
        self.watched(line, command, deadline, is_enough)
    }

    /// Starts a script of sh(1), which ends with the first command that fails and has to end by itself within `deadline`. The programs are found by their
    /// names, the folders of vdevs and mounts are `V` and `M`.
    pub fn script(&self, script: &str, deadline: Duration) -> Result<Running, Failure> {
        self.watched(script.to_string(), self.shell(script), deadline, |_| false)
    }

    /// Command of [`World::script`], ready to be started.
    pub fn shell(&self, script: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("sh");
        command.args(["-ec", script]).env("PATH", format!("{}:{path}", self.programs.display())).current_dir(&self.folder);
        command.env(ADMISSION, "0").env("ZIRCONIA_STATE", self.path("state")).env("V", self.path("vdevs")).env("M", self.path("mnt"));
        command
    }

    /// Does [`World::start_until`] with a command.
    fn watched(
        &self,
        line: String,
        mut command: Command,
        deadline: Duration,
        is_enough: impl Fn(&Path) -> bool + Send + 'static,
    ) -> Result<Running, Failure> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let output = ["out", "err"].map(|stream| self.path(&format!("{number}.{stream}")));
        // To files: a pipe that is full, or kept open by somebody else, would look like a command that hangs.
        command.stdin(Stdio::null()).stdout(File::create(&output[0])?).stderr(File::create(&output[1])?);
        let mut child = command.spawn()?;
        let (started, out) = (Instant::now(), output[0].clone());
        // It is looked after from now on: whoever asks for its end later must not take that for its time.
        let watch = move || loop {
            match child.try_wait()? {
                Some(status) => return Ok((Some(status), started.elapsed())),
                None if started.elapsed() > deadline => {
                    child.kill()?;
                    child.wait()?;
                    return Ok((None, started.elapsed()));
                }
                None if is_enough(&out) => {
                    child.kill()?;
                    child.wait()?;
                    return Ok((Some(ExitStatus::default()), started.elapsed()));
                }
                None => pause(started.elapsed()),
            }
        };
        Ok(Running { line, watcher: std::thread::spawn(watch), output, deadline })
    }

    /// Has a `zdb` ([`judge`]) read every block of a pool, in which it must find neither an error nor a leak; `words` are its options, `-bcch` among
    /// them, and the pool. It is not waited for once it has said so ([`need::clean`]).
    pub fn clean(&self, zdb: &str, words: &str) -> Result<Ran, Failure> {
        // Line by line, where there is a program that makes it so.
        let by_lines = if zdb.contains('/') && need::on_path("stdbuf").is_some() { "stdbuf -oL " } else { "" };
        let is_enough = |out: &Path| std::fs::read(out).is_ok_and(|text| need::clean(&String::from_utf8_lossy(&text)).is_ok());
        let (ran, _) = self.start_until(&format!("{by_lines}{zdb} {words}"), JUDGEMENT, is_enough)?.finish()?;
        if ran.code != 0 {
            return Err(ran.fault("it should succeed"));
        }
        match need::clean(&format!("{}\n{}", ran.err, ran.out)) {
            Ok(()) => Ok(ran),
            Err(why) => Err(ran.fault(why)),
        }
    }

    /// Runs a command that must succeed.
    pub fn ok(&self, line: &str) -> Result<Ran, Failure> {
        let ran = self.run(line)?;
        if ran.code == 0 { Ok(ran) } else { Err(ran.fault("it should succeed")) }
    }

    /// Runs a command that must succeed, with one more variable in its environment; the daemon that it starts has it too.
    pub fn ok_with(&self, (name, value): (&str, &Path), line: &str) -> Result<Ran, Failure> {
        let ran = self.run_with(line, &[(name, value)])?;
        if ran.code == 0 { Ok(ran) } else { Err(ran.fault("it should succeed")) }
    }

    /// Runs a command that must fail with this exit status and say this on standard error.
    pub fn refused(&self, line: &str, code: i32, text: &str) -> Result<Ran, Failure> {
        let ran = self.run(line)?;
        if ran.code != code {
            return Err(ran.fault(format!("it should exit with {code}")));
        }
        ran.says(text)?;
        Ok(ran)
    }

    /// The daemon's log tells of this: what nobody waits for has to be found afterwards.
    pub fn logged(&self, texts: &[&str]) -> Result<(), Failure> {
        let log = std::fs::read_to_string(self.path("state/zirconiad.log"))?;
        match texts.iter().find(|text| !log.contains(**text)) {
            Some(text) => Err(format!("      the log lacks '{text}'\n{log}").into()),
            None => Ok(()),
        }
    }

    /// Process id of the daemon.
    pub fn daemon(&self) -> Result<String, Failure> {
        let pid = std::fs::read_to_string(self.path("state/zirconiad.lock"))?.trim().to_string();
        // A daemon that has just begun has not written it yet.
        if pid.is_empty() { Err(std::io::Error::other("no daemon has written its number").into()) } else { Ok(pid) }
    }
}

/// Command that runs.
pub struct Running {
    line: String,
    /// Thread that waits for the end: gives the status, if it came in time, and how long it took.
    watcher: JoinHandle<std::io::Result<(Option<ExitStatus>, Duration)>>,
    output: [PathBuf; 2],
    deadline: Duration,
}

impl Running {
    /// Waits for the end. A command that is not over at its deadline is killed, and a failure. Also returns how long it took.
    pub fn finish(self) -> Result<(Ran, Duration), Failure> {
        let (status, took) = self.watcher.join().map_err(|_| "      the watcher failed")??;
        let [out, err] = self.output.each_ref().map(|path| std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()));
        self.output.iter().for_each(|path| drop(std::fs::remove_file(path)));
        let ran = Ran { line: self.line, code: status.and_then(|status| status.code()).unwrap_or(-1), out: out?, err: err? };
        if status.is_none() {
            return Err(ran.fault(format!("no answer within its deadline of {} s", self.deadline.as_secs())));
        }
        Ok((ran, took))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Failures here were reported, or do not matter: the folder is removed below.
        let daemon = self.daemon();
        let stopped = self.start("zirconia stop", STOP).and_then(Running::finish);
        // That of another user takes nothing from this one.
        let has_stopped = stopped.is_ok_and(|(ran, _)| ran.code == 0);
        if let (false, Some(daemon)) = (has_stopped, daemon.ok().filter(|daemon| is_daemon(daemon))) {
            // First whoever would start it again.
            if let Some(supervisor) = supervisor(&daemon) {
                let _ = self.run(&format!("kill -9 {supervisor}"));
            }
            let _ = self.run(&format!("kill -9 {daemon}"));
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Bytes that do not compress, of a number of MiB; the same ones each time.
pub fn mebibytes(mib: usize) -> Vec<u8> {
    let (mut bytes, mut word) = (vec![0; mib << 20], 0x9E37_79B9_7F4A_7C15_u64);
    // Compiled quickly, this is slow: eight at a time.
    for eight in bytes.as_chunks_mut::<8>().0 {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        *eight = word.to_le_bytes();
    }
    bytes
}

/// Pauses before the next look of somebody who has waited so long: longer where it takes long, since a look costs time too.
fn pause(waited: Duration) {
    std::thread::sleep((waited / 20).clamp(Duration::from_millis(2), Duration::from_millis(20)));
}

/// Fails unless the two are equal.
pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, left: T, right: T) -> Result<(), Failure> {
    if left == right { Ok(()) } else { Err(format!("      {what}: {left:?} is not {right:?}").into()) }
}

/// Process id of the process that starts a daemon again when it dies.
pub fn supervisor(daemon: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{daemon}/status")).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().to_string();
    is_daemon(&parent).then_some(parent)
}
