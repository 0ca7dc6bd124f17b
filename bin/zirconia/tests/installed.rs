//! Programs, units and completions as `packaging/install.sh` puts them on a machine. When these fail, pools are missing after a boot, or a key that
//! should complete a name starts a daemon.

use need::Need;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging");
/// Programs that the installation wants besides `zirconia`; here they say that they were run.
const OTHERS: [&str; 9] = ["zirconiad", "zpool", "zfs", "zdb", "zinject", "zstream", "zirconia-target", "arcstat", "zilstat"];

/// Installation in a folder of its own; gone when it goes.
struct Installed(PathBuf);

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Installed {
    fn new(name: &str) -> Installed {
        let folder = Installed(std::env::temp_dir().join(format!("zirconia-installed-{}-{name}", std::process::id())));
        let built = folder.0.join("built");
        std::fs::create_dir_all(&built).expect("a folder");
        symlink(env!("CARGO_BIN_EXE_zirconia"), built.join("zirconia")).expect("the program");
        for program in OTHERS {
            let path = built.join(program);
            std::fs::write(&path, "#!/bin/sh\necho a-name-nobody-asked-for\n").expect("a script");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("can be run");
        }
        let mut install = Command::new(Path::new(PACKAGING).join("install.sh"));
        let output = install.env("PREFIX", folder.prefix()).env("BUILT", &built).env_remove("DESTDIR").output().expect("runs");
        assert!(output.status.success(), "{output:?}");
        folder
    }

    fn prefix(&self) -> PathBuf {
        self.0.join("prefix")
    }

    /// Runs bash with the installed programs first on PATH and the completions loaded, without a daemon.
    fn shell(&self, script: &str) -> Output {
        let path = std::env::var("PATH").unwrap_or_default();
        let completion = self.prefix().join("share/bash-completion/completions/zirconia");
        let script = format!("source '{}'\n{script}", completion.display());
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", &script]).env("PATH", format!("{}:{path}", self.prefix().join("bin").display()));
        bash.env("ZIRCONIA_STATE", self.0.join("state")).output().expect("bash")
    }

    /// Words that complete the last of these.
    fn completed(&self, words: &str) -> String {
        let program = words.split(' ').next().unwrap_or_default();
        let count = "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))";
        let output = self.shell(&format!("COMP_WORDS=({words}); {count}; _zirconia {program}; echo \"${{COMPREPLY[*]}}\""));
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    }
}

/// A unit that systemd does not understand, or that names a program which is not there, imports nothing at boot.
#[test]
fn systemd_understands_the_units() {
    let installed = Installed::new("units");
    let units = installed.prefix().join("lib/systemd/system");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&units).expect("units").flatten() {
        let text = std::fs::read_to_string(entry.path()).expect("text");
        assert!(!text.contains("@BINDIR@"), "{text}");
        let name = entry.file_name().to_string_lossy().into_owned();
        // A service that is not held back would work beside OpenZFS's module.
        assert!(!name.ends_with(".service") || text.contains("ConditionPathIsDirectory=!/sys/module/zfs"), "{name}");
        names.push(name.replace('@', "@tank"));
    }
    for name in ["zfs.target", "zfs-import-cache.service", "zfs-import-scan.service", "zfs-mount.service", "zfs-scrub-weekly@tank.timer"] {
        assert!(names.iter().any(|own| own == name), "{names:?}");
    }
    if need::lacks(Need::Systemd, "the units of systemd").expect("allowed") {
        return;
    }
    let mut verify = Command::new("systemd-analyze");
    let output = verify.args(["verify", "--man=no"]).args(&names).env("SYSTEMD_UNIT_PATH", format!("{}:", units.display())).output();
    let output = output.expect("systemd-analyze runs");
    let said = String::from_utf8_lossy(&output.stderr);
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("zfs-") || line.contains("zirconia")).collect();
    assert!(ours.is_empty(), "{said}");
}

/// Who types a name is shown verbs that are not there, or starts a daemon by pressing a key.
#[test]
fn completion_knows_verbs_and_starts_nothing() {
    let installed = Installed::new("completion");
    assert_eq!(installed.completed("zirconia upg"), "upgrade");
    assert_eq!(installed.completed("zirconia provider l"), "list load");
    assert_eq!(installed.completed("zirconia hostid -"), "-f -o");
    let options = installed.shell("_zirconia_usage() { echo 'zfs send [-envp] [--json]'; }; _zirconia_options zfs send");
    assert_eq!(String::from_utf8_lossy(&options.stdout), "-e\n-n\n-v\n-p\n--json\n", "no option of echo's");
    assert_eq!(installed.completed("zpool scrub ''"), "", "no daemon runs, and none is asked");
    assert!(!installed.0.join("state").exists(), "a daemon was started");
}

/// If this fails, mount(8) knows no file systems of type zfs, and what stands in fstab is missing after a boot.
#[test]
fn helpers_of_mount_are_links_to_zfs() {
    let installed = Installed::new("helpers");
    let zfs = installed.prefix().join("bin/zfs").canonicalize().expect("installed");
    for helper in ["mount.zfs", "mount.fuse.zfs"] {
        assert_eq!(installed.prefix().join("sbin").join(helper).canonicalize().expect("a link"), zfs);
    }
}

/// Scripts that prepare a machine for pools of several hosts call the program by OpenZFS's name, and go by its exit code.
#[test]
fn the_id_of_a_host_is_written_by_zgenhostid() {
    let installed = Installed::new("hostid");
    let file = installed.0.join("hostid");
    let run = |arguments: &[&str]| {
        let output = Command::new(installed.prefix().join("bin/zgenhostid")).arg("-o").arg(&file).args(arguments).output().expect("runs");
        (output.status.code(), output.stdout)
    };
    assert_eq!(run(&["89abcdef"]), (Some(0), Vec::new()));
    assert_eq!(std::fs::read(&file).expect("written"), [0xEF, 0xCD, 0xAB, 0x89]);
    assert_eq!(run(&["00000001"]), (Some(1), Vec::new()), "it has one");
    assert_eq!(run(&["-f", "0000001a"]), (Some(0), Vec::new()));
    assert_eq!(std::fs::read(&file).expect("written"), [0x1A, 0, 0, 0]);
    assert_eq!(run(&["-x"]).0, Some(1));
}
