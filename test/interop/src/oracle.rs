//! The real OpenZFS in user space: `zdb`, and `zpfix` (libzpool), run on folders of vdev files.

use crate::Failure;
use crate::manifest::{self, Lines};
use need::{Missing, Need};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ZDB_SECONDS: u64 = 900;
const ZPFIX_SECONDS: u64 = 900;
const SETUP_SECONDS: u64 = 600;
/// Pause between two looks at a program.
const POLL: Duration = Duration::from_millis(10);

/// Oracles that were found.
pub struct Oracle {
    zdb: Option<PathBuf>,
    zpfix: Option<PathBuf>,
}

/// Code and output of a program.
struct Said {
    code: Option<i32>,
    text: String,
}

fn run(command: &mut Command, seconds: u64) -> Result<Said, Failure> {
    run_until(command, seconds, |_| false)
}

/// Does [`run`], and ends a program (without a code) once it has said all that matters.
fn run_until(command: &mut Command, seconds: u64, is_enough: impl Fn(&str) -> bool) -> Result<Said, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let log = tempfile_like(&name)?;
    let file = std::fs::File::create(&log)?;
    let mut child = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn()?;
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let mut seen_bytes = 0;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        // Looked at when there is more of it: some say megabytes, and are silent for seconds.
        let bytes = std::fs::metadata(&log)?.len();
        if bytes > seen_bytes && is_enough(&String::from_utf8_lossy(&std::fs::read(&log)?)) {
            child.kill()?;
            break child.wait()?;
        }
        seen_bytes = bytes;
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            let _ = std::fs::remove_file(&log);
            return Err(format!("{name} did not end within {seconds} s").into());
        }
        std::thread::sleep(POLL);
    };
    let text = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
    let _ = std::fs::remove_file(&log);
    Ok(Said { code: status.code(), text })
}

/// Tries again when libzpool falls over its own reference counts, as it does now and then while it lets go of any pool.
fn persist(mut attempt: impl FnMut() -> Result<Said, Failure>) -> Result<Said, Failure> {
    const TRIES: usize = 4;
    const KNOWN: &str = "zfs_refcount_destroy";
    let mut said = attempt()?;
    for _ in 1..TRIES {
        if said.code.is_some() || !said.text.contains(KNOWN) {
            break;
        }
        println!("note: libzpool aborted in {KNOWN}; tried again");
        said = attempt()?;
    }
    Ok(said)
}

/// Path of a new file for a program's output; pipes could fill up.
fn tempfile_like(program: &str) -> Result<PathBuf, Failure> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let base = Path::new(program).file_name().map_or_else(|| "program".into(), |name| name.to_string_lossy().into_owned());
    Ok(crate::scratch()?.join(format!("{base}.{}", COUNT.fetch_add(1, Ordering::Relaxed))))
}

/// Last lines of a text, for a message.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(6)..].join("\n      ")
}

/// Lines of what a zdb says, but for the path of a device, which each knows from elsewhere.
fn lines(said: &Said) -> impl Iterator<Item = &str> {
    said.text.lines().filter(|line| !line.starts_with("Found vdev: "))
}

/// Runs our zdb and the real one on a pool; gives what the real one says, which must be the same.
fn same([ours, theirs]: &[PathBuf; 2], folder: &Path, words: &[&str]) -> Result<String, Failure> {
    // How far it is with a checkpoint the real one says on its standard error, in the midst of lines.
    let show = |program: &PathBuf| {
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" 2>/dev/null"]).arg(program);
        run(command.args(["-e", "-p"]).arg(folder).args(words).env("ZDB_NO_ZLE", "true"), ZDB_SECONDS)
    };
    let (expected, shown) = (show(theirs)?, show(ours)?);
    let words = words.join(" ");
    if let Some((expected, shown)) = lines(&expected).zip(lines(&shown)).find(|(expected, shown)| expected != shown) {
        return Err(format!("zdb {words} differs:\n      real {expected}\n      ours {shown}").into());
    }
    if lines(&expected).count() != lines(&shown).count() || expected.code != shown.code {
        return Err(format!("zdb {words}: {:?} and {:?}, or more lines", expected.code, shown.code).into());
    }
    Ok(expected.text)
}

