//! Properties of vdevs that are set (OpenZFS: `vdev_prop_set`, `vdev_prop_get`): in the ZAP of the root, of a top-level vdev or of a leaf.

use super::Spa;
use super::props::{self, USER_NAME_BYTES_MAX, USER_VALUE_BYTES_MAX, is_user_prop};
use super::services::dsl_error;
use crate::PoolError;
use dmu::Objset;
use dsl::DslPool;
use ondisk::names::top_zap;
use ondisk::{Guid, ObjectId};
use std::collections::BTreeMap;
use std::sync::Arc;
use vdev::VdevTree;
use zap::Zap;

/// Names of the numbers that say how many errors (`_n`) within how many seconds (`_t`) are too many.
const NUMBERS: [&str; 6] = ["checksum_n", "checksum_t", "io_n", "io_t", "slow_io_n", "slow_io_t"];
const COMMENT: &str = "comment";
/// Name of the switch that lets slow children of a top-level vdev sit out.
pub(crate) const AUTOSIT: &str = "autosit";
/// Name of the switch by which new blocks lie on a top-level vdev. What counts is the tree; this says what somebody wished (OpenZFS:
/// `vdev_prop_allocating_off`).
pub(crate) const ALLOCATING: &str = "allocating";

/// Properties that are set, by vdev and name. Numbers are decimal, and `none` for one that is set to be none; switches are there when they are `on`.
pub type VdevProps = BTreeMap<Guid, BTreeMap<String, String>>;

/// True for a property of vdevs that [`crate::Pool::set_vdev_prop`] sets.
pub fn is_settable_vdev_prop(name: &str) -> bool {
    // It looks like a user's own, and says which blocks the vdev is for.
    let is_own = name == top_zap::ALLOCATION_BIAS;
    NUMBERS.contains(&name) || name == COMMENT || name == AUTOSIT || (is_user_prop(name) && !is_own)
}

/// The ZAPs of vdevs, by guid; a top-level vdev that is a leaf has its properties in the one that it has as top-level vdev.
fn zaps(tree: &VdevTree) -> impl Iterator<Item = (Guid, ObjectId)> {
    let leaves = tree.leaves.iter().map(|leaf| (leaf.guid, leaf.zap));
    let tops = tree.tops.iter().map(|top| (top.guid, top.zap));
    leaves.chain(tops).chain([(tree.guid, tree.root_zap)]).filter(|(_, zap)| zap.0 != 0)
}

fn stored(mos: &Arc<Objset>, object: ObjectId) -> Result<BTreeMap<String, String>, PoolError> {
    let zap = Zap::hold(mos, object)?;
    let mut names = Vec::new();
    zap.for_each(|entry| {
        names.push(String::from_utf8_lossy(&entry.name).into_owned());
        Ok(())
    })?;
    let mut found = BTreeMap::new();
    for name in names.into_iter().filter(|name| is_settable_vdev_prop(name)) {
        let value = match zap.try_lookup(&name)? {
            Some(zap::Value::U64(numbers)) if NUMBERS.contains(&name.as_str()) => match numbers.first() {
                Some(&u64::MAX) | None => "none".to_string(),
                Some(number) => number.to_string(),
            },
            Some(zap::Value::U64(numbers)) if name == AUTOSIT => match numbers.first() {
                Some(1) => "on".to_string(),
                _ => continue,
            },
            // Other numbers with a colon in their name are the engine's own.
            Some(value) => match value.as_text() {
                Some(text) => text.to_string(),
                None => continue,
            },
            None => continue,
        };
        found.insert(name, value);
    }
    Ok(found)
}

fn encode(name: &str, value: &str) -> Result<zap::Value, PoolError> {
    if NUMBERS.contains(&name) {
        let number = if value == "none" { u64::MAX } else { value.parse().map_err(|_| PoolError::BadValue)? };
        return Ok(zap::Value::U64(vec![number]));
    }
    if name == AUTOSIT {
        return match value {
            "on" => Ok(zap::Value::U64(vec![1])),
            "off" | "" => Ok(zap::Value::U8(Vec::new())),
            _ => Err(PoolError::BadValue),
        };
    }
    if name.len() > USER_NAME_BYTES_MAX || value.len() > USER_VALUE_BYTES_MAX {
        return Err(PoolError::BadValue);
    }
    Ok(if value.is_empty() { zap::Value::U8(Vec::new()) } else { zap::Value::from_str_with_nul(value) })
}

impl Spa {
    /// The properties of vdevs that are set.
    pub fn vdev_props(&self) -> Result<VdevProps, PoolError> {
        let tree = self.tree();
        let mut all = VdevProps::new();
        for (guid, object) in zaps(&tree) {
            let found = stored(&self.mos, object)?;
            if !found.is_empty() {
                all.entry(guid).or_default().extend(found);
            }
        }
        Ok(all)
    }

    /// Notes somebody's wish whether new blocks lie on a top-level vdev, where OpenZFS looks for it. One without a place for properties has none.
    ///
    /// # Errors
    /// Those of writing.
    pub fn note_allocating(&self, guid: Guid, is_on: bool) -> Result<(), PoolError> {
        let object = self.tree().tops.iter().find(|top| top.is_concrete() && top.guid == guid).map_or(ObjectId(0), |top| top.zap);
        if object.0 == 0 {
            return Ok(());
        }
        let (mos, value) = (self.mos.clone(), zap::Value::U64(vec![u64::from(is_on)]));
        let set = move |_: &Arc<DslPool>, (), tx: &dmu::Tx| props::put(&mos, object, (ALLOCATING, &value), tx).map_err(dsl_error);
        Ok(self.dsl.sync_task(|_, _| Ok(()), set)?)
    }

    /// Sets a property of a vdev and waits until it is on disk; an empty text removes it.
    ///
    /// # Errors
    /// `BadProperty` and `BadValue`; `NoSuchDevice` for a vdev that cannot have properties (it is being replaced, or the pool lacks the
    /// feature `vdev_zaps_v2` for the root); `ReadOnly` for a pool that was imported so.
    pub fn set_vdev_prop(&self, guid: Guid, name: &str, value: &str) -> Result<(), PoolError> {
        self.check_writeable()?;
        if !is_settable_vdev_prop(name) {
            return Err(PoolError::BadProperty);
        }
        let encoded = encode(name, value)?;
        let tree = self.tree();
        let (_, object) = zaps(&tree).filter(|(own, _)| *own == guid).last().ok_or(PoolError::NoSuchDevice)?;
        let (mos, services, name) = (self.mos.clone(), self.services.clone(), name.to_string());
        let text = format!("vdev_guid: {}: {name}={value}", guid.0);
        let set = move |_: &Arc<DslPool>, (), tx: &dmu::Tx| {
            props::put(&mos, object, (&name, &encoded), tx).map_err(dsl_error)?;
            services.log_internal("vdev set", &text, tx);
            Ok(())
        };
        Ok(self.dsl.sync_task(|_, _| Ok(()), set)?)
    }
}
