//! The program on pools in files: what `-C`, `-d` and `-dd` show, and what it says of what is not there or damaged. When these fail, the
//! tool that people trust to look into a broken pool misleads them, or falls over the pool.

use device::{BlockDevice, OpenOptions};
use dsl::CreateDataset;
use exec::{Exec, Inline};
use ondisk::ObjsetType;
use pool::{ImportOptions, LeafSpec, Pool, PoolSpec, Runtime, TopSpec};
use send::{SendOptions, Sending};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use stream::Writer;
use vdev::{LeafKind, TopKind};

const DEVICE_BYTES: u64 = 64 << 20;

/// Folder with a pool `tank` in it, and another file system; gone when it goes.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn dataset() -> CreateDataset {
    let init = |objset: &Arc<dmu::Objset>, tx: &dmu::Tx| {
        zpl::Zfs::create(objset, &zpl::CreateOptions::default(), tx).map_err(|_| dsl::DslError::Unsupported)
    };
    CreateDataset { kind: ObjsetType::ZFS, properties: Vec::new(), init: Box::new(init) }
}

fn folder(name: &str) -> Folder {
    let folder = Folder(std::env::temp_dir().join(format!("zirconia-zdb-{}-{name}", std::process::id())));
    std::fs::create_dir_all(&folder.0).expect("a folder");
    let path = folder.0.join("d0");
    std::fs::File::create(&path).and_then(|file| file.set_len(DEVICE_BYTES)).expect("a file");
    let exec: Exec = Arc::new(Inline::new(5));
    let device: Arc<dyn BlockDevice> = device::open(&path, &OpenOptions::default()).expect("opens");
    let leaf = LeafSpec { path: path.to_string_lossy().into_owned(), kind: LeafKind::File, device };
    let spec = PoolSpec { ashift: Some(12), ..PoolSpec::new("tank", vec![TopSpec { kind: TopKind::Leaf, leaves: vec![leaf] }], dataset()) };
    let pool = Pool::create(&exec, spec, &Runtime::new()).expect("made");
    pool.dsl().create_dataset("tank/fs", dataset()).expect("a file system");
    pool.export().expect("exported");
    folder
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zdb"));
    command.args(["-e", "-p"]).arg(folder).args(arguments).output().expect("runs")
}

fn zdb(folder: &Path, arguments: &[&str]) -> (String, String, Option<i32>) {
    let Output { status, stdout, stderr } = run(folder, arguments);
    (String::from_utf8_lossy(&stdout).into_owned(), String::from_utf8_lossy(&stderr).into_owned(), status.code())
}

#[test]
fn configuration_and_datasets_are_shown() {
    let folder = folder("shows");
    let (text, _, status) = zdb(&folder.0, &["-C", "tank"]);
    assert!(text.starts_with("\nMOS Configuration:\n        version: 5000\n        name: 'tank'\n"), "{text}");
    assert_eq!(status, Some(0));
    let (text, _, status) = zdb(&folder.0, &["-d", "tank"]);
    let starts: Vec<&str> = text.lines().map(|line| line.split(", ").next().unwrap_or_default()).collect();
    assert_eq!(starts[0], "Dataset mos [META]");
    assert!(starts[1].starts_with("Dataset tank/fs [ZPL]") && starts[2].starts_with("Dataset tank [ZPL]"), "{text}");
    assert!(text.contains("Verified userobj_accounting feature refcount of 2 is correct\n"), "{text}");
    assert_eq!(status, Some(0));
}

#[test]
fn objects_are_shown_with_their_contents() {
    let folder = folder("objects");
    let (text, _, status) = zdb(&folder.0, &["-dddd", "tank/fs", "1"]);
    assert_eq!(status, Some(0), "{text}");
    let titles = "\n    Object  lvl   iblk   dblk  dsize  dnsize  lsize   %full  type\n";
    let line = "         1    1   128K    512     8K     512    512  100.00  ZFS master node\n";
    assert!(text.contains(titles) && text.contains(line), "{text}");
    assert!(
        text.contains("\tdnode flags: USED_BYTES \n\tdnode maxblkid: 0\n\tmicrozap: 512 bytes, ") || text.contains("\tmicrozap: "),
        "{text}"
    );
    assert!(text.contains("\t\tVERSION = 5 \n"), "{text}");
    let (all, _, _) = zdb(&folder.0, &["-dd", "tank/fs"]);
    assert!(all.contains("ZFS delete queue\n") && all.contains("    Dnode slots:\n\tTotal used: "), "{all}");
    let (exact, _, _) = zdb(&folder.0, &["-P", "-dd", "tank/fs", "1"]);
    assert!(exact.contains("         1    1  131072    512   8192     512    512  100.00  ZFS master node\n"), "{exact}");
}

