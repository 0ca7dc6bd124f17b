//! The program as it is run: killed with its hosts at work, ended by a signal, started wrongly.

use abd::{Abd, AbdPart};
use dpusm::{Device, Graph, NoHost, OpError, Provider, RaidContext, RegisterOptions, Registry, Store, StoreKind, StoreTarget};
use exec::{Exec, Pool, SplitMix};
use ondisk::{ByteOrder, Checksum};
use provider_target::{TargetOptions, TargetProvider};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use target_wire::{Address, Secret};

const SECRET: &str = "correct horse battery staple\n";
const COLUMN: usize = 16 << 10;
const DEADLINE_NS: u64 = 120_000_000_000;

struct Process {
    child: Child,
    address: Address,
    folder: PathBuf,
}

impl Process {
    fn new(name: &str, is_local: bool) -> Process {
        Process::on(name, is_local, |_| "software".into())
    }

    /// A target on a provider, which is made in its folder.
    fn on(name: &str, is_local: bool, provider: impl FnOnce(&Path) -> PathBuf) -> Process {
        let folder = std::env::temp_dir().join(format!("zirconia-target-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("secret"), SECRET).unwrap();
        for disk in disks(&folder) {
            std::fs::File::create(disk).unwrap().set_len(64 << 20).unwrap();
        }
        let address = if is_local { format!("unix:{}", folder.join("socket").display()) } else { "tcp:127.0.0.1:0".to_string() };
        let mut child = Command::new(env!("CARGO_BIN_EXE_zirconia-target"))
            .args(["--listen", &address, "--lease", "1", "--memory", "64M"])
            .arg("--secret-file")
            .arg(folder.join("secret"))
            .arg("--allow")
            .arg(&folder)
            .arg("--provider")
            .arg(provider(&folder))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("zirconia-target: listening at ").expect("it says where it listens").parse().unwrap();
        Process { child, address, folder }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn connect(&self, exec: &Exec) -> (Arc<TargetProvider>, Device) {
        let secret = Secret::new(SECRET.trim().as_bytes()).unwrap();
        let provider = TargetProvider::connect(exec, &TargetOptions::new("far", self.address.clone(), secret)).unwrap();
        let options = RegisterOptions { scratch: Some(self.folder.clone()), test_bytes_max: 512, ..RegisterOptions::default() };
        let device = Registry::new(exec).register(provider.clone(), &options).unwrap();
        assert_eq!(device.disabled(), []);
        (provider, device)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn disks(folder: &Path) -> Vec<PathBuf> {
    (0..3).map(|number| folder.join(format!("disk{number}"))).collect()
}

/// Writes a record of two columns and their parity, in two programs.
fn write(device: &Device, stores: &[Store], record: &Abd, at: u64) -> Result<[u64; 4], OpError> {
    let (block, parity) = (device.alloc(2 * COLUMN)?, device.alloc(COLUMN)?);
    let mut graph = Graph::new();
    graph.copy_in(record, &block.whole());
    let sum = graph.checksum(block.whole(), Checksum::FLETCHER_4, ByteOrder::Little);
    let report = device.run(graph, DEADLINE_NS).map_err(|refused| refused.error)?;
    let words = report.checksum(sum)?;
    let row = RaidContext::new(vec![parity.whole()], vec![block.view(0..COLUMN)?, block.view(COLUMN..2 * COLUMN)?])?;
    let mut graph = Graph::new();
    graph.raid_generate(&row);
    for (column, store) in row.columns().iter().zip(stores) {
        graph.store(column, store, at);
        graph.flush(store);
    }
    device.run(graph, DEADLINE_NS).map_err(|refused| refused.error)?.all()?;
    Ok(words)
}

/// Killed while records are written: all that it acknowledged is in the files, and the host is told that it is gone.
#[test]
fn a_killed_target_loses_nothing_that_it_acknowledged() {
    kill(false);
}

/// The same with records in memory that both share: what the dead process had of it is nobody's.
#[test]
fn a_killed_target_loses_nothing_of_what_lay_in_shared_memory() {
    kill(true);
}

fn kill(is_local: bool) {
    let process = Process::new(if is_local { "killed-local" } else { "killed" }, is_local);
    let exec: Exec = Arc::new(Pool::new(2));
    let (provider, device) = process.connect(&exec);
    let open = |path: &PathBuf| device.open(&StoreTarget { kind: StoreKind::File, path: path.clone(), host: Arc::new(NoHost) });
    let stores: Vec<Store> = disks(&process.folder).iter().map(|path| open(path).unwrap()).collect();
    let mut random = SplitMix::new(1);
    let mut records = Vec::new();
    let killer = std::thread::scope(|scope| {
        let process = &process;
        let killer = scope.spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(100));
            process.signal(Signal::KILL);
        });
        loop {
            let record: Vec<u8> = random.bytes(2 * COLUMN);
            let at = (records.len() % 4000 * COLUMN) as u64;
            match write(&device, &stores, &Abd::from_slice(&record), at) {
                Ok(words) => records.push((at, record, words)),
                Err(error) => {
                    assert!(matches!(error, OpError::Down | OpError::Tripped), "{error}");
                    break;
                }
            }
        }
        killer.join()
    });
    killer.unwrap();
    // Its lease ends soon.
    while !provider.is_down() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    println!("{} records acknowledged", records.len());
    assert!(records.is_empty() || (provider.stats().shared_out > 0) == is_local, "{:?}", provider.stats());
    let files: Vec<Vec<u8>> = disks(&process.folder).iter().map(|path| std::fs::read(path).unwrap()).collect();
    let last = records.len().saturating_sub(3999);
    for (at, record, words) in &records[last..] {
        let at = *at as usize;
        let found = [&files[1][at..at + COLUMN], &files[2][at..at + COLUMN]].concat();
        assert!(found == *record, "a record at {at} is lost");
        assert!(files[0][at..at + COLUMN].iter().zip(record).zip(&record[COLUMN..]).all(|((p, a), b)| *p == a ^ b), "its parity");
        let sum = dpusm::verify(&dpusm::Claim::Checksum {
            kind: Checksum::FLETCHER_4,
            order: ByteOrder::Little,
            data: &Abd::from_slice(record),
            words: *words,
        });
        assert!(sum, "its checksum");
    }
}

/// An administrator's `kill` ends it in good order; hosts are told, not left to wait.
#[test]
fn a_signal_ends_it_with_success() {
    let mut process = Process::new("signal", false);
    let exec: Exec = Arc::new(Pool::new(2));
    let (provider, device) = process.connect(&exec);
    process.signal(Signal::TERM);
    assert!(process.child.wait().unwrap().success());
    while !provider.is_down() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(device.alloc(1).map(|_| ()), Err(OpError::Down));
}

/// An accelerator beside the disks is what a target is for: one of a vendor computes, and when its process ends, so does the target, with a failure
/// that whoever started it sees; hosts are told.
#[test]
fn a_library_of_a_vendor_computes_for_hosts() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let build = |folder: &Path| {
        let library = folder.join("example.so");
        let mut compiler = Command::new("cc");
        compiler.args(["-std=c11", "-O2", "-fPIC", "-shared", "-I"]).arg(top.join("include")).arg("-o").arg(&library);
        assert!(compiler.arg(top.join("examples/provider-c/provider.c")).status().unwrap().success());
        library
    };
    let mut process = Process::on("library", false, build);
    let exec: Exec = Arc::new(Pool::new(2));
    let secret = Secret::new(SECRET.trim().as_bytes()).unwrap();
    let provider = TargetProvider::connect(&exec, &TargetOptions::new("far", process.address.clone(), secret)).unwrap();
    assert!(Provider::version(&*provider).ends_with(" on example"), "{}", Provider::version(&*provider));
    let options = RegisterOptions { test_bytes_max: 512, ..RegisterOptions::default() };
    let device = Registry::new(&exec).register(provider.clone(), &options).unwrap();
    let bytes: Vec<u8> = SplitMix::new(3).bytes(COLUMN);
    let buffer = device.alloc(COLUMN).unwrap();
    let mut graph = Graph::new();
    graph.copy_in(&Abd::from_slice(&bytes), &buffer.whole());
    let back = graph.copy_out(buffer.whole(), vec![AbdPart::scratch(COLUMN)]);
    assert!(device.run(graph, DEADLINE_NS).unwrap().take_bytes(back).unwrap().to_vec() == bytes);
    // The library's process is the target's only child.
    let children = format!("/proc/{0}/task/{0}/children", process.child.id());
    let library: i32 = std::fs::read_to_string(children).unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(library).unwrap(), Signal::KILL).unwrap();
    // Nobody asks for anything meanwhile.
    while process.child.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(!process.child.wait().unwrap().success());
}

