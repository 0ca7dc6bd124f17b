//! Properties as the MOS has them: a value with its source, and what values mean to an object set (OpenZFS: `dsl_prop_get_dd`).
//!
//! A directory's properties ZAP has `name` (local), `name$recvd` (received), `name$inherit` (explicitly inherited) and
//! `name$iuv` (a value that old software would not know); a snapshot has a ZAP of its own before its directory's.

use super::PropSource;
use super::table::{self, Prop};
use crate::DslError;
use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::meta::Meta;
use dmu::{Dedup, ObjsetProps, PrimaryCache, RedundantMetadata, SyncMode};
use ondisk::{Checksum, Compression};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use zap::{Value, Zap};

/// Ending of the names of received values.
pub(crate) const RECEIVED: &str = "$recvd";

/// The properties that are stored in the MOS, for reading.
pub(crate) struct Stored {
    meta: Arc<Meta>,
}

impl Stored {
    pub(crate) fn new(meta: Arc<Meta>) -> Stored {
        Stored { meta }
    }

    /// The stored value of a property and where it was found; None for the default.
    pub(crate) fn find(&self, dataset: &Dataset, prop: &Prop) -> Result<Option<(Value, PropSource)>, DslError> {
        let own = dataset.phys().ds_props_obj;
        if dataset.is_snapshot && own != 0 {
            let zap = self.meta.zap(own)?;
            if let Some(value) = zap.try_lookup(prop.name())? {
                return Ok(Some((value, PropSource::Local)));
            }
            if let Some(value) = zap.try_lookup(format!("{}{RECEIVED}", prop.name()))? {
                return Ok(Some((value, PropSource::Received)));
            }
        }
        let mut inheriting = dataset.is_snapshot;
        let mut walk = Some(dataset.dir.clone());
        while let Some(dir) = walk {
            if inheriting && !prop.is_inherited() {
                return Ok(None);
            }
            if let Some((value, received)) = self.stored_in(&dir, prop)? {
                let source = match (inheriting, received) {
                    (true, _) => PropSource::Inherited(dir.full_name()),
                    (false, true) => PropSource::Received,
                    (false, false) => PropSource::Local,
                };
                return Ok(Some((value, source)));
            }
            inheriting = true;
            walk = dir.parent();
        }
        Ok(None)
    }

    /// The value in one directory, and whether it was received.
    fn stored_in(&self, dir: &Dir, prop: &Prop) -> Result<Option<(Value, bool)>, DslError> {
        let zap = self.meta.zap(dir.phys().dd_props_zapobj)?;
        if zap.count() == 0 {
            return Ok(None);
        }
        let name = prop.name();
        if let (Prop::Native(desc), Some(value)) = (prop, zap.try_lookup(format!("{name}$iuv"))?)
            && value.as_u64().is_some_and(|number| desc.word(number).is_some())
        {
            return Ok(Some((value, false)));
        }
        if let Some(value) = zap.try_lookup(name)? {
            return Ok(Some((value, false)));
        }
        if zap.contains(format!("{name}$inherit"))? {
            return Ok(None);
        }
        Ok(zap.try_lookup(format!("{name}{RECEIVED}"))?.map(|value| (value, true)))
    }

    /// A native number (or index) with its source.
    pub(crate) fn number(&self, dataset: &Dataset, name: &str) -> Result<(u64, PropSource), DslError> {
        let desc = table::native(name).ok_or(DslError::BadProperty)?;
        match self.find(dataset, &Prop::Native(desc))? {
            Some((value, source)) => value.as_u64().map(|number| (number, source)).ok_or(DslError::BadValue),
            None => Ok((desc.default, PropSource::Default)),
        }
    }

    /// Quota and reservation of what a dataset references, in bytes.
    pub(crate) fn ref_limits(&self, dataset: &Dataset) -> Result<(u64, u64), DslError> {
        Ok((self.number(dataset, "refquota")?.0, self.number(dataset, "refreservation")?.0))
    }

