//! Doors of volumes without a daemon: for tests of whole pools.

use exec::Exec;
use nbd::Export;
use std::sync::Arc;
use zvol::Volume;

/// Export of NBD, as clients of a daemon have it, of a volume that was opened elsewhere. Under an executor without threads requests are carried out at
/// once.
pub fn nbd_export(exec: &Exec, volume: Arc<Volume>) -> Option<Arc<dyn Export>> {
    crate::portal::export_of(exec, crate::volume::Loan::of(volume))
}