/// Place of the first block of a level in a listing with whole pointers, and its logical and physical size, all as they stand there.
fn block<'l>(listing: &'l str, level: &str) -> Option<[&'l str; 3]> {
    let start = format!("{level} DVA[0]=<");
    let line = listing.lines().find(|line| line.contains(&start) && line.contains(" contiguous "))?;
    let (dva, rest) = line.split_once("DVA[0]=<")?.1.split_once('>')?;
    let (lsize, rest) = rest.split_once(" size=")?.1.split_once("L/")?;
    Some([dva.rsplit_once(':')?.0, lsize, rest.split_once("P ")?.0])
}

impl Oracle {
    /// Looks for the oracles; builds `zpfix` once from its sources where they lie (`$ZIRCONIA_PEER` or `../shared/peer`).
    /// Where one is not there that must be (`ZIRCONIA_STRICT`), that is the error.
    pub fn find(root: &Path) -> Result<Oracle, Missing> {
        need::lacks(Need::Zdb, "every check by zdb")?;
        let zpfix = find_zpfix(root);
        if let Err(why) = &zpfix {
            need::missing(Need::Peer, "every check by the real engine's zpfix", why)?;
        }
        Ok(Oracle { zdb: need::zdb(), zpfix: zpfix.ok() })
    }

    /// True when zdb can judge pools.
    pub fn has_zdb(&self) -> bool {
        self.zdb.is_some()
    }

    /// True when the real engine can make and check pools.
    pub fn has_zpfix(&self) -> bool {
        self.zpfix.is_some()
    }

    /// Checks with `zdb -bccdh`: every block read, no leak, every reference count of a feature right, no complaint.
    ///
    /// It is not waited for once it said so ([`need::clean`]). So its exit code is not judged: [`Oracle::zdb_clean_to_its_end`] does that.
    pub fn zdb_clean(&self, folder: &Path, pool: &str) -> Result<(), Failure> {
        self.zdb_says(folder, ("-bccdh", pool), |text| need::clean(text).is_ok()).map(drop)
    }

    /// Does [`Oracle::zdb_clean`] without the history, which pools before version 4 have not.
    pub fn zdb_clean_before_history(&self, folder: &Path, pool: &str) -> Result<(), Failure> {
        let Some(zdb) = &self.zdb else { return Ok(()) };
        let said = run(Command::new(zdb).args(["-e", "-p"]).arg(folder).args(["-bccd", pool]), ZDB_SECONDS)?;
        let judged = need::clean_before_history(&said.text);
        if let (Ok(()), Some(0)) = (&judged, said.code) {
            return Ok(());
        }
        let why = judged.err().unwrap_or_default();
        Err(format!("zdb -bccd: {why}; it ended with {:?}:\n      {}", said.code, tail(&said.text)).into())
    }

    /// Does [`Oracle::zdb_clean`] with the state that the pool's checkpoint keeps.
    pub fn zdb_clean_kept(&self, folder: &Path, pool: &str) -> Result<(), Failure> {
        self.zdb_says(folder, ("-kbccdh", pool), |text| need::clean(text).is_ok()).map(drop)
    }

    /// Does [`Oracle::zdb_clean`], and the history is shown, the pool is let go of, and zdb ends with 0. Six seconds slower: the whole
    /// matrix (`--all`) does it once for each layout, quick runs never.
    pub fn zdb_clean_to_its_end(&self, folder: &Path, pool: &str) -> Result<(), Failure> {
        let Some(said) = self.zdb_says(folder, ("-bccdh", pool), |_| false)? else { return Ok(()) };
        if said.code != Some(0) {
            return Err(format!("zdb -bccdh found nothing wrong, but ended with {:?}:\n      {}", said.code, tail(&said.text)).into());
        }
        Ok(())
    }

    /// Output of zdb on the pool until `is_enough`; an error when it is not clean, None without a zdb.
    fn zdb_says(&self, folder: &Path, (how, pool): (&str, &str), is_enough: impl Fn(&str) -> bool) -> Result<Option<Said>, Failure> {
        let Some(zdb) = &self.zdb else { return Ok(None) };
        // Line by line, where there is a program that makes it so.
        let mut command = match need::on_path("stdbuf") {
            Some(stdbuf) => Command::new(stdbuf),
            None => Command::new(zdb),
        };
        if need::on_path("stdbuf").is_some() {
            command.arg("-oL").arg(zdb);
        }
        let said = run_until(command.args(["-e", "-p"]).arg(folder).args([how, pool]), ZDB_SECONDS, is_enough)?;
        match need::clean(&said.text) {
            Ok(()) => Ok(Some(said)),
            Err(why) => Err(format!("zdb {how}: {why}; it ended with {:?}:\n      {}", said.code, tail(&said.text)).into()),
        }
    }

