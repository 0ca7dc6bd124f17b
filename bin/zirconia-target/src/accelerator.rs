//! What a target computes with: this machine's processors, its GPU, or a vendor's library in a process of its own.

use dpusm::{Device, DeviceState, Provider, RegisterOptions, Registry, RegistryError};
use exec::Exec;
use provider_cuda::{Cuda, CudaOptions, Unavailable};
use provider_process::{Hosted, HostedOptions, StartError};
use provider_software::{Software, SoftwareOptions};
use service::trust::{self, Distrust};
use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of the largest block of the tests at the start: hosts test again, with larger ones.
const TEST_BYTES_MAX: usize = 4096;
/// Time that a library may take to load, and for each answer.
const LIBRARY: Duration = Duration::from_secs(10);
/// Time between two looks at a device.
const LOOK: Duration = Duration::from_millis(200);
/// Name of our own software.
const SOFTWARE: &str = "software";

/// Source of a provider, as `zirconia provider load` takes it on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Processors of this machine.
    Software,
    /// First GPU of NVIDIA in this machine.
    Cuda,
    /// Library of a vendor.
    Library(PathBuf),
}

impl FromStr for Source {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Source, Infallible> {
        Ok(match text {
            SOFTWARE => Source::Software,
            provider_cuda::NAME => Source::Cuda,
            path => Source::Library(path.into()),
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Software => f.write_str(SOFTWARE),
            Source::Cuda => f.write_str(provider_cuda::NAME),
            Source::Library(path) => path.display().fmt(f),
        }
    }
}

/// Reason why a provider cannot be used.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// There is no GPU.
    Gpu(Unavailable),
    /// Others than this user and root can have written the library, or there is none.
    Distrusted(PathBuf, Distrust),
    /// The library cannot be loaded.
    Library(PathBuf, StartError),
    /// The tests failed.
    Registry(RegistryError),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::Gpu(error) => write!(f, "cuda: {error}; {}", error.advice()),
            Unusable::Distrusted(path, why) => write!(f, "{}: {why}", path.display()),
            Unusable::Library(path, error) => write!(f, "{}: {error}", path.display()),
            Unusable::Registry(error) => error.fmt(f),
        }
    }
}

/// A line that a library printed.
fn say(line: &str) {
    eprintln!("zirconia-target: {line}");
}

/// Accelerator that is in use.
pub(crate) struct Accelerator {
    /// Device that hosts compute on.
    pub(crate) device: Device,
    /// Process of a vendor's library.
    hosted: Option<Arc<Hosted>>,
}

impl Source {
    /// Makes the provider and tests it; what fails is not offered to hosts, and said.
    pub(crate) fn open(&self, exec: &Exec) -> Result<Accelerator, Unusable> {
        let mut hosted = None;
        let provider: Arc<dyn Provider> = match self {
            Source::Software => Software::new(exec, SoftwareOptions::default()),
            Source::Cuda => Cuda::open(exec, &CudaOptions::from_environment()).map_err(Unusable::Gpu)?,
            Source::Library(path) => {
                let library = trust::file(path).map_err(|why| Unusable::Distrusted(path.clone(), why))?;
                let options = HostedOptions { program: provider_process::program(), library, deadline: LIBRARY, say };
                let process = Hosted::start(exec, &options).map_err(|error| Unusable::Library(path.clone(), error))?;
                hosted.insert(process).clone()
            }
        };
        let options = RegisterOptions { scratch: Some(std::env::temp_dir()), test_bytes_max: TEST_BYTES_MAX, ..RegisterOptions::default() };
        let device = Registry::new(exec).register(provider, &options).map_err(Unusable::Registry)?;
        for disabled in device.disabled() {
            say(&format!("{self}: {} is not used: {}", disabled.capability.feature, disabled.fault));
        }
        Ok(Accelerator { device, hosted })
    }
}

impl Accelerator {
    /// Waits until the accelerator is of no use any more; why that is so. The process of a library may go while no host asks for anything.
    pub(crate) async fn ended(&self) -> String {
        loop {
            if let Some(why) = self.hosted.as_ref().and_then(|hosted| hosted.why_ended()) {
                return why;
            }
            if self.device.state() != DeviceState::Active {
                return "it does not answer".to_string();
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A word that came back as another would load something else.
    #[test]
    fn sources_come_back_as_they_were_written() {
        for (text, wanted) in [("software", Source::Software), ("cuda", Source::Cuda), ("/opt/a.so", Source::Library("/opt/a.so".into()))] {
            let source: Source = text.parse().unwrap();
            assert_eq!((source.to_string().as_str(), &source), (text, &wanted));
        }
    }
}
