//! Persistent reservations of a disk, kept with its volume, so that they are there on every host that imports the pool.
//!
//! They are a property of the user's kind on the dataset. Who takes it away releases the reservations with the next start of the daemon.

use dsl::{DatasetHandle, PropSource};
use iscsi::{Kept, Registration, UnitError};
use serde::{Deserialize, Serialize};

/// Property that has them; a value of such a property has at most 8191 bytes.
const PROPERTY: &str = "zirconia:iscsi.reservations";

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

/// Reservations that a volume has kept.
pub(super) fn load(dataset: &DatasetHandle) -> Option<Kept> {
    // What is inherited is another volume's.
    let Ok((text, PropSource::Local)) = dataset.prop_text(PROPERTY) else { return None };
    match decode(&text) {
        Ok(kept) => Some(kept),
        Err(error) => {
            tracing::warn!("reservations of '{}' are not understood, and do not count: {error}", dataset.name());
            None
        }
    }
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
