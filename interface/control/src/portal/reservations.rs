//! Persistent reservations of a disk, kept with its volume, so that they are there on every host that imports the pool.
//!
//! They are a property of the user's kind on the dataset. Who takes it away releases the reservations, and who sets it sets them.

use dsl::{DatasetHandle, DslError, PropSource};
use iscsi::{Kept, Registration, UnitError};
use serde::{Deserialize, Serialize};

/// Property that has them; a value of such a property has at most 8191 bytes.
pub(super) const PROPERTY: &str = "zirconia:iscsi.reservations";

/// Reservations as they are written.
#[derive(Deserialize, Serialize)]
struct Written {
    generation: u32,
    registrations: Vec<(String, u64)>,
    reservation: Option<(String, u8)>,
}

fn encode(kept: &Kept) -> String {
    let registrations = kept.registrations.iter().map(|one| (one.transport.clone(), one.key)).collect();
    let written = Written { generation: kept.generation, registrations, reservation: kept.reservation.clone() };
    // Plain data: it can always be written.
    serde_json::to_string(&written).unwrap_or_default()
}

fn decode(text: &str) -> Result<Kept, serde_json::Error> {
    let Written { generation, registrations, reservation } = serde_json::from_str(text)?;
    let registrations = registrations.into_iter().map(|(transport, key)| Registration { transport, key }).collect();
    Ok(Kept { generation, registrations, reservation })
}

/// Text of the reservations that a volume has kept.
fn text(dataset: &DatasetHandle) -> Result<Option<String>, DslError> {
    match dataset.prop_text(PROPERTY) {
        Ok((text, PropSource::Local)) => Ok(Some(text)),
        // What is inherited is another volume's.
        Ok(_) | Err(DslError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reservations that a volume has kept; what is not understood does not count, which is said.
///
/// # Errors
/// Those of reading them.
pub(super) fn load(dataset: &DatasetHandle) -> Result<Option<Kept>, DslError> {
    let Some(text) = text(dataset)? else { return Ok(None) };
    let kept = decode(&text);
    let warn = |error: &serde_json::Error| {
        tracing::warn!("reservations of '{}' are not understood, and do not count: {error}", dataset.name());
    };
    Ok(kept.inspect_err(warn).ok())
}

/// Reservations that a volume has kept by now, which somebody may have set or taken away.
///
/// # Errors
/// Those of reading them.
pub(super) fn now(dataset: &DatasetHandle) -> Result<Option<Kept>, DslError> {
    Ok(text(dataset)?.and_then(|text| decode(&text).ok()))
}

/// Takes what an initiator has reserved and registered from what a volume, which nobody is served, has kept. True when there was any.
pub(super) fn strip(dataset: &DatasetHandle, initiator: &str) -> Result<bool, UnitError> {
    let Some(mut kept) = now(dataset).map_err(|_| UnitError::Unwritable)? else { return Ok(false) };
    if !kept.strip(initiator) {
        return Ok(false);
    }
    store(dataset, Some(&kept)).map(|()| true)
}

/// Keeps reservations in place of what was kept; on disk when it returns.
pub(super) fn store(dataset: &DatasetHandle, kept: Option<&Kept>) -> Result<(), UnitError> {
    let stored = match kept {
        Some(kept) => dataset.set_props(&[(PROPERTY.to_string(), encode(kept))]),
        None => dataset.inherit_prop(PROPERTY),
    };
    stored.map_err(|error| {
        tracing::warn!("reservations of '{}' cannot be kept: {error}", dataset.name());
        UnitError::Unwritable
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a cluster's node that was fenced off writes again after a restart.
    #[test]
    fn reservations_come_back_as_they_were() {
        let transport = "iqn.2026-11.example:a,i,0x400001370000".to_string();
        let kept = Kept {
            generation: 7,
            registrations: vec![Registration { transport: transport.clone(), key: u64::MAX }],
            reservation: Some((transport, 5)),
        };
        assert_eq!(decode(&encode(&kept)).expect("it was written so"), kept);
        assert_eq!(decode(&encode(&Kept::default())).expect("it was written so"), Kept::default());
        assert!(decode("").is_err() && decode("{}").is_err());
    }
}
