//! The daemon's accelerators: which there are, and how pools come to them.
//!
//! A provider is tested when it is first needed, not when the daemon starts: the tests of one with many levels take a while. Libraries that
//! were loaded stand in `providers.json` of the state directory, and are there again after a restart.

use crate::Control;
use control_api::{DisabledCapability, ErrorKind, Failure, ProviderLoad, ProviderReport, ProviderUnload, Response, StateDir};
use dpusm::{DeviceState, ProviderInfo, RegisterOptions, Registry, RegistryError, Session};
use exec::{Exec, Mutex};
use provider_c::CProvider;
use provider_software::{Software, SoftwareOptions};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The provider that is always there.
const SOFTWARE: &str = "software";
/// Largest block of the tests of our own software, which has tests of its own.
const SOFTWARE_TEST_BYTES_MAX: usize = 16 << 10;

/// See the file's header.
pub(crate) struct Accelerators {
    exec: Exec,
    registry: Registry,
    remembered: PathBuf,
    /// Where libraries lie, by the names of their providers.
    libraries: Mutex<BTreeMap<String, PathBuf>>,
    /// One registration at a time.
    registering: Mutex<()>,
}

impl Accelerators {
    /// Knows what was loaded before, without having loaded it yet.
    pub fn new(exec: &Exec, state: &StateDir) -> Arc<Accelerators> {
        let remembered = state.path().join("providers.json");
        let libraries = match std::fs::read(&remembered) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_else(|error| {
                eprintln!("{}: {error}; load the providers again", remembered.display());
                BTreeMap::new()
            }),
            Err(_) => BTreeMap::new(),
        };
        let (registry, libraries) = (Registry::new(exec), Mutex::new(libraries));
        Arc::new(Accelerators { exec: exec.clone(), registry, remembered, libraries, registering: Mutex::default() })
    }

    /// A session with a provider, which is registered now if it was not.
    pub fn session(&self, name: &str) -> Result<Session, RegistryError> {
        if let Ok(session) = self.registry.get(name) {
            return Ok(session);
        }
        let _one = self.registering.lock();
        if let Ok(session) = self.registry.get(name) {
            return Ok(session);
        }
        let path = self.libraries.lock().get(name).cloned();
        match path {
            _ if name == SOFTWARE => self.register_software()?,
            Some(path) => {
                let provider = CProvider::load(&self.exec, &path).map_err(|error| {
                    eprintln!("provider '{name}' from {}: {error}", path.display());
                    RegistryError::Unknown { name: name.to_string() }
                })?;
                self.registry.register(provider, &self.options())?;
            }
            None => {}
        }
        self.registry.get(name)
    }

    fn register_software(&self) -> Result<(), RegistryError> {
        let options = RegisterOptions { test_bytes_max: SOFTWARE_TEST_BYTES_MAX, ..self.options() };
        self.registry.register(Software::new(&self.exec, SoftwareOptions::default()), &options).map(drop)
    }

    fn options(&self) -> RegisterOptions {
        RegisterOptions { scratch: self.remembered.parent().map(Path::to_path_buf), ..RegisterOptions::default() }
    }

    /// Loads a library; the name of its provider.
    fn load(&self, request: &ProviderLoad) -> Result<String, Failure> {
        let what = format!("cannot load a provider from '{}'", request.path);
        let failed = |error: &dyn std::fmt::Display| Failure::new(ErrorKind::Invalid, &*what, error.to_string());
        let path = PathBuf::from(&request.path);
        let provider = CProvider::load(&self.exec, &path).map_err(|error| failed(&error))?;
        let _one = self.registering.lock();
        let is_there = self.registry.get(dpusm::Provider::name(&*provider)).is_ok();
        let registered = if request.replace && is_there {
            self.registry.replace(provider, &self.options())
        } else {
            self.registry.register(provider, &self.options())
        };
        let name = registered
            .map_err(|error| match error {
                RegistryError::Exists { .. } => failed(&error).advise("'zirconia provider load -r' puts this one in its place"),
                other => failed(&other),
            })?
            .name()
            .to_string();
        self.libraries.lock().insert(name.clone(), path);
        self.remember();
        Ok(name)
    }

    fn unload(&self, request: &ProviderUnload) -> Result<(), Failure> {
        let what = format!("cannot unload provider '{}'", request.name);
        if request.name == SOFTWARE {
            return Err(Failure::new(ErrorKind::Invalid, what, "it is built in"));
        }
        let was_remembered = self.libraries.lock().contains_key(&request.name);
        match self.registry.unregister(&request.name, request.force) {
            Ok(()) => {}
            // Not needed since the daemon started.
            Err(RegistryError::Unknown { .. }) if was_remembered => {}
            Err(error @ RegistryError::InUse { .. }) => {
                let advice = "set zia_provider=off on the pools that use it, or unload it with -f: they go on in software";
                return Err(Failure::new(ErrorKind::Busy, what, error.to_string()).advise(advice));
            }
            Err(error) => return Err(Failure::new(ErrorKind::NotFound, what, error.to_string())),
        }
        self.libraries.lock().remove(&request.name);
        self.remember();
        Ok(())
    }

    /// Writes down what is loaded. A file that cannot be written costs only the loading after a restart.
    fn remember(&self) {
        let text = serde_json::to_vec_pretty(&*self.libraries.lock()).unwrap_or_default();
        let fresh = self.remembered.with_extension("json.new");
        if let Err(error) = std::fs::write(&fresh, text).and_then(|()| std::fs::rename(&fresh, &self.remembered)) {
            eprintln!("cannot write {}: {error}", self.remembered.display());
        }
    }

    /// Every provider, those included that nobody has needed yet.
    fn reports(&self) -> Vec<ProviderReport> {
        let libraries = self.libraries.lock().clone();
        let names = std::iter::once(SOFTWARE.to_string()).chain(libraries.keys().cloned());
        // Their tests may be under way for a pool; whoever asks waits for them too.
        names.for_each(|name| drop(self.session(&name)));
        let report = |info: ProviderInfo| self.report(&info, libraries.get(&info.name));
        self.registry.list().into_iter().map(report).collect()
    }

    fn report(&self, info: &ProviderInfo, path: Option<&PathBuf>) -> ProviderReport {
        let counters = self.registry.get(&info.name).map(|session| counters(&session)).unwrap_or_default();
        ProviderReport {
            name: info.name.clone(),
            version: info.version.clone(),
            path: path.map(|path| path.to_string_lossy().into_owned()),
            state: match info.state {
                DeviceState::Active => "active",
                DeviceState::Replaced => "replaced",
                DeviceState::Down => "down",
            }
            .to_string(),
            generation: info.generation,
            sessions: info.sessions as u64,
            live_handles: info.live_handles as u64,
            capabilities: info.capabilities.list.iter().map(|capability| capability.feature.to_string()).collect(),
            disabled: info
                .disabled
                .iter()
                .map(|disabled| DisabledCapability {
                    capability: disabled.capability.feature.to_string(),
                    reason: disabled.fault.to_string(),
                })
                .collect(),
            counters,
        }
    }
}

