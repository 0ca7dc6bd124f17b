//! Setting and inheriting properties: what is possible, what is stored, and what takes effect at once (OpenZFS: `dsl_prop_set_sync_impl`).
//! How the MOS keeps them says `prop::stored`.

use super::limits::Limits;
use super::tree::Tree;
use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::prop::table::{self, Attr, Kind, Parsed, Prop};
use crate::prop::{RECEIVED, received_names};
use crate::space::Space;
use crate::{DslError, keys};
use dmu::Tx;
use ondisk::names::spa_version;
use ondisk::{ObjectType, ObjsetType, ds_flags};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zap::{Value, Zap};

/// Entry that says that properties were received (OpenZFS: `ZPROP_HAS_RECVD`).
const HAS_RECEIVED: &str = "$hasrecvd";

/// Value of a property as streams have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceivedValue {
    /// Number of a property that is stored as one.
    Number(u64),
    /// Text of any other.
    Text(String),
}

/// A property and the text that it gets.
pub(super) type Setting = (Prop, String);

/// A dataset, the properties that it can receive, each with the value to be stored, and those that it cannot, with the reasons.
pub(super) type Received = (Arc<Dataset>, Vec<(Prop, Value)>, Vec<(String, DslError)>);

/// Properties whose values a dataset keeps elsewhere too, or counts from.
const LIMITS: [&str; 6] = ["quota", "reservation", "refquota", "refreservation", "filesystem_limit", "snapshot_limit"];

/// Most bytes of the value of a user's property before version 16 (OpenZFS: `ZAP_OLDMAXVALUELEN`, with the final zero byte).
const OLD_USER_VALUE_BYTES_MAX: usize = 1023;

/// Version of pools from which on a property can have a value (OpenZFS: `zfs_check_settable`, `dsl_dataset_set_refquota_check`).
fn version_of(name: &str, number: u64) -> u64 {
    match (name, number) {
        ("copies", _) => spa_version::DITTO_BLOCKS,
        ("compression", 5..=13) => spa_version::GZIP_COMPRESSION,
        ("compression", 14) => spa_version::ZLE_COMPRESSION,
        ("refquota", _) => spa_version::REFQUOTA,
        ("refreservation", _) => spa_version::REFRESERVATION,
        ("aclinherit", 5) => spa_version::PASSTHROUGH_X,
        ("dedup", _) => spa_version::DEDUP,
        _ => spa_version::INITIAL,
    }
}

/// Changes of properties, with the parts of the pool that they need.
pub(crate) struct Settings {
    tree: Arc<Tree>,
    limits: Arc<Limits>,
    space: Arc<Space>,
}

impl Settings {
    pub(super) fn new(tree: Arc<Tree>, limits: Arc<Limits>, space: Arc<Space>) -> Settings {
        Settings { tree, limits, space }
    }

    // ---- checks ----

