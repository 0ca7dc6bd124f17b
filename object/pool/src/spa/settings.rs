//! The pool's stored properties while it is open: read, set, and followed where that needs nobody else.

use super::Spa;
use super::bootfs;
use super::latency::target_of;
use super::props::{
    ASHIFT, BOOTFS, COMMENT_BYTES_MAX, LATENCY_TARGET, MULTIHOST, NUMERIC, OWN, OWN_PREFIX, Own, PROVIDER, PoolProp, TABLE_QUOTA,
    USER_NAME_BYTES_MAX, USER_VALUE_BYTES_MAX, dedup_table_quota, is_none, is_user_prop, mode_of, numeric, own, props_zap, store, text_of,
};
use super::services::dsl_error;
use crate::PoolError;
use dmu::Tx;
use dsl::{DslError, DslPool};
use ondisk::ObjsetType;
use ondisk::names::spa_version;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Part of the engine that is to follow a property that was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follow {
    /// No other part.
    Nobody,
    /// The sweeps: the automatic trim is on, or off.
    Autotrim(bool),
    /// Whoever gives the stages to providers.
    Providers,
    /// Whoever writes heartbeats: they are wanted, or not.
    Multihost(bool),
}

impl Spa {
    /// The stored properties, those that users made up last.
    pub fn props(&self) -> Result<Vec<PoolProp>, PoolError> {
        let zap = props_zap(&self.mos)?;
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
        let quota = match &zap {
            Some(zap) => zap.try_lookup_u64(TABLE_QUOTA)?,
            None => None,
        };
        if let Some(quota) = quota {
            let value = if quota == u64::MAX { "auto".to_string() } else { quota.to_string() };
            props.push(PoolProp { name: TABLE_QUOTA.to_string(), value, is_local: quota != u64::MAX });
        }
        if let Some(name) = self.boot_dataset()? {
            props.push(PoolProp { name: BOOTFS.to_string(), value: name, is_local: true });
        }
        let facts = self.config.lock().facts.clone();
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
        let stored = match props_zap(&self.mos)? {
            Some(zap) => zap.try_lookup_u64(ASHIFT)?,
            None => None,
        };
        Ok(stored.and_then(|ashift| u32::try_from(ashift).ok()).filter(|ashift| *ashift != 0))
    }

    /// True when a stored property that can be on or off is on.
    pub fn has_switch(&self, name: &'static str) -> Result<bool, PoolError> {
        let stored = match props_zap(&self.mos)? {
            Some(zap) => zap.try_lookup_u64(name)?,
            None => None,
        };
        let default = NUMERIC.iter().find(|numeric| numeric.name == name).map_or(0, |numeric| numeric.default);
        Ok(stored.unwrap_or(default) == 1)
    }

    /// Sets a stored property and waits until it is on disk; says who else is to follow it.
    ///
    /// # Errors
    /// `BadProperty` and `BadValue`; `ReadOnly` for a pool that was imported so.
    pub fn set_prop(&self, name: &str, value: &str) -> Result<Follow, PoolError> {
        self.check_writeable()?;
        if name == "comment" || name == "compatibility" {
            return self.set_text(name == "comment", value).map(|()| Follow::Nobody);
        }
        if let Some(own) = own(name) {
            return self.set_own_prop(own, value);
        }
        if name == BOOTFS {
            return self.set_boot_dataset(value).map(|()| Follow::Nobody);
        }
        if name == ASHIFT {
            let is_valid = |ashift: &u64| *ashift == 0 || (u64::from(vdev::ASHIFT_MIN)..=u64::from(vdev::ASHIFT_MAX)).contains(ashift);
            let ashift = value.parse().ok().filter(is_valid).ok_or(PoolError::BadValue)?;
            self.store_logged(ASHIFT, zap::Value::U64(vec![ashift]), format!("{ASHIFT}={ashift}"))?;
            return Ok(Follow::Nobody);
        }
        if name == TABLE_QUOTA {
            let quota = dedup_table_quota(value).ok_or(PoolError::BadValue)?;
            self.store_logged(TABLE_QUOTA, zap::Value::U64(vec![quota]), format!("{TABLE_QUOTA}={quota}"))?;
            self.services.dedup.set_quota(quota);
            return Ok(Follow::Nobody);
        }
        if is_user_prop(name) {
            let is_too_long = name.len() > USER_NAME_BYTES_MAX || value.len() > USER_VALUE_BYTES_MAX;
            return if is_too_long { Err(PoolError::BadValue) } else { self.set_own(name, value).map(|()| Follow::Nobody) };
        }
        let numeric = numeric(name).ok_or(PoolError::BadProperty)?;
        let number = numeric.values.iter().position(|known| *known == value).ok_or(PoolError::BadValue)? as u64;
        if numeric.name == MULTIHOST && number == 1 && self.config.lock().facts.host.id == 0 {
            return Err(PoolError::NoHostid);
        }
        self.store_logged(numeric.name, zap::Value::U64(vec![number]), format!("{}={number}", numeric.name))?;
        if numeric.name == "autotrim" {
            return Ok(Follow::Autotrim(number == 1));
        }
        if numeric.name == MULTIHOST {
            return Ok(Follow::Multihost(number == 1));
        }
        if numeric.name == "failmode" {
            let mut config = self.config.lock();
            config.fail_mode = mode_of(number);
            self.publish(&config);
        }
        Ok(Follow::Nobody)
    }

