//! The place at which the volumes' files are: `dev/zvol` in the state directory, for all pools. Without FUSE the daemon does without.

use super::file_system::VolumeFs;
use crate::pool::Pools;
use control_api::StateDir;
use exec::{Exec, Mutex};
use fuse::{MountOptions, Readers, Session};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zpl::direct::Tunables;

/// Place below the state directory.
const PLACE: &str = "dev/zvol";
/// Environment variable that, set to `off`, keeps it from being mounted.
const SWITCH: &str = "ZIRCONIA_ZVOL";

/// Mount with the files of volumes.
pub(crate) struct Door {
    exec: Exec,
    place: PathBuf,
    pools: Arc<Pools>,
    tunables: Arc<Tunables>,
    session: Mutex<Option<Session>>,
}

impl Door {
    /// Makes it, with nothing mounted yet.
    pub(crate) fn new(exec: &Exec, state: &StateDir, pools: &Arc<Pools>, tunables: &Arc<Tunables>) -> Door {
        let (place, pools, tunables) = (state.path().join(PLACE), pools.clone(), tunables.clone());
        Door { exec: exec.clone(), place, pools, tunables, session: Mutex::default() }
    }

    /// Mounts it, in place of what a killed daemon left there.
    pub(crate) fn mount(&self) {
        fuse::clear_dead_mount(&self.place);
        if std::env::var_os(SWITCH).is_some_and(|word| word == "off") {
            return;
        }
        match self.open(&self.place) {
            Ok(session) => *self.session.lock() = Some(session),
            Err(why) => tracing::warn!("no volumes at {}: {why}", self.place.display()),
        }
    }

    fn open(&self, place: &Path) -> Result<Session, String> {
        service::trust::make_folder(place).map_err(|why| why.to_string())?;
        let readers = Readers::new(&self.exec).map_err(|error| error.to_string())?;
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let handler = Arc::new(VolumeFs::new(&self.exec, &self.pools, &self.tunables, owner));
        let options = MountOptions {
            source: "zirconia-zvol".into(),
            suid: false,
            devices: false,
            exec: false,
            atime: false,
            ..MountOptions::default()
        };
        let real = std::fs::canonicalize(place).map_err(|error| error.to_string())?;
        let session = Session::mount_with(&readers, handler, place, &options).map_err(|error| error.to_string())?;
        // It is mounted once.
        let _ = self.pools.volumes_at.set(real.to_string_lossy().into_owned());
        Ok(session)
    }

    /// Takes it away, whoever has files open.
    pub(crate) fn end(&self) {
        let session = self.session.lock().take();
        if let Some(session) = session {
            let _ = session.unmount(true);
        }
    }
}
