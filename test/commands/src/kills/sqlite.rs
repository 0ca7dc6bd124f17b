//! SQLite: transactions in a database with a rollback journal and in one with a write-ahead log, which is synced at every commit.
//!
//! With a rollback journal a commit is the unlinking of the journal, and the syncing of its directory after that, but only with `synchronous=EXTRA`: with
//! FULL the last commit may be taken back by a crash. When the daemon dies between the two, opening the directory fails, and SQLite says yes all the
//! same. So a commit there counts when the daemon still answers after it.

use super::load::{Dialog, Load, Worker};
use crate::world::Failure;
use need::Need;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;

const SHELL: &str = "sqlite3";
/// Kinds of journals.
const JOURNALS: [&str; 2] = ["delete", "wal"];

/// Databases.
pub struct Sqlite {
    folder: PathBuf,
    workers: Vec<Worker<u64>>,
}

/// True when there is no SQLite, and it may be left out.
pub fn is_missing() -> Result<bool, Failure> {
    if need::on_path(SHELL).is_some() {
        return Ok(false);
    }
    need::missing(Need::Databases, "kills: SQLite", format!("no {SHELL}"))?;
    Ok(true)
}

fn database(folder: &Path, journal: &str) -> PathBuf {
    folder.join(format!("{journal}.db"))
}

/// Client of one database.
struct Client {
    folder: PathBuf,
    journal: &'static str,
    number: u64,
    session: Option<(Dialog, OwnedFd)>,
}

impl Client {
    /// Shell with the database open, and the directory as it was when it was opened.
    fn open(&self) -> Option<(Dialog, OwnedFd)> {
        let directory = rustix::fs::open(&self.folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut dialog =
            Dialog::start(Command::new("stdbuf").args(["-oL", SHELL, "-batch", "-bail"]).arg(database(&self.folder, self.journal)))?;
        let begin = format!(
            "PRAGMA busy_timeout=2000; PRAGMA synchronous=EXTRA; PRAGMA journal_mode={}; \
             CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY, pad TEXT); \
             CREATE TABLE IF NOT EXISTS sums (k INTEGER PRIMARY KEY, n INTEGER); SELECT 'ready';",
            self.journal
        );
        dialog.ask(&begin, "ready")?.iter().any(|answer| answer == self.journal).then_some((dialog, directory))
    }

    /// Does one transaction; gives its number when it was acknowledged.
    fn commit(&mut self) -> Option<u64> {
        if self.session.is_none() {
            self.session = Some(self.open()?);
        }
        let (dialog, directory) = self.session.as_mut()?;
        self.number += 1;
        let number = self.number;
        let line = format!(
            "BEGIN; INSERT INTO t VALUES ({number}, hex(randomblob({}))); \
             INSERT INTO sums VALUES ({}, 1) ON CONFLICT DO UPDATE SET n = n + 1; COMMIT; SELECT {number};",
            number * 37 % 1500,
            number % 7
        );
        let is_done = dialog.ask(&line, &number.to_string()).is_some();
        let is_alive = || {
            let seen = rustix::fs::statat(&*directory, format!("absent{number}"), AtFlags::empty());
            matches!(seen, Err(Errno::NOENT))
        };
        if is_done && (self.journal == "wal" || is_alive()) {
            return Some(number);
        }
        self.session = None;
        None
    }
}

impl Sqlite {
    /// Starts a client of each database below `folder`.
    pub fn start(folder: PathBuf) -> Sqlite {
        let worker = |journal: &'static str| {
            let mut client = Client { folder: folder.clone(), journal, number: 0, session: None };
            Worker::start(move || client.commit())
        };
        let workers = JOURNALS.iter().copied().map(worker).collect();
        Sqlite { folder, workers }
    }
}

impl Load for Sqlite {
    fn name(&self) -> &'static str {
        "transactions of SQLite"
    }
    fn acknowledged(&self) -> Vec<usize> {
        self.workers.iter().map(Worker::count).collect()
    }
    fn failures(&self) -> usize {
        self.workers.iter().map(Worker::failures).sum()
    }
    fn finish(&mut self) -> Result<(), Failure> {
        self.workers.iter_mut().try_for_each(Worker::finish)
    }
    /// Every transaction that was acknowledged is there, each whole, and the database is sound.
    fn check(&mut self, when: &str) -> Result<(), Failure> {
        for (journal, worker) in JOURNALS.iter().zip(&self.workers) {
            let path = database(&self.folder, journal);
            let ask = |question: &str| -> Result<String, Failure> {
                let output = Command::new(SHELL).args(["-batch", "-bail"]).arg(&path).arg(question).output()?;
                let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
                if !output.status.success() {
                    return Err(format!("      {when}: SQLite, {journal}: {question}: {out}{err}").into());
                }
                Ok(out.trim_end().to_string())
            };
            crate::world::same(&format!("{when}: SQLite's check of {journal}"), ask("PRAGMA integrity_check;")?, "ok".to_string())?;
            let found: BTreeSet<u64> = ask("SELECT n FROM t;")?.lines().filter_map(|line| line.parse().ok()).collect();
            super::load::none_is_lost(&format!("{when}: SQLite, {journal}"), &worker.list(), &found)?;
            let whole = ask("SELECT (SELECT coalesce(sum(n), 0) FROM sums) = (SELECT count(*) FROM t);")?;
            crate::world::same(&format!("{when}: SQLite, {journal}: both tables have each transaction"), whole, "1".to_string())?;
        }
        Ok(())
    }
}
