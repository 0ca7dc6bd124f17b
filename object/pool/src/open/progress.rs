//! What an import says of its steps: in the statistic `import_progress`, and among the debug messages (OpenZFS: `spa_import_progress_set_notes`).
//!
//! The notes are OpenZFS's where a step is. Who reads a pool and imports none (`zdb`, a split) says nothing.

use super::find::FoundPool;
use super::{ImportOptions, Rewind};
use kstat::{Import, LoadState};
use ondisk::Guid;

/// Begins an import: it is in the statistic until the result is dropped.
pub(crate) fn begin(found: &FoundPool, options: &ImportOptions) -> Import {
    let state = if options.rewind == Rewind::Never { LoadState::Import } else { LoadState::Recover };
    let import = Import::begin(found.guid().0, found.name(), state);
    if let Rewind::To(txg) = options.rewind {
        import.set_max_txg(txg.0);
    }
    import
}

/// Notes the step that the import of a pool comes to.
pub(crate) fn note(guid: Guid, step: &str) {
    if let Some(name) = kstat::note_import(guid.0, step) {
        // OpenZFS's function, by whose name its tests find these messages.
        tracing::debug!("spa_import_progress_set_notes_impl(): '{}' {step}", name.escape_debug());
    }
}
