//! The pool's properties of Z.I.A.: which provider its stages run on, and which stages.
//!
//! The names are Z.I.A.'s (seed implementation: `zpool_prop.c` of its branch); unlike there, they are kept with the pool, as properties that
//! users make up, which OpenZFS keeps and ignores. `zia_verify` and `zia_mode` are our own.

use crate::PoolError;
use crate::spa::props::{self, PROVIDER, is_none};
use dmu::Objset;
use dpusm::{RegistryError, Session};
use exec::Mutex;
use offload::{Accelerator, ZiaMode, ZiaPolicy};
use std::fmt;
use std::sync::Arc;
use zio::Zio;

/// Gives sessions with providers by name; may take as long as the tests of one that is registered only now.
type OpenSession = dyn Fn(&str) -> Result<Session, RegistryError> + Send + Sync;

/// State of a provider that is known and does no work now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// Word for the state: `starting`, `down` or `distrusted`.
    pub state: &'static str,
    /// Reason of the state, where it is known.
    pub why: Option<String>,
}

/// Tells of a provider by name that it is known and does no work now; None of others.
type Look = dyn Fn(&str) -> Option<Awaited> + Send + Sync;

/// Source of the providers that a pool's properties name.
#[derive(Clone)]
pub struct Providers {
    open: Arc<OpenSession>,
    look: Arc<Look>,
}

impl Providers {
    /// Providers by this way to them, which are there or unknown.
    pub fn new(open: impl Fn(&str) -> Result<Session, RegistryError> + Send + Sync + 'static) -> Providers {
        Providers { open: Arc::new(open), look: Arc::new(|_: &str| None) }
    }

    /// Providers of which `look` tells, besides, which are known and do no work now: pools may name these, and follow when they are there.
    #[must_use]
    pub fn awaiting(self, look: impl Fn(&str) -> Option<Awaited> + Send + Sync + 'static) -> Providers {
        Providers { open: self.open, look: Arc::new(look) }
    }
}

/// Provider that a pool wants, and the source of providers.
pub(crate) struct Followed {
    providers: Option<Providers>,
    name: Mutex<Option<String>>,
    accelerator: Mutex<Option<Accelerator>>,
}

impl Followed {
    /// None is wanted yet.
    pub(crate) fn new(providers: Option<Providers>) -> Followed {
        Followed { providers, name: Mutex::default(), accelerator: Mutex::default() }
    }
}

impl fmt::Debug for Providers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Providers")
    }
}

/// Provider and policy that the properties ask for; None without a provider.
fn wanted(mos: &Arc<Objset>) -> Result<Option<(String, ZiaPolicy)>, PoolError> {
    let text = |name: &str| props::own_text(mos, name);
    let is_on = |name: &str| Ok::<bool, PoolError>(text(name)?.as_deref() == Some("on"));
    let Some(provider) = text(PROVIDER)?.filter(|name| !is_none(name)) else { return Ok(None) };
    let mode = if text("zia_mode")?.as_deref() == Some("per-op") { ZiaMode::PerOp } else { ZiaMode::Offload };
    let given = text("zia_verify")?.and_then(|percent| percent.parse::<f64>().ok());
    let defaults = ZiaPolicy::default();
    let policy = ZiaPolicy {
        compress: is_on("zia_compress")?,
        decompress: is_on("zia_decompress")?,
        checksum: is_on("zia_checksum")?,
        raidz_gen: [is_on("zia_raidz1_gen")?, is_on("zia_raidz2_gen")?, is_on("zia_raidz3_gen")?],
        raidz_rec: [is_on("zia_raidz1_rec")?, is_on("zia_raidz2_rec")?, is_on("zia_raidz3_rec")?],
        file_write: is_on("zia_file_write")?,
        disk_write: is_on("zia_disk_write")?,
        mode,
        verify_percent: given.unwrap_or(defaults.verify_percent),
        ..defaults
    };
    Ok(Some((provider, policy)))
}

impl Followed {
    /// Gives the pipeline's stages to the provider that the properties in `mos` name. One that is not there, or not any more, leaves them in
    /// software; to be called again when providers came or went.
    pub(crate) fn follow(&self, mos: &Arc<Objset>, zio: &Zio) -> Result<(), PoolError> {
        let wanted = wanted(mos)?;
        *self.name.lock() = wanted.as_ref().map(|(name, _)| name.clone());
        let accelerator = wanted.and_then(|(name, policy)| self.session(&name).ok().map(|session| Accelerator::new(session, policy)));
        zio.set_stage(accelerator.clone().map(Accelerator::into_stage));
        *self.accelerator.lock() = accelerator;
        zio.open_stores();
        Ok(())
    }

    /// Accelerator that the pool's stages go to, if its provider is there.
    pub(crate) fn accelerator(&self) -> Option<Accelerator> {
        self.accelerator.lock().clone()
    }

    /// The provider that the properties name, whether it is there or not.
    pub(crate) fn provider(&self) -> Option<String> {
        self.name.lock().clone()
    }

    fn session(&self, name: &str) -> Result<Session, PoolError> {
        let unknown = || PoolError::NoProvider { name: name.to_string() };
        let providers = self.providers.as_ref().ok_or_else(unknown)?;
        (providers.open)(name).map_err(|_| unknown())
    }

    /// State of the provider that the properties name, when it is known and does no work now.
    pub(crate) fn awaited(&self) -> Option<Awaited> {
        self.look(&self.provider()?)
    }

    fn look(&self, name: &str) -> Option<Awaited> {
        (self.providers.as_ref()?.look)(name)
    }

    /// Refuses a provider that nobody knows; one that is known and not there yet is followed when it is.
    pub(crate) fn check(&self, name: &str) -> Result<(), PoolError> {
        if is_none(name) || self.look(name).is_some() { Ok(()) } else { self.session(name).map(drop) }
    }
}