/// What is wrong is said, with the file or address that it is about.
#[test]
fn a_wrong_start_is_explained() {
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_zirconia-target")).args(arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let short = std::env::temp_dir().join(format!("zirconia-target-short-{}", std::process::id()));
    std::fs::write(&short, "short\n").unwrap();
    let path = short.to_str().unwrap();
    let said = run(&["--listen", "tcp:127.0.0.1:0", "--secret-file", path, "--allow", "/tmp"]);
    assert_eq!(said, format!("zirconia-target: {path}: the secret has fewer than 16 bytes\n"));
    std::fs::write(&short, SECRET).unwrap();
    let said = run(&["--listen", "tcp:127.0.0.1:0", "--secret-file", path, "--allow", "/no such folder"]);
    assert!(said.starts_with("zirconia-target: /no such folder: "), "{said}");
    let said = run(&["--listen", "unix:/no such folder/socket", "--secret-file", path, "--allow", "/tmp"]);
    assert!(said.starts_with("zirconia-target: cannot listen at unix:/no such folder/socket: "), "{said}");
    let library = ["--provider", "/no such folder/provider.so"];
    let said = run(&[&["--listen", "tcp:127.0.0.1:0", "--secret-file", path, "--allow", "/tmp"][..], &library].concat());
    assert!(said.starts_with("zirconia-target: /no such folder/provider.so: "), "{said}");
    let said = run(&["--listen", "carrier:pigeon", "--secret-file", path, "--allow", "/tmp"]);
    assert!(said.contains("neither unix:PATH nor tcp:HOST:PORT"), "{said}");
    std::fs::remove_file(short).unwrap();
}