/// The counters of a provider that are not zero.
fn counters(session: &Session) -> BTreeMap<String, u64> {
    let kstat = session.stats().kstat();
    let counted = kstat.values().into_iter().filter_map(|(name, value)| match value {
        kstat::Value::U64(count) if count > 0 => Some((name.to_string(), count)),
        _ => None,
    });
    counted.collect()
}

impl Control {
    /// `zirconia provider list` and `info`.
    pub(crate) fn provider_list(&self) -> Response {
        Response::Providers(self.accelerators.reports())
    }

    /// `zirconia provider load`: pools that name it in `zia_provider` go on with it.
    pub(crate) fn provider_load(&self, request: &ProviderLoad) -> Result<Response, Failure> {
        let name = self.accelerators.load(request)?;
        self.providers_changed();
        let mut reports = self.accelerators.reports();
        reports.retain(|report| report.name == name);
        Ok(Response::Providers(reports))
    }

    /// `zirconia provider unload`.
    pub(crate) fn provider_unload(&self, request: &ProviderUnload) -> Result<Response, Failure> {
        self.accelerators.unload(request)?;
        self.providers_changed();
        Ok(Response::Done { remarks: Vec::new() })
    }

    fn providers_changed(&self) {
        let pools: Vec<_> = self.pools.read().values().cloned().collect();
        for open in pools {
            if let Err(error) = open.pool().follow_providers() {
                eprintln!("cannot read the zia properties of '{}': {error}", open.name());
            }
        }
    }
}
