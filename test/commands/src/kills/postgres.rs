//! PostgreSQL: transactions of several clients of a server whose data lie on the pool. When the daemon dies the server does too, and is started again
//! as soon as that is possible.

use super::load::{Dialog, Load, Worker, none_is_lost};
use crate::waiting::until;
use crate::world::{Failure, World, same};
use need::Need;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Folder of Debian's packages, which has one for each version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// User and group that the server runs as: it refuses root.
const NOBODY: u32 = 65_534;
/// Number of clients.
const CLIENTS: u64 = 2;
/// Time without a transaction after which the server is started anew: its own folder may be in a mount that is dead.
const IDLE_MAX: Duration = Duration::from_secs(15);
/// Way in which it is synced, in turns.
const METHODS: [&str; 3] = ["fdatasync", "open_datasync", "fsync"];

/// Folder of the newest server's programs; None when there is none, and it may be left out.
pub fn find() -> Result<Option<PathBuf>, Failure> {
    let is_whole = |folder: &PathBuf| ["initdb", "postgres", "psql", "pg_amcheck"].iter().all(|program| folder.join(program).is_file());
    let versions = std::fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    let found = versions.map(|version| version.path().join("bin")).filter(is_whole).max();
    if found.is_none() {
        need::missing(Need::Databases, "kills: PostgreSQL", format!("no server in {VERSIONS}"))?;
    }
    Ok(found)
}

/// Server's programs and places.
struct Place {
    programs: PathBuf,
    data: PathBuf,
    /// Folder of its socket and its words.
    socket: PathBuf,
    method: &'static str,
    full_pages: bool,
    /// True when the mount that it lies in outlives the daemon: then nothing is a reason to start it anew.
    is_kept: bool,
    /// The server, while it is to run.
    server: Mutex<Option<Child>>,
    /// Time of the last start or transaction.
    served: Mutex<Instant>,
    ends: AtomicBool,
}

