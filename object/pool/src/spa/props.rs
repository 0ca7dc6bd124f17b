//! Pool properties that are stored in the pool (OpenZFS: `zpool_prop.c`, `spa_sync_props`): numbers and the users' own texts in one ZAP, the
//! comment and the compatibility list in the configuration. What OpenZFS does not know is kept as a property of a user, which it shows
//! and leaves alone.

use super::features::{DIRECTORY, create_linked_zap};
use super::latency::target_of;
use crate::PoolError;
use dmu::{Objset, Tx};
use ondisk::{ObjectId, ObjectType, Uberblock};
use std::sync::Arc;
use zap::Zap;
use zio::{FailMode, LatencyTarget};

pub use dsl::prop::table::{USER_NAME_BYTES_MAX, USER_VALUE_BYTES_MAX};

/// Longest comment (OpenZFS: `ZPROP_MAX_COMMENT`).
pub(super) const COMMENT_BYTES_MAX: usize = 32;

/// A numeric property: its name, the names of its values in order, and its default.
pub(super) struct Numeric {
    pub name: &'static str,
    pub values: &'static [&'static str],
    pub default: u64,
}

const SWITCH: &[&str] = &["off", "on"];
pub(super) const NUMERIC: &[Numeric] = &[
    Numeric { name: "autoreplace", values: SWITCH, default: 0 },
    Numeric { name: "delegation", values: SWITCH, default: 1 },
    Numeric { name: "listsnapshots", values: SWITCH, default: 0 },
    Numeric { name: "autoexpand", values: SWITCH, default: 0 },
    Numeric { name: "failmode", values: &["wait", "continue", "panic"], default: 0 },
    Numeric { name: MULTIHOST, values: SWITCH, default: 0 },
    Numeric { name: "autotrim", values: SWITCH, default: 0 },
];

/// Name of the property that protects against a second host.
pub(crate) const MULTIHOST: &str = "multihost";

/// Name of the property that says which dataset to boot from.
pub(crate) const BOOTFS: &str = "bootfs";

/// log2 of the sectors of vdevs that are added; a number in the pool's properties.
pub(super) const ASHIFT: &str = "ashift";

/// Name of the property that limits what the tables of deduplication take.
pub(crate) const TABLE_QUOTA: &str = "dedup_table_quota";

/// Number by which that property is stored: 0 for `none`, the largest one for `auto`, else bytes; None for another text (OpenZFS:
/// `zprop_parse_value`).
pub fn dedup_table_quota(text: &str) -> Option<u64> {
    match text {
        "none" => Some(0),
        "auto" => Some(u64::MAX),
        bytes => dsl::prop::table::size(bytes).ok().filter(|bytes| *bytes != 0),
    }
}

/// Limit that is stored in a pool; without one as for `auto`.
pub(crate) fn stored_table_quota(mos: &Arc<Objset>) -> Result<u64, PoolError> {
    let stored = match props_zap(mos)? {
        Some(zap) => zap.try_lookup_u64(TABLE_QUOTA)?,
        None => None,
    };
    Ok(stored.unwrap_or(u64::MAX))
}

/// A property of our own: stored as one that users make up, with this before its name.
pub(super) const OWN_PREFIX: &str = "zirconia:";
pub(super) const LATENCY_TARGET: &str = "background_latency_target";

/// A property of our own.
pub(super) struct Own {
    pub name: &'static str,
    pub default: &'static str,
    pub is_valid: fn(&str) -> bool,
}

const fn switch(name: &'static str) -> Own {
    Own { name, default: "off", is_valid: |text| matches!(text, "on" | "off") }
}

pub(super) const OWN: &[Own] = &[
    Own { name: LATENCY_TARGET, default: "auto", is_valid: |text| target_of(text).is_some() },
    Own { name: PROVIDER, default: "off", is_valid: |_| true },
    switch("zia_compress"),
    switch("zia_decompress"),
    switch("zia_checksum"),
    switch("zia_raidz1_gen"),
    switch("zia_raidz2_gen"),
    switch("zia_raidz3_gen"),
    switch("zia_raidz1_rec"),
    switch("zia_raidz2_rec"),
    switch("zia_raidz3_rec"),
    switch("zia_file_write"),
    switch("zia_disk_write"),
    Own { name: "zia_verify", default: "100", is_valid: is_percent },
    Own { name: "zia_mode", default: "offload", is_valid: |text| matches!(text, "offload" | "per-op") },
];

/// One of our own properties, by its name or that under which it is stored.
pub(super) fn own(name: &str) -> Option<&'static Own> {
    let name = name.strip_prefix(OWN_PREFIX).unwrap_or(name);
    OWN.iter().find(|own| own.name == name)
}

/// A stored property as `zpool get` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolProp {
    /// Name of the property.
    pub name: String,
    /// Value, `-` for an empty text.
    pub value: String,
    /// True when the property was set; otherwise it has its default.
    pub is_local: bool,
}

/// True for a property that [`crate::Pool::props`] reads from the pool's property object.
pub fn is_stored_prop(name: &str) -> bool {
    name == TABLE_QUOTA || OWN.iter().any(|own| own.name == name) || NUMERIC.iter().any(|numeric| numeric.name == name)
}

/// Words that a property can be set to; None for one that takes numbers or texts.
pub fn prop_words(name: &str) -> Option<&'static [&'static str]> {
    numeric(name).map(|numeric| numeric.values)
}

/// False for a value that one of our own properties does not take.
pub fn is_own_value(name: &str, value: &str) -> bool {
    own(name).is_none_or(|own| (own.is_valid)(value))
}

