//! Properties on disk: reading with source, setting, inheriting, and what takes effect at once (OpenZFS: `dsl_prop.c`).
//!
//! A directory's properties ZAP has `name` (local), `name$recvd` (received), `name$inherit` (explicitly inherited) and
//! `name$iuv` (a value that old software would not know); a snapshot has a ZAP of its own before its directory's.

use super::DslPool;
use crate::DslError;
use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::meta::Usage;
use crate::prop::PropSource;
use crate::prop::table::{self, Attr, Kind, Parsed, Prop};
use dmu::{ObjsetProps, PrimaryCache, RedundantMetadata, SyncMode, Tx};
use ondisk::{Checksum, Compression, ObjectType, ObjsetType, dd_used};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zap::{Value, Zap};

/// Properties that live in the file system's own tables.
const IN_FILE_SYSTEM: &[&str] = &["normalization", "utf8only", "casesensitivity", "version"];
/// Properties that live in the volume.
const IN_VOLUME: &[&str] = &["volsize", "volblocksize"];

/// A property and the text that it gets.
type Setting = (Prop, String);

impl DslPool {
    // ---- reading ----

    /// The stored value of a property and where it was found; None for the default.
    pub(crate) fn stored_prop(&self, dataset: &Dataset, prop: &Prop) -> Result<Option<(Value, PropSource)>, DslError> {
        let own = dataset.phys().ds_props_obj;
        if dataset.is_snapshot && own != 0 {
            let zap = self.meta.zap(own)?;
            if let Some(value) = zap.try_lookup(prop.name())? {
                return Ok(Some((value, PropSource::Local)));
            }
            if let Some(value) = zap.try_lookup(format!("{}$recvd", prop.name()))? {
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
        Ok(zap.try_lookup(format!("{name}$recvd"))?.map(|value| (value, true)))
    }

    /// A native number (or index) with its source.
    pub(crate) fn prop_number(&self, dataset: &Dataset, name: &str) -> Result<(u64, PropSource), DslError> {
        let desc = table::native(name).ok_or(DslError::BadProperty)?;
        match self.stored_prop(dataset, &Prop::Native(desc))? {
            Some((value, source)) => value.as_u64().map(|number| (number, source)).ok_or(DslError::BadValue),
            None => Ok((desc.default, PropSource::Default)),
        }
    }

    pub(super) fn load_ref_limits(&self, dataset: &Dataset) -> Result<(u64, u64), DslError> {
        Ok((self.prop_number(dataset, "refquota")?.0, self.prop_number(dataset, "refreservation")?.0))
    }

    /// What the properties of a dataset mean to its object set.
    pub(crate) fn objset_props(&self, dataset: &Dataset) -> Result<ObjsetProps, DslError> {
        let number = |name: &str| self.prop_number(dataset, name).map(|(number, _)| number);
        let base = self.meta.services.objset_props();
        let compression = number("compression")?;
        Ok(ObjsetProps {
            checksum: Checksum(number("checksum")? as u8),
            compression: Compression((compression & 0x7F) as u8),
            zstd_level: (compression >> 7) as u8,
            copies: number("copies")?.clamp(1, 3) as u8,
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
            ..base
        })
    }

    // ---- checks ----

    /// Checks properties for a new dataset (`creating`) or for one that exists.
    pub(crate) fn check_props(
        &self,
        properties: &[(String, String)],
        kind: ObjsetType,
        creating: bool,
    ) -> Result<Vec<(Prop, String)>, DslError> {
        let applies = if kind == ObjsetType::ZVOL { table::VOLUME } else { table::FILESYSTEM };
        let mut checked = Vec::new();
        for (name, value) in properties {
            let prop = table::find(name)?;
            if let Prop::Native(desc) = &prop {
                if desc.applies & applies == 0 {
                    return Err(DslError::BadProperty);
                }
                match desc.attr {
                    Attr::ReadOnly => return Err(DslError::ReadOnlyProperty),
                    Attr::OneTime | Attr::OneTimeDefault if !creating => return Err(DslError::ReadOnlyProperty),
                    _ => {}
                }
                let parsed = desc.parse(value)?;
                self.check_supported(desc.name, &parsed)?;
                if in_object_set(desc.name) {
                    if !creating {
                        return Err(DslError::ReadOnlyProperty);
                    }
                    continue;
                }
            } else if value.len() >= 8192 {
                return Err(DslError::BadValue);
            }
            checked.push((prop, value.clone()));
        }
        Ok(checked)
    }

    /// Values that need a feature of the pool or that this build cannot do.
    fn check_supported(&self, name: &str, value: &Parsed) -> Result<(), DslError> {
        let Parsed::Number(number) = *value else { return Ok(()) };
        let feature = match (name, number) {
            ("checksum", 11) => crate::features::SHA512,
            ("checksum", 12..=14) | ("dedup", 0x100.. | 1 | 3..) => return Err(DslError::Unsupported),
            ("encryption", number) if number != 2 => return Err(DslError::Unsupported),
            ("compression", number) if number & 0x7F == 16 => crate::features::ZSTD_COMPRESS,
            ("recordsize" | "volblocksize", 131_073..) => crate::features::LARGE_BLOCKS,
            ("dnodesize", 1..) => crate::features::LARGE_DNODE,
            ("longname", 1) => crate::features::LONGNAME,
            ("filesystem_limit" | "snapshot_limit", number) if number != u64::MAX => crate::features::FS_SS_LIMIT,
            _ => return Ok(()),
        };
        if self.meta.services.feature_enabled(feature) { Ok(()) } else { Err(DslError::Unsupported) }
    }

    /// Snapshots take user properties only.
    pub(super) fn check_snapshot_props(&self, properties: &[(String, String)]) -> Result<Vec<(Prop, String)>, DslError> {
        let checked: Vec<(Prop, String)> =
            properties.iter().map(|(name, value)| Ok((table::find(name)?, value.clone()))).collect::<Result<_, DslError>>()?;
        if checked.iter().any(|(prop, _)| matches!(prop, Prop::Native(_))) { Err(DslError::ReadOnlyProperty) } else { Ok(checked) }
    }

    // ---- setting ----

    /// Sets checked properties locally, with their effects on space.
    pub(crate) fn store_props(&self, dataset: &Arc<Dataset>, checked: &[(Prop, String)], tx: &Tx) -> Result<(), DslError> {
        let zap = self.meta.zap(dataset.dir.phys().dd_props_zapobj)?;
        for (prop, text) in checked {
            let value = stored_value(prop, text)?;
            store_local(&zap, prop, &value, tx)?;
            // It counts from the setting on, not from the first block (OpenZFS: `dsl_dataset_set_compression`).
            if prop.name() == "compression" && value.as_u64().is_some_and(|number| number & 0x7F == 16) {
                dataset.activate(&self.meta, crate::features::bit(crate::features::ZSTD_COMPRESS), tx)?;
            }
            if let (Prop::Native(desc), Some(number)) = (prop, value.as_u64()) {
                self.take_effect(dataset, desc.name, number, tx)?;
            }
        }
        Ok(())
    }

    pub(super) fn store_snapshot_props(&self, snapshot: &Dataset, checked: &[(Prop, String)], tx: &Tx) -> Result<(), DslError> {
        if checked.is_empty() {
            return Ok(());
        }
        let object = match snapshot.phys().ds_props_obj {
            0 => {
                let object = self.meta.create_zap(ObjectType::DSL_PROPS, tx)?;
                snapshot.update(tx, |phys| phys.ds_props_obj = object)?;
                object
            }
            object => object,
        };
        let zap = self.meta.zap(object)?;
        checked.iter().try_for_each(|(prop, text)| store_local(&zap, prop, &stored_value(prop, text)?, tx))
    }

    fn take_effect(&self, dataset: &Arc<Dataset>, name: &str, number: u64, tx: &Tx) -> Result<(), DslError> {
        match name {
            "quota" => dataset.dir.set_quota(number, tx),
            "reservation" => dataset.dir.set_reservation(number, tx),
            "refquota" => {
                dataset.refquota.store(number, Ordering::Relaxed);
                Ok(())
            }
            "refreservation" => self.set_refreservation(dataset, number, tx),
            "filesystem_limit" | "snapshot_limit" if number != u64::MAX => self.count_from(&dataset.dir, tx),
            _ => Ok(()),
        }
    }

    /// Changes the refreservation and charges the directory (OpenZFS: `dsl_dataset_set_refreservation_sync_impl`).
    pub(super) fn set_refreservation(&self, dataset: &Dataset, bytes: u64, tx: &Tx) -> Result<(), DslError> {
        let unique = dataset.unique();
        let old = dataset.refreservation.swap(bytes, Ordering::Relaxed);
        let delta = bytes.saturating_sub(unique) as i64 - old.saturating_sub(unique) as i64;
        dataset.dir.charge(dd_used::REFRSRV, Usage { used: delta, comp: 0, uncomp: 0 }, tx)
    }

    /// Space limits must be possible (OpenZFS: the `_check` functions of quota and reservation).
    fn check_limits(&self, dataset: &Dataset, checked: &[(Prop, String)]) -> Result<(), DslError> {
        let dir = &dataset.dir;
        for (prop, text) in checked {
            let Prop::Native(desc) = prop else { continue };
            let Parsed::Number(number) = desc.parse(text)? else { continue };
            let available = || dir.available(self.pool_bytes(false), None);
            let possible = match desc.name {
                "quota" => number == 0 || number >= dir.reserved() && number >= dir.used(),
                "refquota" => number == 0 || number >= dataset.referenced() && number >= dataset.reserved(),
                "reservation" => {
                    let more = number.max(dir.used()) - dir.used().max(dir.reserved()).min(number.max(dir.used()));
                    more <= dir.parent().map_or_else(available, |parent| parent.available(self.pool_bytes(false), None))
                        && (dir.quota() == 0 || number <= dir.quota())
                }
                "refreservation" => {
                    let more = number.max(dataset.unique()).saturating_sub(dataset.unique().max(dataset.reserved()));
                    let refquota = dataset.refquota.load(Ordering::Relaxed);
                    more <= available() && (refquota == 0 || number <= refquota)
                }
                _ => true,
            };
            if !possible {
                return Err(DslError::NoSpace);
            }
        }
        Ok(())
    }

    /// What a new dataset wants kept for it must be there (OpenZFS: `dsl_dir_set_reservation_check`, `dsl_dataset_set_refreservation_check`).
    pub(super) fn check_reserved(&self, parent: &Dir, checked: &[(Prop, String)]) -> Result<(), DslError> {
        let wanted = |name: &str| {
            let found = checked.iter().find_map(|(prop, text)| match prop {
                Prop::Native(desc) if desc.name == name => desc.parse(text).ok(),
                _ => None,
            });
            if let Some(Parsed::Number(bytes)) = found { bytes } else { 0 }
        };
        // A dataset can't keep more than it may have.
        for (limit, kept) in [("quota", "reservation"), ("refquota", "refreservation")] {
            if wanted(limit) != 0 && wanted(kept) > wanted(limit) {
                return Err(DslError::NoSpace);
            }
        }
        for (prop, text) in checked {
            let Prop::Native(desc) = prop else { continue };
            if !matches!(desc.name, "reservation" | "refreservation") {
                continue;
            }
            match desc.parse(text)? {
                Parsed::Number(bytes) if bytes > parent.available(self.pool_bytes(false), None) => return Err(DslError::NoSpace),
                _ => {}
            }
        }
        Ok(())
    }

    /// The dataset and its new properties, after a look that they are possible.
    fn check_change(&self, object: u64, properties: &[(String, String)]) -> Result<(Arc<Dataset>, Vec<Setting>), DslError> {
        let dataset = self.dataset(object)?;
        if dataset.is_snapshot {
            let checked = self.check_snapshot_props(properties)?;
            return Ok((dataset, checked));
        }
        let checked = self.check_props(properties, self.kind_of(&dataset)?, false)?;
        self.check_limits(&dataset, &checked)?;
        Ok((dataset, checked))
    }

    /// Sets properties of a dataset or snapshot, all or none.
    pub(crate) fn set_props_of(self: &Arc<Self>, object: u64, properties: Vec<(String, String)>) -> Result<(), DslError> {
        // What cannot be is refused before anything waits, and what others are just writing counts for the limits as it did before.
        {
            let _config = self.config();
            self.check_change(object, &properties)?;
        }
        let check = move |pool: &Arc<DslPool>, _: &Tx| pool.check_change(object, &properties);
        self.sync_task(check, |pool, (dataset, checked), tx| {
            if dataset.is_snapshot {
                pool.store_snapshot_props(&dataset, &checked, tx)?;
            } else {
                pool.store_props(&dataset, &checked, tx)?;
                pool.refresh_props(&dataset.dir)?;
            }
            for (prop, text) in &checked {
                pool.log("set", dataset.object, format!("{}={text}", prop.name()), tx)?;
            }
            Ok(())
        })
    }

    /// Removes a local value (OpenZFS: `dsl_prop_set_sync_impl` with `ZPROP_SRC_INHERITED`).
    pub(crate) fn inherit_prop_of(self: &Arc<Self>, object: u64, name: &str) -> Result<(), DslError> {
        let prop = table::find(name)?;
        if let Prop::Native(desc) = &prop
            && matches!(desc.attr, Attr::ReadOnly | Attr::OneTime | Attr::OneTimeDefault)
        {
            return Err(DslError::ReadOnlyProperty);
        }
        self.sync_task(
            move |pool, _| pool.dataset(object),
            move |pool, dataset, tx| {
                let table = if dataset.is_snapshot { dataset.phys().ds_props_obj } else { dataset.dir.phys().dd_props_zapobj };
                if table != 0 {
                    let zap = pool.meta.zap(table)?;
                    remove_if_there(&zap, prop.name(), tx)?;
                    remove_if_there(&zap, &format!("{}$iuv", prop.name()), tx)?;
                    if zap.contains("$hasrecvd")? {
                        zap.update_u64(format!("{}$inherit", prop.name()), 0, tx)?;
                    }
                }
                if !dataset.is_snapshot {
                    if let Prop::Native(desc) = &prop {
                        let number = pool.prop_number(&dataset, desc.name).map_or(0, |(number, _)| number);
                        pool.take_effect(&dataset, desc.name, number, tx)?;
                    }
                    pool.refresh_props(&dataset.dir)?;
                }
                pool.log("inherit", dataset.object, prop.name().to_string(), tx)
            },
        )
    }

    /// Gives the object sets at and below a directory their properties anew.
    pub(super) fn refresh_props(&self, dir: &Arc<Dir>) -> Result<(), DslError> {
        let open: Vec<Arc<Dataset>> =
            self.datasets.lock().values().filter(|dataset| !dataset.is_snapshot && dataset.open_objset().is_some()).cloned().collect();
        for dataset in open {
            if let Some(objset) = dataset.open_objset()
                && dataset.dir.is_within(dir)
            {
                objset.set_props(self.objset_props(&dataset)?);
            }
        }
        Ok(())
    }
}

fn remove_if_there(zap: &Zap, name: &str, tx: &Tx) -> Result<(), DslError> {
    match zap.remove(name, tx) {
        Ok(()) | Err(zap::ZapError::NotFound) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The value as the ZAP keeps it.
fn stored_value(prop: &Prop, text: &str) -> Result<Value, DslError> {
    Ok(match prop {
        Prop::User(_) => Value::from_str_with_nul(text),
        Prop::Native(desc) => match desc.parse(text)? {
            Parsed::Number(number) => Value::U64(vec![number]),
            Parsed::Text(text) => Value::from_str_with_nul(&text),
        },
    })
}

fn store_local(zap: &Zap, prop: &Prop, value: &Value, tx: &Tx) -> Result<(), DslError> {
    let name = prop.name();
    remove_if_there(zap, &format!("{name}$inherit"), tx)?;
    let hidden = format!("{name}$iuv");
    // Old software knows neither these words nor how to refuse them (OpenZFS: dsl_prop_set_iuv).
    let unknown_to_old = matches!((name, value.as_u64()), ("redundant_metadata", Some(2 | 3)) | ("snapdir", Some(2)));
    if unknown_to_old {
        zap.update(&hidden, value, tx)?;
        zap.update_u64(name, 0, tx)?;
        return Ok(());
    }
    remove_if_there(zap, &hidden, tx)?;
    Ok(zap.update(name, value, tx)?)
}

/// True for properties whose value is text.
pub(crate) fn is_text(kind: Kind) -> bool {
    matches!(kind, Kind::Text(_))
}
/// True for properties that the file system's own tables, or the volume's, keep.
pub(crate) fn in_object_set(name: &str) -> bool {
    IN_FILE_SYSTEM.contains(&name) || IN_VOLUME.contains(&name)
}