/// If this fails, nobody finds out what lies behind a name that a broken file system cannot open.
#[test]
fn objects_are_found_by_their_paths() {
    let folder = folder("paths");
    let (text, _, status) = zdb(&folder.0, &["-v", "-O", "tank/fs", "/"]);
    assert!(text.contains("ZFS directory") && text.contains("microzap"), "{text}");
    assert_eq!(status, Some(0));
    let (text, _, _) = zdb(&folder.0, &["-O", "tank/fs", "/"]);
    assert!(text.contains("ZFS directory") && !text.contains("microzap"), "its contents are shown with -v: {text}");
    let (_, error, status) = zdb(&folder.0, &["-O", "tank/fs", "no/such"]);
    assert!(error.contains("failed to lookup inode for path 'no/such'"), "{error}");
    assert_eq!(status, Some(1));
}

/// Text between two others in a line.
fn between<'t>(line: &'t str, before: &str, after: &str) -> &'t str {
    line.split_once(before).and_then(|(_, rest)| rest.split_once(after)).map_or("", |(text, _)| text)
}

/// Line of the first block of a level of an object of `tank/fs`, with its whole pointer.
fn whole(folder: &Path, object: &str, level: &str) -> String {
    let (text, _, _) = zdb(folder, &["-ddddddbbbbbb", "tank/fs", object]);
    text.lines().find(|line| line.contains(&format!("{level} DVA[0]=<"))).unwrap_or_else(|| panic!("no {level} in {text}")).to_string()
}

/// If this fails, scripts that look for a block's address, sizes or checksum find nothing, or something else than OpenZFS would tell.
#[test]
fn block_pointers_are_shown_whole() {
    let folder = folder("whole");
    let line = whole(&folder.0, "1", "L0");
    assert_eq!(between(&line, " size=", " "), "200L/200P", "{line}");
    assert!(
        line.contains("> DVA[1]=<0:")
            && line.contains(" [L0 ZFS master node] fletcher4 uncompressed unencrypted LE contiguous unique double "),
        "{line}"
    );
    let sum = line.rsplit_once(" cksum=").map_or("", |(_, sum)| sum);
    assert!(sum.len() == 67 && sum.bytes().all(|byte| byte == b':' || byte.is_ascii_hexdigit()), "{line}");
    let (short, _, _) = zdb(&folder.0, &["-dddddd", "tank/fs", "1"]);
    assert!(short.contains(" 200L/200P F=1 B=") && !short.contains("L0 DVA["), "{short}");
    let (verbose, _, _) = zdb(&folder.0, &["-vvvvvddddddb", "tank/fs", "1"]);
    assert!(verbose.contains(" L0 DVA[0]=<"), "{verbose}");
}

/// If this fails, nobody can look at a block whose place is all that is known of it, as when what refers to it is damaged.
#[test]
fn blocks_are_shown_by_their_places() {
    let folder = folder("blocks");
    let block = |words: &str| zdb(&folder.0, &["-R", "tank", words]);
    let place = |line: &str| between(line, "DVA[0]=<", ">").rsplit_once(':').map_or(String::new(), |(place, _)| place.to_string());
    let line = whole(&folder.0, "1", "L0");
    let (offset, sum) = (place(&line).replacen("0:", "", 1), line.rsplit_once("cksum=").map_or("", |(_, sum)| sum));
    let (text, found, status) = block(&format!("0:{offset}:200:c"));
    assert_eq!((found, status), (format!("Found vdev: {}\n", folder.0.join("d0").display()), Some(0)));
    assert!(text.starts_with(&format!("\n0:{offset}:200:c\n          0 1 2 3 4 5 6 7 ")), "{text}");
    assert!(text.contains("\n000000:  0300000000000080  "), "{text}");
    assert!(text.contains(&format!("\n   fletcher4\tcksum={sum}\n")), "{text}");
    let (text, _, _) = block(&format!("d0:{offset}:200:e"));
    assert!(text.contains("\n000000:  8000000000000003  "), "{text}");
    let (text, _, _) = block(&format!("0:{offset}:200:rq"));
    assert!(text.starts_with("***Ignoring flag: q\n\u{3}\0\0"), "{text}");
    let (data, above) = (whole(&folder.0, "0", "L0"), whole(&folder.0, "0", "L1 "));
    let pointer = &data[data.find("DVA").expect("a pointer")..];
    let (above, sizes) = (place(&above), between(&above, " size=", " ").to_string());
    for flags in ["bd", "db0", "b0d"] {
        assert_eq!(block(&format!("{above}:{sizes}:{flags}")).0, format!("{pointer}\n"), "{sizes}:{flags}");
    }
    let (text, _, _) = block(&format!("{above}:{sizes}:id"));
    assert_eq!((text.lines().next(), text.lines().count()), (Some(pointer), 1024), "{text}");
    for (words, problem) in [
        ("9:0:200", "***Invalid vdev: 9\n"),
        ("0:0:201", "Invalid block specifier: 0:0:201  - size must be a multiple of sector size\n"),
        ("0:0:200:q", "Invalid flag arg: 'q'\n"),
        ("0:10000000000:1000", "Read of 0:10000000000:1000 failed, error: "),
    ] {
        let (text, _, status) = block(words);
        assert!(text.starts_with(problem) && status == Some(1), "{status:?} {text}");
    }
    assert!(zdb(&folder.0, &["-R", "tank"]).1.starts_with("Usage:"));
}