    /// Paths of our zdb, built beside this program, and of the real one; None where one is not there.
    fn zdbs(&self) -> Result<Option<[PathBuf; 2]>, Failure> {
        let Some(theirs) = &self.zdb else { return Ok(None) };
        let ours = std::env::current_exe()?.with_file_name("zdb");
        if !ours.is_file() {
            need::missing(Need::Programs, "our zdb beside the real one", format!("no {}", ours.display()))?;
            return Ok(None);
        }
        Ok(Some([ours, theirs.clone()]))
    }

    /// Checks that our zdb shows a pool as the real one does: configuration, datasets, objects, contents, blocks.
    pub fn zdb_same(&self, folder: &Path, pool: &str) -> Result<(), Failure> {
        let Some(programs) = self.zdbs()? else { return Ok(()) };
        let root = format!("{pool}/");
        // One after the other in one run: the real one spends a second of each on letting its cache go (OpenZFS: `arc_min_prefetch_ms`).
        for (how, target) in [("-Cud", pool), ("-dd", pool), ("-ddddd", root.as_str())] {
            same(&programs, folder, &[how, target])?;
        }
        Ok(())
    }

    /// Checks that our zdb shows block pointers whole, and blocks by their places, as the real one does: an indirect block and a block of dnodes.
    /// Six seconds, as [`Oracle::zdb_clean_to_its_end`].
    pub fn zdb_blocks_same(&self, folder: &Path, pool: &str) -> Result<(), Failure> {
        let Some(programs) = self.zdbs()? else { return Ok(()) };
        let root = format!("{pool}/");
        let listing = same(&programs, folder, &["-dddddbbbbbb", &root, "0"])?;
        for (level, flags) in [("L1 ", ":id"), ("L0", ":d"), ("L0", "")] {
            let [place, lsize, psize] = block(&listing, level).ok_or_else(|| format!("zdb shows no block {level} of {root}"))?;
            let words = if flags.is_empty() { format!("{place}:{psize}") } else { format!("{place}:{lsize}/{psize}{flags}") };
            // Of what is not compressed the real one tries every size up to the largest, for minutes.
            if flags.is_empty() || lsize != psize {
                same(&programs, folder, &["-R", pool, &words])?;
            }
        }
        Ok(())
    }

    /// Bytes of a file as zdb finds them.
    pub fn zdb_file(&self, folder: &Path, dataset: &str, path: &str) -> Result<Option<Vec<u8>>, Failure> {
        let Some(zdb) = &self.zdb else { return Ok(None) };
        let out = tempfile_like("copy")?;
        let _ = std::fs::remove_file(&out);
        let said = run(Command::new(zdb).args(["-e", "-p"]).arg(folder).args(["-r", dataset, path]).arg(&out), ZDB_SECONDS)?;
        let bytes = std::fs::read(&out);
        let _ = std::fs::remove_file(&out);
        if said.code != Some(0) {
            return Err(format!("zdb -r {dataset} {path} ended with {:?}:\n      {}", said.code, tail(&said.text)).into());
        }
        Ok(Some(bytes?))
    }

    /// Number of writes in the intent log of a dataset; None without a zdb.
    pub fn logged_writes(&self, folder: &Path, dataset: &str) -> Result<Option<usize>, Failure> {
        let Some(zdb) = &self.zdb else { return Ok(None) };
        let said = run(Command::new(zdb).args(["-e", "-p"]).arg(folder).args(["-ivvv", dataset]), ZDB_SECONDS)?;
        if said.code != Some(0) || !said.text.contains("ZIL header") {
            return Err(format!("zdb -ivvv ended with {:?}:\n      {}", said.code, tail(&said.text)).into());
        }
        let writes = said.text.lines().filter(|line| line.trim_start().starts_with("TX_WRITE ") && line.contains("txg")).count();
        Ok(Some(writes))
    }

