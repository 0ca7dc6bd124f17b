//! When the snapshots of a file system or volume last changed: what backs up looks there before it lists them
//! (OpenZFS: `dsl_dir_snap_cmtime_update`).

use crate::dir::Dir;
use crate::meta::Meta;
use crate::{DslError, features};
use dmu::Tx;
use ondisk::ObjectType;
use zap::Value;

/// OpenZFS: `DD_FIELD_SNAPSHOTS_CHANGED`; seconds and nanoseconds.
const CHANGED: &str = "com.ixsystems:snapshots_changed";

/// Notes that a snapshot was taken, destroyed or renamed. Pools without the feature for it remember nothing.
pub(crate) fn note(meta: &Meta, dir: &Dir, tx: &Tx) -> Result<(), DslError> {
    if !meta.services.feature_enabled(features::EXTENSIBLE_DATASET) {
        return Ok(());
    }
    let (seconds, nanoseconds) = meta.io.exec().wall_clock();
    meta.zapify(&meta.hold(dir.object)?, tx)?;
    let time = Value::U64(vec![seconds as u64, u64::from(nanoseconds)]);
    Ok(meta.zap(dir.object)?.update(CHANGED, &time, tx)?)
}

/// Time of the last change of the snapshots, in seconds and nanoseconds since 1970; None when nobody knows.
pub(crate) fn when(meta: &Meta, dir: &Dir) -> Result<Option<(u64, u32)>, DslError> {
    if meta.hold(dir.object)?.info()?.kind != ObjectType::OTN_ZAP_METADATA {
        return Ok(None);
    }
    Ok(match meta.zap(dir.object)?.try_lookup(CHANGED)? {
        Some(Value::U64(time)) => time.first().map(|&seconds| (seconds, time.get(1).map_or(0, |&part| (part % 1_000_000_000) as u32))),
        _ => None,
    })
}
