//! The providers of the matrix: each behaves, and none needs special hardware.

use crate::Failure;
use dpusm::{Provider, RegisterOptions, Registry};
use exec::{Exec, Mutex};
use provider_c::CProvider;
use provider_faulty::Faulty;
use provider_sim::{Sim, SimOptions};
use provider_software::{Software, SoftwareOptions};
use provider_target::{Location, TargetProvider};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// Names of the providers: the reference, the example in C, one around the reference that could be told to misbehave, a modelled card, and a target in a
/// process of its own.
pub const PROVIDERS: [&str; 5] = ["software", "example", "faulty", "sim", "target"];
/// Bytes of the largest block of the tests at registration.
const TEST_BYTES_MAX: usize = 4096;

/// Process of a `zirconia-target` that ends with this.
struct Process {
    child: Child,
    location: Location,
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have died before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ways to make providers; what takes long is made once.
pub struct Makers {
    exec: Exec,
    library: Mutex<Option<PathBuf>>,
    target: Mutex<Option<Process>>,
}

impl Makers {
    /// Makes them for pools of `exec`.
    pub fn new(exec: &Exec) -> Makers {
        Makers { exec: exec.clone(), library: Mutex::default(), target: Mutex::default() }
    }

    /// Registers one of [`PROVIDERS`]; all that it says it can do it must do right.
    pub fn register(&self, registry: &Registry, provider: usize) -> Result<(), Failure> {
        let exec = &self.exec;
        let software = || Software::new(exec, SoftwareOptions::default());
        let made: Arc<dyn Provider> = match PROVIDERS[provider] {
            "software" => software(),
            "example" => CProvider::load(exec, &self.library()?)?,
            "faulty" => Faulty::new(exec, "faulty", software()),
            "sim" => Sim::new(exec, SimOptions::new("sim")),
            _ => TargetProvider::connect(exec, &self.target()?.options("target")?)?,
        };
        let options = RegisterOptions { test_bytes_max: TEST_BYTES_MAX, scratch: Some(crate::scratch()?), ..RegisterOptions::default() };
        let device = registry.register(made, &options)?;
        match device.disabled() {
            [] => Ok(()),
            [first, ..] => Err(format!("{} does not do {}: {}", device.name(), first.capability.feature, first.fault).into()),
        }
    }

    /// Path of the example in C, built as vendors do.
    fn library(&self) -> Result<PathBuf, Failure> {
        let mut library = self.library.lock();
        if let Some(path) = &*library {
            return Ok(path.clone());
        }
        let (root, path) = (crate::root(), crate::scratch()?.join("example.so"));
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-O2", "-fPIC", "-shared", "-I"]).arg(root.join("include")).arg("-o");
        if !cc.args([&path, &root.join("examples/provider-c/provider.c")]).status()?.success() {
            return Err("cc did not build the example".into());
        }
        Ok(library.insert(path).clone())
    }

    /// Location of a target in a process of its own, built beside this program.
    fn target(&self) -> Result<Location, Failure> {
        let mut target = self.target.lock();
        if let Some(process) = &*target {
            return Ok(process.location.clone());
        }
        let folder = crate::scratch()?;
        let (secret, socket) = (folder.join("secret"), folder.join("target.sock"));
        std::fs::write(&secret, "correct horse battery staple")?;
        let address = format!("unix:{}", socket.display());
        let mut child = start(&address, &secret, &folder)?;
        let said = child.stdout.take().map(BufReader::new).and_then(|out| out.lines().next());
        let location = Location { address: address.parse()?, secret_file: secret, shared_memory: true };
        let process = target.insert(Process { child, location });
        match said {
            Some(Ok(line)) if line.contains("listening at") => Ok(process.location.clone()),
            other => Err(format!("the target said {other:?}").into()),
        }
    }
}

fn start(address: &str, secret: &Path, folder: &Path) -> Result<Child, Failure> {
    let program = std::env::current_exe()?.with_file_name("zirconia-target");
    let mut command = Command::new(&program);
    command.args(["--listen", address, "--secret-file"]).arg(secret).arg("--allow").arg(folder).stdout(Stdio::piped());
    command.spawn().map_err(|error| format!("{}: {error}", program.display()).into())
}
