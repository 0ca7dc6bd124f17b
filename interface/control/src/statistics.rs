//! Statistics and parameters for other programs: what the tree shows of the open pools, where it is mounted, and what a changed
//! parameter changes.
//!
//! The tree is mounted at `proc/spl/kstat` and `sys/module/zfs` of the state directory. Without FUSE the daemon does without:
//! the metrics on its socket show the same numbers.

use crate::pool::{OpenPool, Pools};
use crate::provider::offload;
use crate::report::{direct_rows, iostat, module, pictures};
use crate::settings::Settings;
use control_api::StateDir;
use exec::{Exec, Mutex};
use fuse::{MountOptions, Readers, Session};
use metrics::{Parameters, Past, PoolView, Source, Tree, TreeFs};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Names of the parts of the tree, and the paths below the state directory at which they are mounted.
const PLACES: [(&str, &str); 2] = [("proc", "spl/kstat"), ("sys", "module/zfs")];
/// Folders that tools list and that have nothing in them.
const EMPTY: [&str; 1] = ["sys/module/spl/parameters"];
/// Environment variable that, set to `off`, keeps the tree from being mounted.
const SWITCH: &str = "ZIRCONIA_KSTAT";

/// Source of the tree, which looks at the daemon's pools.
struct Look {
    exec: Exec,
    pools: Arc<Pools>,
    settings: Arc<Settings>,
}

impl Source for Look {
    fn now_ns(&self) -> u64 {
        self.exec.now_ns()
    }

    fn pools(&self) -> Vec<PoolView> {
        self.pools.all().iter().map(|open| view(open)).collect()
    }

    fn past(&self) -> Option<&Past> {
        Some(&self.pools.past)
    }

    fn parameters(&self) -> &Parameters {
        &self.settings.parameters
    }

    fn module_facts(&self) -> Option<&BTreeMap<String, String>> {
        Some(module::facts())
    }

    fn parameter_changed(&self, name: &str, value: u64) {
        self.settings.changed(name, value, &self.pools);
    }
}

fn view(open: &OpenPool) -> PoolView {
    let status = open.pool().status();
    let state = if status.suspended { "SUSPENDED".to_string() } else { pictures::tree("", &status.tree, None).state };
    PoolView {
        name: open.name(),
        guid: open.pool().guid().0,
        state,
        cache: open.pool().cache().clone(),
        txgs: open.pool().txgs().clone(),
        heartbeats: open.pool().heartbeats().clone(),
        objsets: std::iter::once(open.pool().mos().clone()).chain(open.mounts.objsets()).collect(),
        accelerator: offload::view(open),
        datasets: [open.mounts.counts(open.pool().zio()), open.volumes.counts(&open.name(), &open.mounts, open.pool().zio())].concat(),
        direct: direct_rows::rows(
            &open.mounts.direct_of_pool().snapshot(),
            open.pool().zio().changed_buffers(None, None),
            open.pool().iostats().direct_shared.get(),
        ),
    }
}

/// Tree of statistics and parameters, and the sessions that keep it mounted.
pub(crate) struct Statistics {
    exec: Exec,
    state: StateDir,
    pools: Arc<Pools>,
    settings: Arc<Settings>,
    sessions: Mutex<Vec<Session>>,
}

impl Statistics {
    /// Makes it, with nothing mounted yet.
    pub(crate) fn new(exec: &Exec, state: &StateDir, pools: &Arc<Pools>, settings: &Arc<Settings>) -> Statistics {
        let (exec, state) = (exec.clone(), state.clone());
        Statistics { exec, state, pools: pools.clone(), settings: settings.clone(), sessions: Mutex::default() }
    }

    /// Takes the tree away.
    pub(crate) fn end(&self) {
        for session in std::mem::take(&mut *self.sessions.lock()) {
            // A program that sits in it must not keep the daemon.
            let _ = session.unmount(true);
        }
    }

    /// Builds the tree of statistics and parameters.
    fn tree(&self) -> Tree {
        Tree::new(Arc::new(Look { exec: self.exec.clone(), pools: self.pools.clone(), settings: self.settings.clone() }))
    }

    /// Mounts the tree in the state directory, in place of what a killed daemon left there.
    pub(crate) fn mount_tree(&self) {
        let wanted = std::env::var_os(SWITCH).is_none_or(|word| word != "off");
        let readers = Readers::new(&self.exec).map_err(|error| error.to_string());
        for (above, root) in PLACES {
            let place = self.state.path().join(above).join(root);
            fuse::clear_dead_mount(&place);
            let mount = |readers: &Readers| self.mount_part(readers, &place, root);
            if wanted && let Err(why) = readers.as_ref().map_err(String::clone).and_then(mount) {
                tracing::warn!("no statistics at {}: {why}", place.display());
            }
        }
        for folder in EMPTY.iter().filter(|_| wanted) {
            let _ = service::trust::make_folder(&self.state.path().join(folder));
        }
    }

    fn mount_part(&self, readers: &Readers, place: &Path, root: &str) -> Result<(), String> {
        service::trust::make_folder(place).map_err(|why| why.to_string())?;
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let handler = Arc::new(TreeFs::new(self.tree(), root, owner));
        let options = MountOptions {
            source: "zirconia-kstat".into(),
            suid: false,
            devices: false,
            exec: false,
            atime: false,
            max_write: 64 << 10,
            ..MountOptions::default()
        };
        let session = Session::mount_with(readers, handler, place, &options).map_err(|error| error.to_string())?;
        self.sessions.lock().push(session);
        Ok(())
    }

    /// Returns the metrics of the daemon in OpenMetrics text.
    pub(crate) fn metrics(&self) -> String {
        let pools = self.pools.all();
        let vdevs: Vec<_> = pools.iter().map(|open| iostat::iostat(open)).collect();
        drop(pools);
        metrics::openmetrics(&self.tree(), &vdevs)
    }
}