    /// Intent logs of the datasets of a pool that have one; None without a zdb.
    pub fn logs(&self, folder: &Path, pool: &str) -> Result<Option<BTreeMap<String, LogListed>>, Failure> {
        let Some(zdb) = &self.zdb else { return Ok(None) };
        let said = run(Command::new(zdb).args(["-e", "-p"]).arg(folder).args(["-ivvv", pool]), ZDB_SECONDS)?;
        if said.code != Some(0) {
            return Err(format!("zdb -ivvv ended with {:?}:\n      {}", said.code, tail(&said.text)).into());
        }
        Ok(Some(LogListed::all(&said.text)))
    }

    /// Has the real engine list a pool that it only reads; None without it.
    pub fn looked_at(&self, folder: &Path, pool: &str) -> Result<Option<Lines>, Failure> {
        Ok(self.checked(folder, pool, &[], false)?.map(|text| manifest::parse(&text)))
    }

    /// Makes a fixture.
    pub fn make(&self, name: &str, folder: &Path) -> Result<(), Failure> {
        let zpfix = self.zpfix.as_ref().ok_or("zpfix is missing")?;
        std::fs::create_dir_all(folder)?;
        let said = persist(|| run(Command::new(zpfix).args(["make", name]).arg(folder), ZPFIX_SECONDS))?;
        if said.code == Some(0) { Ok(()) } else { Err(format!("zpfix make {name}: {}", tail(&said.text)).into()) }
    }

    /// Has the real engine send a snapshot, since another one if that is given, into a file, with the flags that zpfix knows.
    pub fn send(
        &self,
        folder: &Path,
        pool: &str,
        (from, snapshot): (Option<&str>, &str),
        (out, flags): (&Path, &str),
    ) -> Result<(), Failure> {
        let zpfix = self.zpfix.as_ref().ok_or("zpfix is missing")?;
        let send = || {
            let mut command = Command::new(zpfix);
            command.args(["send", pool]).arg(folder).arg(snapshot).arg(out).args([from.unwrap_or("-"), flags]);
            run(&mut command, ZPFIX_SECONDS)
        };
        let said = persist(send)?;
        if said.code == Some(0) { Ok(()) } else { Err(format!("zpfix send {snapshot}: {}", tail(&said.text)).into()) }
    }

    /// Has the real engine import the pool read-write and scrub it without an error; returns its manifest.
    pub fn check(&self, folder: &Path, pool: &str) -> Result<Option<Lines>, Failure> {
        self.scrubbed(folder, pool, false)
    }

    /// Does [`Oracle::check`]; its manifest has nothing of file systems before version 5, which `zpfix` cannot list.
    pub fn check_but_old(&self, folder: &Path, pool: &str) -> Result<Option<Lines>, Failure> {
        self.scrubbed(folder, pool, true)
    }

    fn scrubbed(&self, folder: &Path, pool: &str, has_old: bool) -> Result<Option<Lines>, Failure> {
        let Some(text) = self.checked(folder, pool, &["--rw", "--scrub"], has_old)? else { return Ok(None) };
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap_or_default();
        let scrubbed = line("# scrub").contains("repaired=0 ") && line("# scrub").ends_with("errors=0");
        if !scrubbed || line("# vdev errors:").trim_end() != "# vdev errors:" {
            return Err(format!("the real engine's scrub: {}\n      {}", line("# scrub"), line("# vdev errors:")).into());
        }
        let listed = text.lines().filter(|line| !line.starts_with('!')).map(|line| format!("{line}\n")).collect::<String>();
        Ok(Some(manifest::parse(&listed)))
    }

    /// Has the real engine import the pool read-write and bring devices that were away up to date; returns its manifest.
    pub fn resilver(&self, folder: &Path, pool: &str) -> Result<Option<Lines>, Failure> {
        Ok(self.checked(folder, pool, &["--rw"], false)?.map(|text| manifest::parse(&text)))
    }

    /// Has OpenZFS's `zstream` read a stream to its end; without it that is left out.
    pub fn dump(&self, stream: &Path) -> Result<(), Failure> {
        let Some(zstream) = self.zdb.as_ref().map(|zdb| zdb.with_file_name("zstream")).filter(|path| path.is_file()) else { return Ok(()) };
        let said = run(Command::new(zstream).arg("dump").arg(stream), ZDB_SECONDS)?;
        let is_whole = said.text.contains("SUMMARY") && !said.text.to_lowercase().contains("checksum differs");
        if said.code == Some(0) && is_whole { Ok(()) } else { Err(format!("zstream dump: {}", tail(&said.text)).into()) }
    }