    /// Sets one of our own properties, and follows it.
    fn set_own_prop(&self, own: &Own, value: &str) -> Result<Follow, PoolError> {
        if !(own.is_valid)(value) {
            return Err(PoolError::BadValue);
        }
        let value = if own.name == PROVIDER && is_none(value) { "" } else { value };
        self.set_own(&format!("{OWN_PREFIX}{}", own.name), value)?;
        if let Some(target) = target_of(value).filter(|_| own.name == LATENCY_TARGET) {
            self.zio().tune_queues(|tunables| tunables.latency_target = target);
            return Ok(Follow::Nobody);
        }
        Ok(Follow::Providers)
    }

    /// Stores a text under the name of a user's property.
    fn set_own(&self, name: &str, value: &str) -> Result<(), PoolError> {
        let text = if value.is_empty() { zap::Value::U8(Vec::new()) } else { zap::Value::from_str_with_nul(value) };
        self.store_logged(name, text, format!("{name}={value}"))
    }

    fn store_logged(&self, name: &str, value: zap::Value, text: String) -> Result<(), PoolError> {
        let (mos, services, name) = (self.mos.clone(), self.services.clone(), name.to_string());
        let set = move |_: &Arc<DslPool>, (), tx: &Tx| {
            store(&mos, &name, &value, tx).map_err(dsl_error)?;
            services.log_internal("set", &text, tx);
            Ok(())
        };
        Ok(self.dsl.sync_task(|_, _| Ok(()), set)?)
    }

    fn set_text(&self, is_comment: bool, value: &str) -> Result<(), PoolError> {
        if (is_comment && value.len() > COMMENT_BYTES_MAX) || value.chars().any(char::is_control) {
            return Err(PoolError::BadValue);
        }
        let text = (!value.is_empty() && (is_comment || value != "off")).then(|| value.to_string());
        {
            let mut config = self.config.lock();
            if is_comment {
                config.facts.comment = text;
            } else {
                config.facts.compatibility = text;
            }
            config.dirty = true;
        }
        let name = if is_comment { "comment" } else { "compatibility" };
        self.services.log_now("set", &format!("{name}={value}"), self.txgs.open_txg());
        self.sync()
    }

    /// The name of the dataset to boot from, as it is called now; None when none was chosen.
    fn boot_dataset(&self) -> Result<Option<String>, PoolError> {
        let Some(object) = bootfs::stored(&self.mos)? else { return Ok(None) };
        match self.dsl.hold_object(object) {
            Ok(dataset) => Ok(Some(dataset.name())),
            // A number that an older system left behind.
            Err(_) => Ok(None),
        }
    }

    /// Chooses it, or none with an empty name.
    ///
    /// # Errors
    /// `BadValue` for a name that is not this pool's; of a dataset that is not there, or no file system: `Dsl`.
    fn set_boot_dataset(&self, name: &str) -> Result<(), PoolError> {
        self.check_version(spa_version::BOOTFS, "pool must be upgraded to support 'bootfs' property")?;
        if name.is_empty() {
            return self.store_logged(BOOTFS, zap::Value::U8(Vec::new()), format!("{BOOTFS}=0"));
        }
        if name.split(['/', '@']).next() != Some(self.name().as_str()) {
            return Err(PoolError::BadValue);
        }
        // Held until it is stored, so that it is not destroyed meanwhile.
        let dataset = self.dsl.hold(name).map_err(|error| match error {
            DslError::BadName => PoolError::BadValue,
            other => other.into(),
        })?;
        if dataset.kind()? != ObjsetType::ZFS {
            return Err(DslError::Unsupported.into());
        }
        let object = dataset.object();
        self.store_logged(BOOTFS, zap::Value::U64(vec![object]), format!("{BOOTFS}={object}"))
    }
}
