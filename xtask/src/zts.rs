//! OpenZFS's own test suite against our commands: `cargo xtask zts [-j JOBS] [-t SECONDS] [-o FOLDER] [--no-run] [--bless] [GROUP…]`.
//!
//! The suite is Debian's `zfs-test`; nothing of it knows that there is no kernel module. Each group runs in name spaces of its own
//! (`tools/zts/group.sh`) with a daemon and three loop devices of its own. What does not pass is compared with `docs/zts.list`, which has a
//! reason for each test; `--bless` brings it up to date: what is new in it gets the reason that its output shows, to be looked at. `--no-run` judges what an earlier run left in the folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Path of the list of what does not pass.
const LIST: &str = "docs/zts.list";
/// Folder of the suite.
const SUITE: &str = "/usr/share/zfs";
/// Bytes of each loop device.
const DISK_BYTES: u64 = 4 << 30;

/// Options of the command line.
struct Asked {
    jobs: usize,
    test_seconds: u64,
    folder: PathBuf,
    bless: bool,
    no_run: bool,
    groups: Vec<String>,
}

/// Outcome of one test.
struct Outcome {
    /// Name of the test: `group/test`.
    name: String,
    verdict: String,
    reason: String,
}

/// Runs OpenZFS's test suite. `programs` is the folder of our programs.
pub fn run(root: &Path, programs: &Path, args: &[&str]) -> Result<(), String> {
    let asked = asked(root, args)?;
    if asked.no_run {
        let all = asked.groups.iter().flat_map(|group| outcomes(&home_of(&asked, group).join("out"), group));
        return judge(root, &asked, &all.collect::<Vec<_>>());
    }
    if !Path::new(SUITE).join("zfs-tests").exists() {
        return Err("OpenZFS's test suite is not installed: ZIRCONIA_ZTS=1 tools/deps.sh".into());
    }
    let work = asked.folder.join("work");
    fs::create_dir_all(&work).map_err(|error| format!("{}: {error}", work.display()))?;
    script(root, "environment.sh", &[&work.display().to_string(), &programs.display().to_string()], &[])?;
    let suite = Suite::read(&work.join("suite/runfiles"))?;
    let next = AtomicUsize::new(0);
    let outcomes: Mutex<Vec<Outcome>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..asked.jobs {
            scope.spawn(|| {
                while let Some(group) = asked.groups.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match one_group(root, &asked, &suite, programs, group) {
                        Ok(mut list) => outcomes.lock().unwrap_or_else(|error| error.into_inner()).append(&mut list),
                        Err(why) => eprintln!("{group}: {why}"),
                    }
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().unwrap_or_else(|error| error.into_inner());
    outcomes.sort_by(|a, b| a.name.cmp(&b.name));
    judge(root, &asked, &outcomes)
}

fn asked(root: &Path, args: &[&str]) -> Result<Asked, String> {
    let mut asked = Asked {
        jobs: 2,
        test_seconds: 180,
        folder: std::env::temp_dir().join("zirconia-zts"),
        bless: false,
        no_run: false,
        groups: Vec::new(),
    };
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().copied().ok_or_else(|| format!("{word} needs a value"));
        let number = |text: &str| text.parse().map_err(|_| format!("'{text}' is no number"));
        match *word {
            "-j" => asked.jobs = number(value()?)? as usize,
            "-t" => asked.test_seconds = number(value()?)?,
            "-o" => asked.folder = PathBuf::from(value()?),
            "--bless" => asked.bless = true,
            "--no-run" => asked.no_run = true,
            group => asked.groups.push(group.to_string()),
        }
    }
    if asked.groups.is_empty() {
        let text = fs::read_to_string(root.join("tools/zts/groups")).map_err(|error| format!("tools/zts/groups: {error}"))?;
        asked.groups = text.lines().map(String::from).collect();
    }
    Ok(asked)
}

fn script(root: &Path, name: &str, args: &[&str], environment: &[(&str, String)]) -> Result<(), String> {
    let mut command = Command::new(root.join("tools/zts").join(name));
    let status = command.args(args).envs(environment.iter().cloned()).stdin(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name} failed ({status})")),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

/// Suite by its run files: groups with their tests and options.
struct Suite {
    groups: BTreeMap<String, (Vec<String>, BTreeMap<String, String>)>,
}

impl Suite {
    /// Reads the run files for all systems and for Linux together.
    fn read(folder: &Path) -> Result<Suite, String> {
        let mut groups: BTreeMap<String, (Vec<String>, BTreeMap<String, String>)> = BTreeMap::new();
        for file in ["common.run", "linux.run"] {
            let text = fs::read_to_string(folder.join(file)).map_err(|error| format!("{file}: {error}"))?;
            let (mut group, mut key) = (None, String::new());
            for line in text.lines().filter(|line| !line.starts_with('#')) {
                if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                    let name = name.split(':').next().unwrap_or(name);
                    group = name.strip_prefix("tests/functional/").map(String::from);
                    continue;
                }
                let Some(group) = &group else { continue };
                let value = match line.split_once('=').filter(|_| !line.starts_with(char::is_whitespace)) {
                    Some((name, value)) => {
                        key = name.trim().to_string();
                        value
                    }
                    None => line,
                };
                let (tests, options) = groups.entry(group.clone()).or_default();
                if key == "tests" {
                    for test in value.split('\'').skip(1).step_by(2).map(String::from) {
                        if !tests.contains(&test) {
                            tests.push(test);
                        }
                    }
                } else if ["pre", "post", "user"].contains(&key.as_str()) {
                    options.insert(key.clone(), value.trim().to_string());
                }
            }
        }
        Ok(Suite { groups })
    }

    /// Text of the run file of one group.
    fn run_file(&self, group: &str, test_seconds: u64) -> Option<String> {
        let (tests, options) = self.groups.get(group)?;
        let option = |name: &str, other: &str| options.get(name).cloned().unwrap_or_else(|| other.to_string());
        let user = Some(option("user", "root")).filter(|user| !user.is_empty()).unwrap_or_else(|| "ztsuser".to_string());
        let quoted: Vec<String> = tests.iter().map(|test| format!("'{test}'")).collect();
        Some(format!(
            "[DEFAULT]\npre = {}\nquiet = False\npre_user = root\nuser = {user}\ntimeout = {test_seconds}\npost_user = root\npost = {}\nfailsafe_user = root\n\
             failsafe = callbacks/zfs_failsafe\ntags = ['functional']\n\n[tests/functional/{group}]\ntests = [{}]\ntags = ['functional']\n",
            option("pre", "setup"),
            option("post", "cleanup"),
            quoted.join(", "),
        ))
    }
}

/// Loop devices that go when they are dropped.
struct Loops(Vec<String>);

impl Loops {
    fn new(folder: &Path) -> Result<Loops, String> {
        let mut loops = Loops(Vec::new());
        for number in 0..3 {
            let path = folder.join(format!("disk{number}"));
            fs::File::create(&path).and_then(|file| file.set_len(DISK_BYTES)).map_err(|error| format!("{}: {error}", path.display()))?;
            let made = Command::new("losetup").args(["-f", "--show"]).arg(&path).output().map_err(|error| format!("losetup: {error}"))?;
            if !made.status.success() {
                return Err(format!("losetup: {}", String::from_utf8_lossy(&made.stderr)));
            }
            loops.0.push(String::from_utf8_lossy(&made.stdout).trim().trim_start_matches("/dev/").to_string());
        }
        Ok(loops)
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for device in &self.0 {
            let _ = Command::new("losetup").args(["-d", &format!("/dev/{device}")]).status();
        }
    }
}

fn home_of(asked: &Asked, group: &str) -> PathBuf {
    asked.folder.join("groups").join(group.replace('/', "_"))
}

fn one_group(root: &Path, asked: &Asked, suite: &Suite, programs: &Path, group: &str) -> Result<Vec<Outcome>, String> {
    let home = home_of(asked, group);
    let _ = fs::remove_dir_all(&home);
    fs::create_dir_all(home.join("out")).map_err(|error| format!("{}: {error}", home.display()))?;
    let run_file = suite.run_file(group, asked.test_seconds).ok_or("the suite has no such group")?;
    fs::write(home.join("out/group.run"), run_file).map_err(|error| error.to_string())?;
    let loops = Loops::new(&home)?;
    let text = |path: &Path| path.display().to_string();
    let environment = [
        ("WORK", text(&asked.folder.join("work"))),
        ("HOME_OF_GROUP", text(&home)),
        ("LOOPS", loops.0.join(" ")),
        ("PROGRAMS", text(programs)),
        ("GROUP_SECONDS", (20 * asked.test_seconds).to_string()),
    ];
    let script = root.join("tools/zts/group.sh");
    let log = fs::File::create(home.join("out/group.log")).map_err(|error| error.to_string())?;
    let status = Command::new("unshare")
        .args(["-m", "-p", "-f", "-u", "--mount-proc", "--kill-child"])
        .arg(script)
        .envs(environment)
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(|error| error.to_string())?)
        .stderr(log)
        .status()
        .map_err(|error| format!("unshare: {error}"))?;
    drop(loops);
    let outcomes = outcomes(&home.join("out"), group);
    println!("{}", summary(group, &outcomes));
    for number in 0..3 {
        let _ = fs::remove_file(home.join(format!("disk{number}")));
    }
    let _ = fs::remove_dir_all(home.join("vartmp"));
    if outcomes.is_empty() { Err(format!("no test ran ({status}); see {}", home.join("out").display())) } else { Ok(outcomes) }
}

fn summary(name: &str, outcomes: &[Outcome]) -> String {
    let count = |verdict: &str| outcomes.iter().filter(|outcome| outcome.verdict == verdict).count();
    let [pass, fail, skip, killed] = ["PASS", "FAIL", "SKIP", "KILLED"].map(count);
    format!("{name:<36} run {:>4}  PASS {pass:>4} FAIL {fail:>4} SKIP {skip:>4} KILLED {killed:>3}", outcomes.len())
}

/// Reads what the suite's runner wrote; a failed setup is the reason of all that it kept from running.
fn outcomes(out: &Path, group: &str) -> Vec<Outcome> {
    let log = String::from_utf8_lossy(&fs::read(out.join("runner.log")).unwrap_or_default()).into_owned();
    let (mut list, mut setup) = (Vec::new(), None);
    for line in log.lines() {
        let Some((path, rest)) = line.split_once("/tests/functional/").and_then(|(_, rest)| rest.split_once(" (run as ")) else { continue };
        let Some(verdict) = rest.rsplit('[').next().and_then(|text| text.split(']').next()) else { continue };
        let test = path.rsplit('/').next().unwrap_or(path);
        let reason = || reason(&output_of(out, test), verdict);
        match test {
            "setup" if verdict != "PASS" => setup = Some(format!("{} (setup)", reason())),
            "setup" | "cleanup" => {}
            _ => {
                let reason = if verdict == "PASS" { String::new() } else { setup.clone().unwrap_or_else(reason) };
                list.push(Outcome { name: format!("{group}/{test}"), verdict: verdict.to_string(), reason });
            }
        }
    }
    list
}

fn output_of(out: &Path, test: &str) -> String {
    let found = Command::new("find").arg(out.join("r")).args(["-path", &format!("*/{test}/merged")]).output();
    let path = found.map(|found| String::from_utf8_lossy(&found.stdout).lines().next().unwrap_or_default().to_string()).unwrap_or_default();
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// Reasons by what the lines around the first error tell; the first that fits.
const REASONS: [(&str, &[&str]); 12] = [
    (
        "needs hardware or a service that is not there",
        &["scsi_debug", "modprobe", "exportfs", "Platform does not have", "io_uring support"],
    ),
    ("the kernel module itself", &["/dev/zfs", "ZFS_ABORT"]),
    ("volumes: block devices", &["/dev/zvol", "zvol"]),
    ("missing: a part of send or receive", &["zfs send", "zfs receive", "zfs recv"]),
    ("missing: channel programs", &["zfs program"]),
    ("missing: split", &["zpool split"]),
    ("missing: upgrades", &["zpool upgrade", "zfs upgrade"]),
    ("missing: encryption", &["keyformat", "encryption"]),
    ("missing: removal of devices", &["operation not supported on this type of pool", "REMOVAL"]),
    ("missing: deduplication, block cloning", &["dedup", "FICLONE", "clonefile"]),
    ("missing: a parameter", &["Function not implemented", "parameters/", "set_tunable", "save_tunable"]),
    ("missing: an option of zdb", &["Usage:\tzdb", "zdb detected"]),
];

fn reason(output: &str, verdict: &str) -> String {
    if verdict == "KILLED" {
        return "did not end in time".into();
    }
    let lines: Vec<&str> = output.lines().collect();
    let error = lines.iter().position(|line| line.starts_with("ERROR") || line.contains("Performing local cleanup")).unwrap_or(lines.len());
    let near: Vec<&str> =
        lines[error.saturating_sub(6)..(error + 3).min(lines.len())].iter().copied().filter(|line| !line.starts_with("SUCCESS")).collect();
    let text = near.join("\n");
    if let Some((reason, _)) = REASONS.iter().find(|(_, words)| words.iter().any(|word| text.contains(word))) {
        return (*reason).to_string();
    }
    if verdict == "SKIP" {
        return "skipped by the test itself".into();
    }
    let first = near.iter().find(|line| line.starts_with("ERROR")).or(near.first()).copied().unwrap_or("no output");
    format!("ours: {}", first.trim().chars().take(160).collect::<String>())
}

/// Entries of the list by test: verdict and reason.
fn listed(root: &Path) -> BTreeMap<String, (String, String)> {
    let text = fs::read_to_string(root.join(LIST)).unwrap_or_default();
    let entry = |line: &str| {
        let mut fields = line.splitn(3, '\t');
        Some((fields.next()?.to_string(), (fields.next()?.to_string(), fields.next()?.to_string())))
    };
    text.lines().filter(|line| !line.starts_with('#')).filter_map(entry).collect()
}

fn judge(root: &Path, asked: &Asked, outcomes: &[Outcome]) -> Result<(), String> {
    println!("{}", summary("total", outcomes));
    let mut list = listed(root);
    let (mut worse, mut better) = (Vec::new(), Vec::new());
    for outcome in outcomes {
        match (outcome.verdict.as_str(), list.contains_key(&outcome.name)) {
            ("PASS", true) => better.push(outcome.name.as_str()),
            ("PASS", false) | (_, true) => {}
            _ => worse.push(format!("{} {}: {}", outcome.name, outcome.verdict, outcome.reason)),
        }
    }
    println!("{} tests pass that are listed as failing, {} fail that are not listed", better.len(), worse.len());
    better.iter().for_each(|name| println!("  passes: {name}"));
    worse.iter().for_each(|line| println!("  fails: {line}"));
    if asked.bless {
        for outcome in outcomes {
            if outcome.verdict == "PASS" {
                list.remove(&outcome.name);
            } else {
                // A reason that somebody wrote is better than what the output shows.
                let entry = list.entry(outcome.name.clone()).or_insert_with(|| (String::new(), outcome.reason.clone()));
                entry.0.clone_from(&outcome.verdict);
            }
        }
        return write_list(root, &list);
    }
    let ours: BTreeSet<&String> = worse.iter().filter(|line| !line.contains(" KILLED:")).collect();
    if ours.is_empty() { Ok(()) } else { Err(format!("{} tests fail that {LIST} does not have", ours.len())) }
}

fn write_list(root: &Path, list: &BTreeMap<String, (String, String)>) -> Result<(), String> {
    let mut text = String::from(
        "# What of OpenZFS's test suite (Debian's zfs-test 2.3.2) does not pass against our commands, and why: test, outcome, reason. Written by `cargo xtask zts --bless`.\n",
    );
    for (name, (verdict, reason)) in list {
        text.push_str(&format!("{name}\t{verdict}\t{reason}\n"));
    }
    fs::write(root.join(LIST), text).map_err(|error| format!("{LIST}: {error}"))
}