/// If this fails, the way that is left to save a dataset from a pool that cannot be opened for writing gives another stream, or none.
#[test]
fn a_backup_is_the_stream_of_the_snapshot() {
    let folder = folder("backup");
    let exec: Exec = Arc::new(Inline::new(6));
    let device: Arc<dyn BlockDevice> = device::open(&folder.0.join("d0"), &OpenOptions::default()).expect("opens");
    let pool = Pool::import(&exec, vec![device], &ImportOptions::default(), &Runtime::new()).expect("imported");
    pool.dsl().snapshot(&["tank/fs@s".to_string()], Vec::new()).expect("taken");
    let snapshot = || pool.dsl().hold("tank/fs@s").expect("held");
    let sent = |options: SendOptions| {
        let mut writer = Writer::new(Vec::new());
        Sending::new(snapshot(), None, options).and_then(|sending| sending.run(&mut writer)).expect("sent");
        writer.into_sink()
    };
    let plain = sent(SendOptions::default());
    let packed = sent(SendOptions { embedded: true, compressed: true, large_blocks: true, ..SendOptions::default() });
    let name = format!("tank/{}", snapshot().object());
    pool.export().expect("exported");
    for (words, stream) in [(&["-B", name.as_str()][..], &plain), (&["-B", name.as_str(), "ecL"][..], &packed)] {
        let output = run(&folder.0, words);
        assert!(output.stdout == *stream && stream.len() > 1000, "{words:?}: {} bytes and {}", output.stdout.len(), stream.len());
        assert_eq!((output.stderr.as_slice(), output.status.code()), (&b""[..], Some(0)));
    }
    for (words, problem) in [
        (&["-B", name.as_str(), "x"][..], "dump_backup: invalid flag 'x'\n"),
        (&["-B", "tank/fs@s"][..], "failed to hold dataset 'tank/fs@s': "),
        (&["-B", "tank"][..], "failed to hold dataset 'tank': "),
    ] {
        let (text, error, status) = zdb(&folder.0, words);
        assert!(text.is_empty() && error.starts_with(problem) && status == Some(1), "{status:?} {error}");
    }
}

#[test]
fn what_is_not_there_is_said() {
    let folder = folder("missing");
    let (_, problem, status) = zdb(&folder.0, &["-d", "other"]);
    assert_eq!((problem.as_str(), status), ("zdb: can't open 'other': No such file or directory\n", Some(1)));
    let (_, problem, status) = zdb(&folder.0, &["-d", "tank/none"]);
    assert!(problem.ends_with("zdb: can't open 'tank/none': No such file or directory\n"), "{problem}");
    assert_eq!(status, Some(1));
    let (_, problem, status) = zdb(&folder.0, &["-9", "tank"]);
    assert!(problem.starts_with("Usage:\tzdb "), "{problem}");
    assert_eq!(status, Some(1));
    let (_, problem, status) = zdb(&folder.0, &["-d", "tank/fs", "3:x"]);
    assert_eq!((problem.as_str(), status), ("zdb: Bad object or range: '3:x': Invalid characters in end object ID\n", Some(1)));
}

#[test]
fn noise_on_the_device_ends_in_text_never_in_a_panic() {
    let folder = folder("noise");
    let path = folder.0.join("d0");
    let sound = std::fs::read(&path).expect("reads");
    let used: Vec<usize> =
        (0x40_0000..sound.len() - 0x8_0000).step_by(512).filter(|&at| sound[at..at + 512].iter().any(|&byte| byte != 0)).collect();
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    for round in 0..24 {
        let mut noisy = sound.clone();
        for _ in 0..=round * 4 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = used[(state >> 33) as usize % used.len()];
            noisy[at + (state as usize & 511)] ^= 1 << (state >> 20 & 7);
        }
        std::fs::write(&path, &noisy).expect("writes");
        let (_, problem, status) = zdb(&folder.0, &["-ddddd", "tank"]);
        assert!(matches!(status, Some(0..=2)) && !problem.contains("panicked"), "round {round}: {status:?} {problem}");
    }
}