    /// Has the real engine receive a stream as a snapshot of a dataset, by the names of both.
    pub fn receive(&self, folder: &Path, pool: &str, (dataset, snapshot): (&str, &str), stream: &Path) -> Result<(), Failure> {
        let zpfix = self.zpfix.as_ref().ok_or("zpfix is missing")?;
        // Not tried again when it falls over its own feet at the end: the second time the snapshot would be there already.
        let said = run(Command::new(zpfix).args(["recv", pool]).arg(folder).arg(dataset).arg(stream).arg(snapshot), ZPFIX_SECONDS)?;
        let is_done = ["recv_begin rc=0", "recv_stream rc=0", "recv_end rc=0"].iter().all(|line| said.text.contains(line));
        if is_done { Ok(()) } else { Err(format!("zpfix recv ended with {:?}: {}", said.code, tail(&said.text)).into()) }
    }

    fn checked(&self, folder: &Path, pool: &str, how: &[&str], has_old: bool) -> Result<Option<String>, Failure> {
        let Some(zpfix) = &self.zpfix else { return Ok(None) };
        let said = persist(|| run(Command::new(zpfix).args(["check", pool]).arg(folder).args(how), ZPFIX_SECONDS))?;
        // ENOENT of the table of system attributes.
        let is_old = |line: &str| has_old && line.ends_with(" no ZPL: 2");
        let unreadable = said.text.lines().find(|line| (line.starts_with('!') && !is_old(line)) || line.contains("cannot own"));
        if said.code != Some(0) || unreadable.is_some() {
            let what = unreadable.unwrap_or_default();
            return Err(format!("zpfix check {how:?} ended with {:?}: {what}\n      {}", said.code, tail(&said.text)).into());
        }
        Ok(Some(said.text))
    }
}

/// Intent log as `zdb -ivvv` lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogListed {
    /// Txg that claimed it; 0 when nobody did.
    pub claim_txg: u64,
    /// Number of the last record that was claimed.
    pub claim_lr_seq: u64,
    /// Number of the last record that was replayed.
    pub replay_seq: u64,
    /// Records, each with its txg and number.
    pub records: Vec<(u64, u64)>,
}

impl LogListed {
    fn all(text: &str) -> BTreeMap<String, LogListed> {
        let (mut logs, mut name) = (BTreeMap::<String, LogListed>::new(), String::new());
        for line in text.lines() {
            let number = |word: &str| -> Option<u64> {
                let (_, rest) = line.split_once(word)?;
                rest.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
            };
            if let Some((dataset, _)) = line.strip_prefix("Dataset ").and_then(|rest| rest.split_once(" [")) {
                name = dataset.to_string();
            } else if line.contains("ZIL header:") {
                let log = logs.entry(name.clone()).or_default();
                log.claim_txg = number("claim_txg").unwrap_or(0);
                log.claim_lr_seq = number("claim_lr_seq").unwrap_or(0);
                log.replay_seq = number("replay_seq").unwrap_or(0);
            } else if let (true, Some(txg), Some(seq)) = (line.trim_start().starts_with("TX_"), number(" txg "), number(" seq ")) {
                logs.entry(name.clone()).or_default().records.push((txg, seq));
            }
        }
        logs
    }
}

fn find_zpfix(root: &Path) -> Result<PathBuf, String> {
    let places = [std::env::var_os("ZIRCONIA_PEER").map(PathBuf::from), Some(root.join("../shared/peer"))];
    let folder = places.into_iter().flatten().find(|folder| folder.is_dir()).ok_or("no sources in $ZIRCONIA_PEER or ../shared/peer")?;
    let built = root.join("target/peer");
    for ready in [folder.join("zpfix"), built.join("zpfix")] {
        if ready.is_file() {
            return Ok(ready);
        }
    }
    println!("building the real engine's tools into {}", built.display());
    let said = run(Command::new("bash").arg(folder.join("setup.sh")).arg(&built), SETUP_SECONDS).map_err(|error| error.to_string())?;
    let program = built.join("zpfix");
    if said.code == Some(0) && program.is_file() { Ok(program) } else { Err(format!("setup.sh failed: {}", tail(&said.text))) }
}
