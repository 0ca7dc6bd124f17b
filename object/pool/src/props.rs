//! Pool properties that are stored in the pool (OpenZFS: `zpool_prop.c`, `spa_sync_props`): numbers and the users' own texts in one ZAP, the
//! comment and the compatibility list in the configuration. What OpenZFS does not know is kept as a property of a user, which it shows
//! and leaves alone.

use crate::features::{DIRECTORY, create_linked_zap};
use crate::queues::target_of;
use crate::{Pool, PoolError, bootfs, zia};
use dmu::{Objset, Tx};
use dsl::{DslError, DslPool};
use ondisk::{ObjectId, ObjectType};
use std::collections::BTreeMap;
use std::sync::Arc;
use zap::Zap;
use zio::{FailMode, LatencyTarget};

/// Longest comment (OpenZFS: `ZPROP_MAX_COMMENT`).
const COMMENT_BYTES_MAX: usize = 32;

/// A numeric property: its name, the names of its values in order, and its default.
struct Numeric {
    name: &'static str,
    values: &'static [&'static str],
    default: u64,
}

const SWITCH: &[&str] = &["off", "on"];
const NUMERIC: &[Numeric] = &[
    Numeric { name: "autoreplace", values: SWITCH, default: 0 },
    Numeric { name: "delegation", values: SWITCH, default: 1 },
    Numeric { name: "listsnapshots", values: SWITCH, default: 0 },
    Numeric { name: "autoexpand", values: SWITCH, default: 0 },
    Numeric { name: "failmode", values: &["wait", "continue", "panic"], default: 0 },
    Numeric { name: "multihost", values: SWITCH, default: 0 },
    Numeric { name: "autotrim", values: SWITCH, default: 0 },
];

/// log2 of the sectors of vdevs that are added; a number in the pool's properties.
const ASHIFT: &str = "ashift";

/// A property of our own: stored as one that users make up, with this before its name.
const OWN_PREFIX: &str = "zirconia:";
const LATENCY_TARGET: &str = "background_latency_target";

/// A property of our own.
struct Own {
    name: &'static str,
    default: &'static str,
    is_valid: fn(&str) -> bool,
}

const fn switch(name: &'static str) -> Own {
    Own { name, default: "off", is_valid: |text| matches!(text, "on" | "off") }
}

const OWN: &[Own] = &[
    Own { name: LATENCY_TARGET, default: "auto", is_valid: |text| target_of(text).is_some() },
    Own { name: zia::PROVIDER, default: "-", is_valid: |_| true },
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
    Own { name: "zia_verify", default: "100", is_valid: zia::is_percent },
    Own { name: "zia_mode", default: "offload", is_valid: |text| matches!(text, "offload" | "per-op") },
];

/// One of our own properties, by its name or that under which it is stored.
fn own(name: &str) -> Option<&'static Own> {
    let name = name.strip_prefix(OWN_PREFIX).unwrap_or(name);
    OWN.iter().find(|own| own.name == name)
}
/// Longest name of a user's property (OpenZFS: `ZAP_MAXNAMELEN`, with its end), and longest value (`ZAP_MAXVALUELEN`).
pub(crate) const USER_NAME_BYTES_MAX: usize = 255;
pub(crate) const USER_VALUE_BYTES_MAX: usize = 8191;

/// A stored property as `zpool get` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolProp {
    /// Name.
    pub name: String,
    /// Value, `-` for an empty text.
    pub value: String,
    /// It was set; otherwise it is the default.
    pub is_local: bool,
}

/// True for a property that [`Pool::props`] reads from the pool's property object.
pub fn is_stored_prop(name: &str) -> bool {
    OWN.iter().any(|own| own.name == name) || NUMERIC.iter().any(|numeric| numeric.name == name)
}

/// The properties that [`Pool::set_prop`] sets, those that users make up apart.
pub fn settable_props() -> impl Iterator<Item = &'static str> {
    let texts = ["comment", "compatibility", ASHIFT, bootfs::BOOTFS];
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

/// What the pool's background work leaves to others.
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

fn text_of(zap: &Zap, name: &str) -> Result<Option<String>, PoolError> {
    Ok(zap.try_lookup(name)?.and_then(|value| value.as_text().map(str::to_string)))
}