    /// Checks properties for a new dataset (`creating`) or for one that exists.
    pub(crate) fn check_props(&self, properties: &[(String, String)], kind: ObjsetType, creating: bool) -> Result<Vec<Setting>, DslError> {
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
                if table::in_object_set(desc.name) {
                    if !creating {
                        return Err(DslError::ReadOnlyProperty);
                    }
                    continue;
                }
            } else {
                self.check_users_value(value)?;
            }
            checked.push((prop, value.clone()));
        }
        Ok(checked)
    }

    /// Values that need a feature of the pool or that this build cannot do.
    fn check_supported(&self, name: &str, value: &Parsed) -> Result<(), DslError> {
        let Parsed::Number(number) = *value else { return Ok(()) };
        self.tree.meta.check_version(version_of(name, number))?;
        let feature = match (name, number) {
            ("checksum" | "dedup", number) if number & 0xFF == 11 => crate::features::SHA512,
            ("checksum" | "dedup", number) if number & 0xFF == 12 => crate::features::SKEIN,
            ("checksum" | "dedup", number) if number & 0xFF == 13 => crate::features::EDONR,
            ("checksum" | "dedup", number) if number & 0xFF == 14 => crate::features::BLAKE3,
            ("encryption", number) if number != 2 => return Err(DslError::Unsupported),
            ("compression", 15) => crate::features::LZ4_COMPRESS,
            ("compression", number) if number & 0x7F == 16 => crate::features::ZSTD_COMPRESS,
            ("recordsize" | "volblocksize" | "special_small_blocks", 131_073..) => crate::features::LARGE_BLOCKS,
            ("dnodesize", 1..) => crate::features::LARGE_DNODE,
            ("longname", 1) => crate::features::LONGNAME,
            ("filesystem_limit" | "snapshot_limit", number) if number != u64::MAX => crate::features::FS_SS_LIMIT,
            _ => return Ok(()),
        };
        if self.tree.meta.services.feature_enabled(feature) { Ok(()) } else { Err(DslError::NeedsFeature(feature)) }
    }

    /// Snapshots take user properties only.
    pub(super) fn check_snapshot_props(&self, properties: &[(String, String)]) -> Result<Vec<Setting>, DslError> {
        if !properties.is_empty() {
            self.tree.meta.check_version(spa_version::SNAP_PROPS)?;
        }
        let checked: Vec<Setting> =
            properties.iter().map(|(name, value)| Ok((table::find(name)?, value.clone()))).collect::<Result<_, DslError>>()?;
        if checked.iter().any(|(prop, _)| matches!(prop, Prop::Native(_))) {
            return Err(DslError::ReadOnlyProperty);
        }
        checked.iter().try_for_each(|(_, value)| self.check_users_value(value))?;
        Ok(checked)
    }

    /// Refuses the value of a user's property that is too long, for any pool or for one of the version (OpenZFS: `dsl_props_set_check`).
    fn check_users_value(&self, text: &str) -> Result<(), DslError> {
        if text.len() > table::USER_VALUE_BYTES_MAX {
            return Err(DslError::BadValue);
        }
        if text.len() > OLD_USER_VALUE_BYTES_MAX { self.tree.meta.check_version(spa_version::STMF_PROP) } else { Ok(()) }
    }

    // ---- setting ----

    /// Sets checked properties locally, with their effects on space.
    pub(crate) fn store_props(&self, dataset: &Arc<Dataset>, checked: &[Setting], tx: &Tx) -> Result<(), DslError> {
        let zap = self.tree.meta.zap(dataset.dir.phys().dd_props_zapobj)?;
        for (prop, text) in checked {
            let value = stored_value(prop, text)?;
            store_local(&zap, prop, &value, tx)?;
            // It counts from the setting on, not from the first block (OpenZFS: `dsl_dataset_set_compression`).
            if prop.name() == "compression" && value.as_u64().is_some_and(|number| number & 0x7F == 16) {
                dataset.activate(&self.tree.meta, crate::features::bit(crate::features::ZSTD_COMPRESS), tx)?;
            }
            if let (Prop::Native(desc), Some(number)) = (prop, value.as_u64()) {
                self.take_effect(dataset, desc.name, number, tx)?;
            }
        }
        Ok(())
    }

    pub(super) fn store_snapshot_props(&self, snapshot: &Dataset, checked: &[Setting], tx: &Tx) -> Result<(), DslError> {
        if checked.is_empty() {
            return Ok(());
        }
        let object = self.props_table(snapshot, tx)?;
        let zap = self.tree.meta.zap(object)?;
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
            "refreservation" => {
                self.make_unique_accurate(dataset, tx)?;
                dataset.set_refreservation(number, tx)
            }
            "filesystem_limit" | "snapshot_limit" if number != u64::MAX => self.limits.count_from(&dataset.dir, tx),
            _ => Ok(()),
        }
    }

    /// Counts anew what only a dataset has whose count nobody vouches for: those of old pools may be wrong (OpenZFS: `DS_UNIQUE_IS_ACCURATE`).
    fn make_unique_accurate(&self, dataset: &Dataset, tx: &Tx) -> Result<(), DslError> {
        let phys = dataset.phys();
        if phys.ds_flags & ds_flags::UNIQUE_ACCURATE != 0 {
            return Ok(());
        }
        let before = match phys.ds_prev_snap_obj {
            0 => 0,
            object => self.tree.dataset(object)?.referenced(),
        };
        dataset.recalculate_unique(&self.tree.meta, before, tx)
    }

    /// Space limits must be possible (OpenZFS: the `_check` functions of quota and reservation).
    fn check_limits(&self, dataset: &Dataset, checked: &[Setting]) -> Result<(), DslError> {
        let dir = &dataset.dir;
        for (prop, text) in checked {
            let Prop::Native(desc) = prop else { continue };
            let Parsed::Number(number) = desc.parse(text)? else { continue };
            let keeps_to_other = match desc.name {
                "quota" => number == 0 || number >= dir.reserved(),
                "refquota" => number == 0 || number >= dataset.reserved(),
                "reservation" => dir.quota() == 0 || number <= dir.quota(),
                "refreservation" => {
                    let refquota = dataset.refquota.load(Ordering::Relaxed);
                    refquota == 0 || number <= refquota
                }
                _ => true,
            };
            if !keeps_to_other || !self.has_room(dataset, desc.name, number) {
                return Err(DslError::NoSpace);
            }
        }
        Ok(())
    }

    /// True when a limit lets a dataset have what it has, and what it is to keep is there; true for other properties.
    fn has_room(&self, dataset: &Dataset, name: &str, number: u64) -> bool {
        let dir = &dataset.dir;
        let available = || dir.available(self.space.pool_bytes(false), None);
        match name {
            "quota" => number == 0 || number >= dir.used(),
            "refquota" => number == 0 || number >= dataset.referenced(),
            "reservation" => {
                let more = number.max(dir.used()) - dir.used().max(dir.reserved()).min(number.max(dir.used()));
                more <= dir.parent().map_or_else(available, |parent| parent.available(self.space.pool_bytes(false), None))
            }
            "refreservation" => number.max(dataset.unique()).saturating_sub(dataset.unique().max(dataset.reserved())) <= available(),
            _ => true,
        }
    }

    /// Checks the space that a new dataset wants kept (OpenZFS: `dsl_dir_set_reservation_check`, `dsl_dataset_set_refreservation_check`).
    pub(super) fn check_reserved(&self, parent: &Dir, checked: &[Setting]) -> Result<(), DslError> {
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
                Parsed::Number(bytes) if bytes > parent.available(self.space.pool_bytes(false), None) => return Err(DslError::NoSpace),
                _ => {}
            }
        }
        Ok(())
    }

    /// The dataset and its new properties, after a look that they are possible.
    pub(super) fn check_change(&self, object: u64, properties: &[(String, String)]) -> Result<(Arc<Dataset>, Vec<Setting>), DslError> {
        let dataset = self.tree.dataset(object)?;
        if dataset.is_snapshot {
            let checked = self.check_snapshot_props(properties)?;
            return Ok((dataset, checked));
        }
        let checked = self.check_props(properties, self.tree.kind_of(&dataset)?, false)?;
        self.check_location(&dataset, &checked)?;
        self.check_limits(&dataset, &checked)?;
        Ok((dataset, checked))
    }

    /// An encryption root has a place that its key comes from, nothing else has one; what is encrypted below one is not told so either
    /// (OpenZFS: `dsl_crypto_can_set_keylocation`).
    fn check_location(&self, dataset: &Dataset, checked: &[Setting]) -> Result<(), DslError> {
        let Some((_, text)) = checked.iter().find(|(prop, _)| prop.name() == "keylocation") else { return Ok(()) };
        let is_possible = match keys::facts_of(&self.tree.meta, &dataset.dir)? {
            None => text == "none",
            Some(facts) => facts.root == dataset.dir.object && text != "none",
        };
        if is_possible { Ok(()) } else { Err(DslError::BadValue) }
    }

    /// Sets properties that were checked, of a dataset or snapshot.
    pub(super) fn change(&self, dataset: &Arc<Dataset>, checked: &[Setting], tx: &Tx) -> Result<(), DslError> {
        if dataset.is_snapshot {
            self.store_snapshot_props(dataset, checked, tx)?;
        } else {
            self.store_props(dataset, checked, tx)?;
            self.tree.refresh_props(&dataset.dir)?;
        }
        for (prop, text) in checked {
            self.tree.log("set", dataset.object, format!("{}={text}", prop.name()), tx)?;
        }
        Ok(())
    }

    // ---- received values ----

    /// The received properties that can be had, each with the value that is stored; and the others.
    pub(super) fn check_received(&self, object: u64, properties: &[(String, ReceivedValue)]) -> Result<Received, DslError> {
        let dataset = self.tree.dataset(object)?;
        let applies = match (dataset.is_snapshot, self.tree.kind_of(&dataset)?) {
            (true, _) => table::SNAPSHOT,
            (false, ObjsetType::ZVOL) => table::VOLUME,
            (false, _) => table::FILESYSTEM,
        };
        let (mut taken, mut refused) = (Vec::new(), Vec::new());
        for (name, value) in properties {
            match self.received_value(name, value, applies) {
                Ok(Some((prop, value))) if self.can_receive(&dataset, &prop, &value)? => taken.push((prop, value)),
                Ok(Some(_)) => refused.push((name.clone(), DslError::NoSpace)),
                Ok(None) => {}
                Err(error) => refused.push((name.clone(), error)),
            }
        }
        Ok((dataset, taken, refused))
    }

    /// False for a limit that would count, as nothing is set here, and cannot be.
    fn can_receive(&self, dataset: &Dataset, prop: &Prop, value: &Value) -> Result<bool, DslError> {
        match value.as_u64() {
            Some(number) if LIMITS.contains(&prop.name()) && !self.has_room(dataset, prop.name(), number) => {
                Ok(self.tree.meta.zap(dataset.dir.phys().dd_props_zapobj)?.contains(prop.name())?)
            }
            _ => Ok(true),
        }
    }

    /// A received property as it is stored; None for one that the object set has itself.
    fn received_value(&self, name: &str, value: &ReceivedValue, applies: u8) -> Result<Option<(Prop, Value)>, DslError> {
        let prop = table::find(name)?;
        if let Prop::Native(desc) = &prop {
            if table::in_object_set(desc.name) {
                return Ok(None);
            }
            if desc.applies & applies == 0 || applies == table::SNAPSHOT {
                return Err(DslError::BadProperty);
            }
            if desc.attr == Attr::ReadOnly {
                return Err(DslError::ReadOnlyProperty);
            }
            let parsed = match value {
                ReceivedValue::Number(u64::MAX) if desc.kind == Kind::CountOrNone => Parsed::Number(u64::MAX),
                // A limit that was removed there is removed here.
                ReceivedValue::Number(0) if desc.kind == Kind::BytesOrNone => Parsed::Number(0),
                ReceivedValue::Number(number) if !desc.kind.is_text() => match desc.word(*number) {
                    Some(word) => desc.parse(word)?,
                    None => desc.parse(&number.to_string())?,
                },
                ReceivedValue::Text(text) => desc.parse(text)?,
                ReceivedValue::Number(_) => return Err(DslError::BadValue),
            };
            self.check_supported(desc.name, &parsed)?;
            return Ok(Some(match parsed {
                Parsed::Number(number) => (prop, Value::U64(vec![number])),
                Parsed::Text(text) => (prop, Value::from_str_with_nul(&text)),
            }));
        }
        match value {
            ReceivedValue::Text(text) => {
                self.check_users_value(text)?;
                Ok(Some((prop, Value::from_str_with_nul(text))))
            }
            _ => Err(DslError::BadValue),
        }
    }

    /// Replaces the received properties of a dataset or snapshot: they count where nothing is set locally (OpenZFS: `zfs_set_prop_nvlist` with
    /// `ZPROP_SRC_RECEIVED`). Those of the names `inherited` are inherited where nothing is set locally, and what was received waits beneath;
    /// those of the names `kept` stay as they were received before.
    pub(super) fn receive(
        &self,
        dataset: &Arc<Dataset>,
        (taken, inherited, kept): (&[(Prop, Value)], &[String], &[String]),
        tx: &Tx,
    ) -> Result<(), DslError> {
        let zap = self.tree.meta.zap(self.props_table(dataset, tx)?)?;
        if self.tree.meta.services.version() < spa_version::RECVD_PROPS {
            return self.receive_as_set(dataset, (&zap, taken), tx);
        }
        zap.update_u64(HAS_RECEIVED, 0, tx)?;
        let mut old = received_names(&zap)?;
        old.retain(|name| !kept.contains(name));
        old.iter().try_for_each(|name| zap.remove(format!("{name}{RECEIVED}"), tx))?;
        for (prop, value) in taken {
            zap.update(format!("{}{RECEIVED}", prop.name()), value, tx)?;
        }
        for name in inherited {
            if !zap.contains(name)? {
                zap.update_u64(format!("{name}$inherit"), 0, tx)?;
            }
        }
        if dataset.is_snapshot {
            return Ok(());
        }
        // Also those that came before and do not now: they count no more.
        let is_changed = |name: &str| old.iter().any(|known| known == name) || taken.iter().any(|(prop, _)| prop.name() == name);
        for name in LIMITS.into_iter().filter(|name| is_changed(name)) {
            if !zap.contains(name)? {
                let (number, _) = self.tree.stored.number(dataset, name)?;
                self.take_effect(dataset, name, number, tx)?;
            }
        }
        self.tree.refresh_props(&dataset.dir)
    }

    /// Sets what was received, in pools that do not tell it apart (OpenZFS: `dsl_prop_set_sync_impl` before version 22).
    fn receive_as_set(&self, dataset: &Arc<Dataset>, (zap, taken): (&Zap, &[(Prop, Value)]), tx: &Tx) -> Result<(), DslError> {
        for (prop, value) in taken {
            store_local(zap, prop, value, tx)?;
            if let (Prop::Native(desc), Some(number), false) = (prop, value.as_u64(), dataset.is_snapshot) {
                self.take_effect(dataset, desc.name, number, tx)?;
            }
        }
        if dataset.is_snapshot { Ok(()) } else { self.tree.refresh_props(&dataset.dir) }
    }

    /// The table of a dataset's or snapshot's own properties, made when there is none.
    fn props_table(&self, dataset: &Dataset, tx: &Tx) -> Result<u64, DslError> {
        match (dataset.is_snapshot, dataset.phys().ds_props_obj) {
            (false, _) => Ok(dataset.dir.phys().dd_props_zapobj),
            (true, 0) => {
                let object = self.tree.meta.create_zap(ObjectType::DSL_PROPS, tx)?;
                dataset.update(tx, |phys| phys.ds_props_obj = object)?;
                Ok(object)
            }
            (true, object) => Ok(object),
        }
    }

    /// Removes a local value (OpenZFS: `dsl_prop_set_sync_impl` with `ZPROP_SRC_INHERITED`), or goes back to the received one (with
    /// `ZPROP_SRC_NONE`).
    pub(super) fn inherit(&self, dataset: &Arc<Dataset>, (prop, to_received): (&Prop, bool), tx: &Tx) -> Result<(), DslError> {
        let table = if dataset.is_snapshot { dataset.phys().ds_props_obj } else { dataset.dir.phys().dd_props_zapobj };
        if table != 0 {
            let zap = self.tree.meta.zap(table)?;
            remove_if_there(&zap, prop.name(), tx)?;
            remove_if_there(&zap, &format!("{}$iuv", prop.name()), tx)?;
            if to_received {
                remove_if_there(&zap, &format!("{}$inherit", prop.name()), tx)?;
            } else if zap.contains(HAS_RECEIVED)? {
                zap.update_u64(format!("{}$inherit", prop.name()), 0, tx)?;
            }
        }
        if !dataset.is_snapshot {
            if let Prop::Native(desc) = prop {
                let number = self.tree.stored.number(dataset, desc.name).map_or(0, |(number, _)| number);
                self.take_effect(dataset, desc.name, number, tx)?;
            }
            self.tree.refresh_props(&dataset.dir)?;
        }
        self.tree.log("inherit", dataset.object, format!("{}={}", prop.name(), self.counts_now(dataset, prop)), tx)
    }

    /// Value of a property that counts for a dataset, as the history has it: numbers as they are stored (OpenZFS: `dsl_prop_set_sync_impl`).
    fn counts_now(&self, dataset: &Dataset, prop: &Prop) -> String {
        match (self.tree.stored.find(dataset, prop), prop) {
            (Ok(Some((Value::U64(numbers), _))), _) => numbers.first().map(u64::to_string).unwrap_or_default(),
            (Ok(Some((value, _))), _) => value.as_text().unwrap_or_default().to_string(),
            (_, Prop::Native(desc)) if !matches!(desc.kind, Kind::Text(_)) => desc.default.to_string(),
            _ => String::new(),
        }
    }
}

/// The property of this name, when it can be inherited or, with `to_received`, go back to what was received (OpenZFS: `zfs_do_inherit`). An
/// encryption root without the place of its key is of no use, received or not.
pub(super) fn inheritable(name: &str, to_received: bool) -> Result<Prop, DslError> {
    let prop = table::find(name)?;
    let Prop::Native(desc) = &prop else { return Ok(prop) };
    match desc.attr {
        Attr::ReadOnly => Err(DslError::ReadOnlyProperty),
        Attr::OneTime | Attr::OneTimeDefault => Err(DslError::NotInherited),
        Attr::Default if !to_received || matches!(desc.name, "keylocation" | "volsize" | "version") => Err(DslError::NotInherited),
        _ => Ok(prop),
    }
}

/// Removes an entry of a table that may lack it.
pub(super) fn remove_if_there(zap: &Zap, name: &str, tx: &Tx) -> Result<(), DslError> {
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