/// A numeric property by its name, or the short one that `listsnapshots` has.
pub(super) fn numeric(name: &str) -> Option<&'static Numeric> {
    NUMERIC.iter().find(|numeric| numeric.name == name || name == "listsnaps" && numeric.name == "listsnapshots")
}

/// The properties that [`crate::Pool::set_prop`] sets, those that users make up apart.
pub fn settable_props() -> impl Iterator<Item = &'static str> {
    let texts = ["comment", "compatibility", ASHIFT, BOOTFS, TABLE_QUOTA];
    NUMERIC.iter().map(|numeric| numeric.name).chain(OWN.iter().map(|own| own.name)).chain(texts)
}

/// True for the name of a property that users make up: with a colon, of small letters, digits and `:-._` (OpenZFS: `zfs_prop_user`).
pub fn is_user_prop(name: &str) -> bool {
    let is_allowed = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || ":-._".contains(letter);
    name.contains(':') && name.chars().all(is_allowed)
}

pub(crate) fn props_zap(mos: &Arc<Objset>) -> Result<Option<Zap>, PoolError> {
    let object = Zap::hold(mos, DIRECTORY)?.try_lookup_u64("pool_props")?;
    Ok(match object {
        Some(object) => Some(Zap::hold(mos, ObjectId(object))?),
        None => None,
    })
}

/// The failure mode that a pool asks for.
pub(crate) fn fail_mode(mos: &Arc<Objset>) -> Result<FailMode, PoolError> {
    let stored = match props_zap(mos)? {
        Some(zap) => zap.try_lookup_u64("failmode")?,
        None => None,
    };
    Ok(mode_of(stored.unwrap_or(0)))
}

/// Latency promise that the pool's background work keeps: the property `background_latency_target`.
pub(crate) fn latency_target(mos: &Arc<Objset>) -> Result<LatencyTarget, PoolError> {
    let stored = own_text(mos, LATENCY_TARGET)?;
    // A word of a later release changes nothing.
    Ok(stored.and_then(|text| target_of(&text)).unwrap_or_default())
}

/// The text of one of our own properties, if it is set.
pub(crate) fn own_text(mos: &Arc<Objset>, name: &str) -> Result<Option<String>, PoolError> {
    match props_zap(mos)? {
        Some(zap) => text_of(&zap, &format!("{OWN_PREFIX}{name}")),
        None => Ok(None),
    }
}

pub(super) fn text_of(zap: &Zap, name: &str) -> Result<Option<String>, PoolError> {
    Ok(zap.try_lookup(name)?.and_then(|value| value.as_text().map(str::to_string)))
}

/// True when a switch is on; what cannot be read is off.
pub(crate) fn is_on(mos: &Arc<Objset>, name: &str) -> bool {
    matches!(props_zap(mos).map(|zap| zap.map(|zap| zap.try_lookup_u64(name))), Ok(Some(Ok(Some(1)))))
}

/// True when the pool is protected against a second host; its uberblock tells where the property cannot be read.
pub(crate) fn is_multihost(mos: &Arc<Objset>, ub: &Uberblock) -> bool {
    let read = || -> Result<Option<u64>, PoolError> {
        match props_zap(mos)? {
            Some(zap) => Ok(zap.try_lookup_u64(MULTIHOST)?),
            None => Ok(None),
        }
    };
    read().map_or(ub.ub_mmp_delay != 0, |stored| stored == Some(1))
}

pub(super) fn mode_of(number: u64) -> FailMode {
    match number {
        1 => FailMode::Continue,
        2 => FailMode::Panic,
        _ => FailMode::Wait,
    }
}

/// Puts a value in the pool's property object; an empty text removes the property.
pub(super) fn store(mos: &Arc<Objset>, name: &str, value: &zap::Value, tx: &Tx) -> Result<(), PoolError> {
    let zap = match props_zap(mos)? {
        Some(zap) => zap,
        None => Zap::hold(mos, create_linked_zap(mos, "pool_props", ObjectType::POOL_PROPS, tx)?)?,
    };
    put_in(&zap, name, value, tx)
}

/// Puts a named value in a ZAP; an empty text removes it.
pub(crate) fn put(mos: &Arc<Objset>, object: ObjectId, (name, value): (&str, &zap::Value), tx: &Tx) -> Result<(), PoolError> {
    put_in(&Zap::hold(mos, object)?, name, value, tx)
}

fn put_in(zap: &Zap, name: &str, value: &zap::Value, tx: &Tx) -> Result<(), PoolError> {
    if value.as_text() != Some("") {
        return Ok(zap.update(name, value, tx)?);
    }
    if zap.contains(name)? { Ok(zap.remove(name, tx)?) } else { Ok(()) }
}

/// The name of the property with the provider's name.
pub(crate) const PROVIDER: &str = "zia_provider";

/// True for a value of `zia_verify`: percent of the blocks, with at most two decimals.
pub(crate) fn is_percent(text: &str) -> bool {
    let is_plain = text.len() <= 6 && text.chars().all(|letter| letter.is_ascii_digit() || letter == '.');
    is_plain && text.parse::<f64>().is_ok_and(|percent| (0.0..=100.0).contains(&percent))
}

/// True for the word by which a provider is let go.
pub(crate) fn is_none(provider: &str) -> bool {
    matches!(provider, "" | "off" | "none" | "NULL")
}

/// True when the property, by either of its names, says which provider the pool's stages run on.
pub(crate) fn is_provider_prop(name: &str) -> bool {
    own(name).is_some_and(|own| own.name == PROVIDER)
}