impl Place {
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.current_dir("/").uid(NOBODY).gid(NOBODY).env("PGHOST", &self.socket).env("PGUSER", "postgres");
        command
    }

    fn make(&self) -> Result<(), Failure> {
        let output = self
            .program("initdb")
            .arg("-D")
            .arg(&self.data)
            .args(["-A", "trust", "-U", "postgres", "--no-locale", "--wal-segsize=1"])
            .output()?;
        if !output.status.success() {
            return Err(format!("      initdb: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        let pages = if self.full_pages { "on" } else { "off" };
        let settings = format!(
            "listen_addresses = ''\nunix_socket_directories = '{}'\nfsync = on\nsynchronous_commit = on\nfull_page_writes = {pages}\n\
             wal_sync_method = {}\nshared_buffers = 8MB\nmax_connections = 12\nmin_wal_size = 4MB\nmax_wal_size = 16MB\n\
             checkpoint_timeout = 30s\nrestart_after_crash = off\n",
            self.socket.display(),
            self.method
        );
        let path = self.data.join("postgresql.conf");
        let file = File::create(path)?;
        std::io::Write::write_all(&mut &file, settings.as_bytes())?;
        Ok(file.sync_all()?)
    }

    fn start(&self) -> std::io::Result<Child> {
        let said = File::options().create(true).append(true).open(self.socket.join("log"))?;
        self.program("postgres").arg("-D").arg(&self.data).stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said).spawn()
    }

    /// Asks as a client of its own.
    fn ask(&self, when: &str, question: &str) -> Result<String, Failure> {
        let output = self.program("psql").args(["-qAtX", "-v", "ON_ERROR_STOP=1", "-d", "postgres", "-c", question]).output()?;
        if !output.status.success() {
            return Err(format!("      {when}: PostgreSQL: {question}: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_string())
    }

    /// Waits until the server answers.
    fn wait(&self, when: &str) -> Result<(), Failure> {
        until("PostgreSQL is there", || Ok(self.ask(when, "SELECT 1;").is_ok()))
    }

    fn serves(&self) {
        *self.served.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn client(&self) -> Option<Dialog> {
        Dialog::start(self.program("psql").args(["-qAtX", "-v", "ON_ERROR_STOP=1", "-d", "postgres"]))
    }

    /// Looks after the server: starts it where there is none, or where nobody was served for long.
    fn attend(&self) {
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        if self.ends.load(Ordering::Acquire) {
            return;
        }
        if let Some(child) = server.as_mut() {
            let is_over = child.try_wait().is_ok_and(|status| status.is_some());
            let is_idle = self.served.lock().unwrap_or_else(PoisonError::into_inner).elapsed() >= IDLE_MAX;
            if !is_over && (self.is_kept || !is_idle) {
                return;
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        self.serves();
        *server = self.start().ok();
    }

    /// Ends the server in order.
    fn end(&self) -> Result<(), Failure> {
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(child) = server.as_mut() else { return Ok(()) };
        if let Some(pid) = rustix::process::Pid::from_raw(child.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        }
        until("PostgreSQL ends", || Ok(child.try_wait()?.is_some()))?;
        *server = None;
        Ok(())
    }
}

/// Databases of a server.
pub struct Postgres {
    place: Arc<Place>,
    clients: Vec<Worker<u64>>,
    attendant: Worker<()>,
}

impl Postgres {
    /// Makes a server's data in `folder`, and starts it and its clients.
    pub fn start(world: &World, programs: PathBuf, folder: &Path, (seed, is_kept): (u64, bool)) -> Result<Postgres, Failure> {
        chown(folder, Some(NOBODY), Some(NOBODY))?;
        let socket = world.path("pg");
        std::fs::DirBuilder::new().mode(0o777).create(&socket)?;
        chown(&socket, Some(NOBODY), Some(NOBODY))?;
        let place = Place {
            programs,
            data: folder.join("data"),
            socket,
            method: METHODS[seed as usize % METHODS.len()],
            full_pages: seed.is_multiple_of(2),
            is_kept,
            server: Mutex::new(None),
            served: Mutex::new(Instant::now()),
            ends: AtomicBool::new(false),
        };
        place.make()?;
        let place = Arc::new(place);
        let attended = place.clone();
        let attendant = Worker::start(move || {
            attended.attend();
            None::<()>
        });
        // Clients that come before it answers, or make the same table at a time, are refused.
        place.wait("at first")?;
        place
            .ask("at first", "CREATE TABLE orders (n bigint PRIMARY KEY, pad text); CREATE TABLE sums (k bigint PRIMARY KEY, n bigint);")?;
        let client = |client: u64| {
            let place = place.clone();
            let (mut number, mut session) = (client * 1_000_000_000, None);
            Worker::start(move || {
                let done = commit(&place, &mut session, &mut number);
                match done {
                    Some(_) => place.serves(),
                    None => session = None,
                }
                done
            })
        };
        let clients = (0..CLIENTS).map(client).collect();
        Ok(Postgres { place, clients, attendant })
    }
}

/// Does one transaction; gives its number when it was acknowledged.
fn commit(place: &Place, session: &mut Option<Dialog>, number: &mut u64) -> Option<u64> {
    if session.is_none() {
        let mut new = place.client()?;
        new.ask("SELECT 'ready';", "ready")?;
        *session = Some(new);
    }
    *number += 1;
    let line = format!(
        "BEGIN; INSERT INTO orders VALUES ({number}, repeat(md5('{number}'), {})); \
         INSERT INTO sums VALUES ({}, 1) ON CONFLICT (k) DO UPDATE SET n = sums.n + 1; COMMIT; SELECT {number};{}",
        *number * 37 % 50,
        *number % 11,
        if number.is_multiple_of(150) { " CHECKPOINT;" } else { "" }
    );
    session.as_mut()?.ask(&line, &number.to_string())?;
    Some(*number)
}

impl Load for Postgres {
    fn name(&self) -> &'static str {
        "transactions of PostgreSQL"
    }
    fn acknowledged(&self) -> Vec<usize> {
        self.clients.iter().map(Worker::count).collect()
    }
    fn failures(&self) -> usize {
        self.clients.iter().map(Worker::failures).sum()
    }
    fn finish(&mut self) -> Result<(), Failure> {
        self.clients.iter_mut().try_for_each(Worker::finish)?;
        self.attendant.finish()?;
        self.place.ends.store(true, Ordering::Release);
        self.place.end()
    }
    /// Every transaction that was acknowledged is there, each whole, and the server's own check of tables and indexes finds nothing.
    fn check(&mut self, when: &str) -> Result<(), Failure> {
        *self.place.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.place.start()?);
        self.place.wait(when)?;
        let ask = |question: &str| self.place.ask(when, question);
        let found: BTreeSet<u64> = ask("SELECT n FROM orders;")?.lines().filter_map(|line| line.parse().ok()).collect();
        let acknowledged: Vec<u64> = self.clients.iter().flat_map(Worker::list).collect();
        none_is_lost(&format!("{when}: PostgreSQL"), &acknowledged, &found)?;
        let whole = ask("SELECT (SELECT coalesce(sum(n), 0) FROM sums) = (SELECT count(*) FROM orders);")?;
        same(&format!("{when}: PostgreSQL: both tables have each transaction"), whole, "t".to_string())?;
        let output = self.place.program("pg_amcheck").args(["--install-missing", "--heapallindexed", "-d", "postgres"]).output()?;
        if !output.status.success() {
            let said = [output.stdout, output.stderr].concat();
            return Err(format!("      {when}: pg_amcheck: {}", String::from_utf8_lossy(&said)).into());
        }
        self.place.end()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.place.ends.store(true, Ordering::Release);
        if let Some(child) = self.place.server.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
