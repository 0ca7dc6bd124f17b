//! Where the properties of a file system place it.

use crate::dataset::properties::property;
use crate::failure;
use crate::pool::OpenPool;
use control_api::{Failure, Property, Value};
use dsl::{DatasetHandle, PropSource};

/// Place of a file system by its properties, and whether that follows from its name.
pub(crate) fn place_of(pool: &OpenPool, handle: &DatasetHandle) -> Result<(String, bool), Failure> {
    if handle.is_snapshot() {
        return Ok(("legacy".to_string(), false));
    }
    let entry = handle.prop("mountpoint").map_err(|error| failure::dataset("mount", &handle.name(), &error))?;
    let follows = matches!(entry.source, PropSource::Default | PropSource::Inherited(_));
    Ok((effective_mountpoint(pool, &property(entry)), follows))
}

/// Place at which the file system goes, below the pool's altroot.
pub(crate) fn effective_mountpoint(pool: &OpenPool, property: &Property) -> String {
    let Value::Text(place) = &property.value else { return "none".to_string() };
    below_altroot(pool, place)
}

/// Mountpoint below the pool's altroot; words that are no path stay.
pub(crate) fn below_altroot(pool: &OpenPool, place: &str) -> String {
    match pool.altroot() {
        Some(root) if place.starts_with('/') => {
            let below = format!("{}{}", root.trim_end_matches('/'), place.trim_end_matches('/'));
            if below.is_empty() { "/".to_string() } else { below }
        }
        _ => place.to_string(),
    }
}