/// True when a switch is on; what cannot be read is off.
pub(crate) fn is_on(mos: &Arc<Objset>, name: &str) -> bool {
    matches!(props_zap(mos).map(|zap| zap.map(|zap| zap.try_lookup_u64(name))), Ok(Some(Ok(Some(1)))))
}

fn mode_of(number: u64) -> FailMode {
    match number {
        1 => FailMode::Continue,
        2 => FailMode::Panic,
        _ => FailMode::Wait,
    }
}

/// Puts a value in the pool's property object; an empty text removes the property.
fn store(mos: &Arc<Objset>, name: &str, value: &zap::Value, tx: &Tx) -> Result<(), PoolError> {
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

impl Pool {
    /// The stored properties, those that users made up last.
    pub fn props(&self) -> Result<Vec<PoolProp>, PoolError> {
        let zap = props_zap(self.mos())?;
        let mut props = Vec::new();
        for numeric in NUMERIC {
            let stored = match &zap {
                Some(zap) => zap.try_lookup_u64(numeric.name)?,
                None => None,
            };
            let value = numeric.values.get(stored.unwrap_or(numeric.default) as usize).copied().unwrap_or("-");
            props.push(PoolProp { name: numeric.name.to_string(), value: value.to_string(), is_local: stored.is_some() });
        }
        let ashift = match &zap {
            Some(zap) => zap.try_lookup_u64(ASHIFT)?,
            None => None,
        };
        if let Some(ashift) = ashift {
            props.push(PoolProp { name: ASHIFT.to_string(), value: ashift.to_string(), is_local: ashift != 0 });
        }
        if let Some(name) = self.boot_dataset()? {
            props.push(PoolProp { name: bootfs::BOOTFS.to_string(), value: name, is_local: true });
        }
        let facts = self.syncer.config.lock().facts.clone();
        for (name, text) in [("comment", facts.comment), ("compatibility", facts.compatibility)] {
            let is_local = text.is_some();
            let unset = if name == "compatibility" { "off" } else { "-" };
            props.push(PoolProp { name: name.to_string(), value: text.unwrap_or_else(|| unset.to_string()), is_local });
        }
        let mut users = BTreeMap::new();
        if let Some(zap) = &zap {
            let mut names = Vec::new();
            zap.for_each(|entry| {
                names.push(String::from_utf8_lossy(&entry.name).into_owned());
                Ok(())
            })?;
            for name in names.into_iter().filter(|name| is_user_prop(name)) {
                if let Some(text) = text_of(zap, &name)? {
                    users.insert(name, text);
                }
            }
        }
        for own in OWN {
            let stored = users.remove(&format!("{OWN_PREFIX}{}", own.name));
            let is_local = stored.is_some();
            props.push(PoolProp { name: own.name.to_string(), value: stored.unwrap_or_else(|| own.default.to_string()), is_local });
        }
        props.extend(users.into_iter().map(|(name, value)| PoolProp { name, value, is_local: true }));
        Ok(props)
    }

    /// log2 of the sectors that vdevs get which are added without a wish; None when nobody chose one.
    pub fn ashift_prop(&self) -> Result<Option<u32>, PoolError> {
        let stored = match props_zap(self.mos())? {
            Some(zap) => zap.try_lookup_u64(ASHIFT)?,
            None => None,
        };
        Ok(stored.and_then(|ashift| u32::try_from(ashift).ok()).filter(|ashift| *ashift != 0))
    }

    /// True when a stored property that can be on or off is on.
    pub fn has_switch(&self, name: &'static str) -> Result<bool, PoolError> {
        let stored = match props_zap(self.mos())? {
            Some(zap) => zap.try_lookup_u64(name)?,
            None => None,
        };
        let default = NUMERIC.iter().find(|numeric| numeric.name == name).map_or(0, |numeric| numeric.default);
        Ok(stored.unwrap_or(default) == 1)
    }

    /// Sets a stored property and waits until it is on disk.
    ///
    /// # Errors
    /// `BadProperty` and `BadValue`; `ReadOnly` for a pool that was imported so.
    pub fn set_prop(&self, name: &str, value: &str) -> Result<(), PoolError> {
        self.check_writeable()?;
        if name == "comment" || name == "compatibility" {
            return self.set_text(name == "comment", value);
        }
        if let Some(own) = own(name) {
            return self.set_own_prop(own, value);
        }
        if name == bootfs::BOOTFS {
            return self.set_boot_dataset(value);
        }
        if name == ASHIFT {
            let is_valid = |ashift: &u64| *ashift == 0 || (u64::from(vdev::ASHIFT_MIN)..=u64::from(vdev::ASHIFT_MAX)).contains(ashift);
            let ashift = value.parse().ok().filter(is_valid).ok_or(PoolError::BadValue)?;
            return self.store_logged(ASHIFT, zap::Value::U64(vec![ashift]), format!("{ASHIFT}={ashift}"));
        }
        if is_user_prop(name) {
            let is_too_long = name.len() > USER_NAME_BYTES_MAX || value.len() > USER_VALUE_BYTES_MAX;
            return if is_too_long { Err(PoolError::BadValue) } else { self.set_own(name, value) };
        }
        let numeric = NUMERIC.iter().find(|numeric| numeric.name == name || (name == "listsnaps" && numeric.name == "listsnapshots"));
        let numeric = numeric.ok_or(PoolError::BadProperty)?;
        let number = numeric.values.iter().position(|known| *known == value).ok_or(PoolError::BadValue)? as u64;
        self.store_logged(numeric.name, zap::Value::U64(vec![number]), format!("{}={number}", numeric.name))?;
        if numeric.name == "autotrim" {
            self.sweeps.set_autotrim(number == 1);
            self.sweeps.spawn();
        }
        if numeric.name == "failmode" {
            let mut config = self.syncer.config.lock();
            config.fail_mode = mode_of(number);
            self.syncer.io.set_view(config.view(&self.syncer.services));
        }
        Ok(())
    }

    /// Sets one of our own properties, and follows it.
    fn set_own_prop(&self, own: &Own, value: &str) -> Result<(), PoolError> {
        if !(own.is_valid)(value) {
            return Err(PoolError::BadValue);
        }
        let is_provider = own.name == zia::PROVIDER;
        if is_provider {
            self.check_provider(value)?;
        }
        let value = if is_provider && zia::is_none(value) { "" } else { value };
        self.set_own(&format!("{OWN_PREFIX}{}", own.name), value)?;
        if let Some(target) = target_of(value).filter(|_| own.name == LATENCY_TARGET) {
            self.zio().tune_queues(|tunables| tunables.latency_target = target);
            return Ok(());
        }
        self.follow_providers()
    }

    /// Stores a text under the name of a user's property.
    fn set_own(&self, name: &str, value: &str) -> Result<(), PoolError> {
        let text = if value.is_empty() { zap::Value::U8(Vec::new()) } else { zap::Value::from_str_with_nul(value) };
        self.store_logged(name, text, format!("{name}={value}"))
    }

    pub(crate) fn store_logged(&self, name: &str, value: zap::Value, text: String) -> Result<(), PoolError> {
        let (mos, services, name) = (self.mos().clone(), self.syncer.services.clone(), name.to_string());
        let set = move |_: &Arc<DslPool>, (), tx: &Tx| {
            store(&mos, &name, &value, tx).map_err(|_| DslError::Unsupported)?;
            services.log_internal("set", &text, tx);
            Ok(())
        };
        Ok(self.dsl().sync_task(|_, _| Ok(()), set)?)
    }

    fn set_text(&self, is_comment: bool, value: &str) -> Result<(), PoolError> {
        if (is_comment && value.len() > COMMENT_BYTES_MAX) || value.chars().any(char::is_control) {
            return Err(PoolError::BadValue);
        }
        let text = (!value.is_empty() && (is_comment || value != "off")).then(|| value.to_string());
        {
            let mut config = self.syncer.config.lock();
            if is_comment {
                config.facts.comment = text;
            } else {
                config.facts.compatibility = text;
            }
            config.dirty = true;
        }
        let name = if is_comment { "comment" } else { "compatibility" };
        self.syncer.services.log_now("set", &format!("{name}={value}"), self.txgs.open_txg());
        self.sync()
    }
}