    /// Properties of the object set that follow from the properties of a dataset.
    pub(crate) fn objset_props(&self, dataset: &Dataset) -> Result<ObjsetProps, DslError> {
        let number = |name: &str| self.number(dataset, name).map(|(number, _)| number);
        let base = self.meta.services.objset_props();
        let compression = number("compression")?;
        Ok(ObjsetProps {
            checksum: Checksum(number("checksum")? as u8),
            compression: Compression((compression & 0x7F) as u8),
            zstd_level: (compression >> 7) as u8,
            copies: number("copies")?.clamp(1, 3) as u8,
            small_bytes: number("special_small_blocks")?.min(16 << 20) as usize,
            dedup: dedup_of(number("dedup")?),
            redundant_metadata: match number("redundant_metadata")? {
                1 => RedundantMetadata::Most,
                2 => RedundantMetadata::Some,
                3 => RedundantMetadata::None,
                _ => RedundantMetadata::All,
            },
            record_size: number("recordsize")?.clamp(512, 16 << 20) as usize,
            // `auto` is 1 KiB today (OpenZFS: dnodesize_changed_cb).
            dnode_size: match number("dnodesize")? {
                1 => 1024,
                bytes => bytes.min(16384) as usize,
            },
            primary_cache: match number("primarycache")? {
                0 => PrimaryCache::None,
                1 => PrimaryCache::Metadata,
                _ => PrimaryCache::All,
            },
            sync: match number("sync")? {
                1 => SyncMode::Always,
                2 => SyncMode::Disabled,
                _ => SyncMode::Standard,
            },
            spares_log_devices: number("logbias")? == 1,
            ..base
        })
    }

    /// Values that a dataset or snapshot itself received, by property, also those that a setting covers (OpenZFS: `dsl_prop_get_received`).
    pub(crate) fn received(&self, dataset: &Dataset) -> Result<BTreeMap<String, Value>, DslError> {
        let table = if dataset.is_snapshot { dataset.phys().ds_props_obj } else { dataset.dir.phys().dd_props_zapobj };
        let mut values = BTreeMap::new();
        if table != 0 {
            let zap = self.meta.zap(table)?;
            for name in received_names(&zap)? {
                if let Some(value) = zap.try_lookup(format!("{name}{RECEIVED}"))? {
                    values.insert(name, value);
                }
            }
        }
        Ok(values)
    }

    /// Names of user properties set on the dataset or above, or received there.
    pub(crate) fn user_names(&self, dataset: &Dataset) -> Result<BTreeSet<String>, DslError> {
        let mut names = BTreeSet::new();
        let mut tables = vec![dataset.phys().ds_props_obj];
        let mut walk = Some(dataset.dir.clone());
        while let Some(dir) = walk {
            tables.push(dir.phys().dd_props_zapobj);
            walk = dir.parent();
        }
        for table in tables.into_iter().filter(|table| *table != 0) {
            self.meta.zap(table)?.for_each(|entry| {
                let name = String::from_utf8_lossy(&entry.name).into_owned();
                if let Ok(Prop::User(name)) = table::find(name.strip_suffix(RECEIVED).unwrap_or(&name)) {
                    names.insert(name);
                }
                Ok(())
            })?;
        }
        Ok(names)
    }
}

/// Deduplication that a value of the property `dedup` asks for, and the checksum by which blocks are the same. `on` is SHA-256, and without `verify` only
/// algorithms count by which no two different blocks were ever the same (OpenZFS: `zio_checksum_dedup_select`, `dmu_write_policy`).
fn dedup_of(number: u64) -> (Dedup, Checksum) {
    const VERIFY: u64 = 0x100;
    let checksum = match Checksum((number & 0xFF) as u8) {
        Checksum::ON => Checksum::SHA256,
        other => other,
    };
    match checksum {
        Checksum::SHA256 | Checksum::SHA512 | Checksum::SKEIN | Checksum::BLAKE3 if number & VERIFY == 0 => (Dedup::On, checksum),
        Checksum::SHA256 | Checksum::SHA512 | Checksum::SKEIN | Checksum::BLAKE3 | Checksum::EDONR => (Dedup::Verify, checksum),
        _ => (Dedup::Off, Checksum::OFF),
    }
}

/// Names of the properties of which a table has received values.
pub(crate) fn received_names(zap: &Zap) -> Result<Vec<String>, DslError> {
    let mut names = Vec::new();
    zap.for_each(|entry| {
        names.extend(entry.name.strip_suffix(RECEIVED.as_bytes()).map(|name| String::from_utf8_lossy(name).into_owned()));
        Ok(())
    })?;
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::dedup_of;
    use dmu::Dedup;
    use ondisk::Checksum;

    /// If this fails, blocks of different bytes are taken for one, or nothing is stored once though users asked for it.
    #[test]
    fn weak_checksums_are_verified_and_on_is_sha256() {
        let wanted = [
            (1, (Dedup::On, Checksum::SHA256)),
            (2, (Dedup::Off, Checksum::OFF)),
            (0x101, (Dedup::Verify, Checksum::SHA256)),
            (11, (Dedup::On, Checksum::SHA512)),
            (0x10C, (Dedup::Verify, Checksum::SKEIN)),
            (13, (Dedup::Verify, Checksum::EDONR)),
            (14, (Dedup::On, Checksum::BLAKE3)),
            (7, (Dedup::Off, Checksum::OFF)),
        ];
        for (number, dedup) in wanted {
            assert_eq!(dedup_of(number), dedup, "{number:#x}");
        }
    }
}
