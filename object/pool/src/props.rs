//! Pool properties that are stored in the pool (OpenZFS: `zpool_prop.c`, `spa_sync_props`): numbers in one ZAP, the comment and
//! the compatibility list in the configuration.

use crate::features::{DIRECTORY, create_linked_zap};
use crate::{Pool, PoolError};
use dmu::{Objset, Tx};
use dsl::{DslError, DslPool};
use ondisk::{ObjectId, ObjectType};
use std::sync::Arc;
use zap::Zap;
use zio::FailMode;

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

/// A stored property as `zpool get` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolProp {
    /// Name.
    pub name: &'static str,
    /// Value, `-` for an empty text.
    pub value: String,
    /// It was set; otherwise it is the default.
    pub is_local: bool,
}

/// True for a property that [`Pool::props`] reads from the pool's property object.
pub fn is_stored_prop(name: &str) -> bool {
    NUMERIC.iter().any(|numeric| numeric.name == name)
}

fn props_zap(mos: &Arc<Objset>) -> Result<Option<Zap>, PoolError> {
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

fn mode_of(number: u64) -> FailMode {
    match number {
        1 => FailMode::Continue,
        2 => FailMode::Panic,
        _ => FailMode::Wait,
    }
}

fn store(mos: &Arc<Objset>, name: &str, value: u64, tx: &Tx) -> Result<(), PoolError> {
    let zap = match props_zap(mos)? {
        Some(zap) => zap,
        None => Zap::hold(mos, create_linked_zap(mos, "pool_props", ObjectType::POOL_PROPS, tx)?)?,
    };
    Ok(zap.update_u64(name, value, tx)?)
}

impl Pool {
    /// The stored properties.
    pub fn props(&self) -> Result<Vec<PoolProp>, PoolError> {
        let zap = props_zap(self.mos())?;
        let mut props = Vec::new();
        for numeric in NUMERIC {
            let stored = match &zap {
                Some(zap) => zap.try_lookup_u64(numeric.name)?,
                None => None,
            };
            let value = numeric.values.get(stored.unwrap_or(numeric.default) as usize).copied().unwrap_or("-");
            props.push(PoolProp { name: numeric.name, value: value.to_string(), is_local: stored.is_some() });
        }
        let facts = self.syncer.config.lock().facts.clone();
        for (name, text) in [("comment", facts.comment), ("compatibility", facts.compatibility)] {
            let is_local = text.is_some();
            let unset = if name == "compatibility" { "off" } else { "-" };
            props.push(PoolProp { name, value: text.unwrap_or_else(|| unset.to_string()), is_local });
        }
        Ok(props)
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
        let numeric = NUMERIC.iter().find(|numeric| numeric.name == name || (name == "listsnaps" && numeric.name == "listsnapshots"));
        let numeric = numeric.ok_or(PoolError::BadProperty)?;
        let number = numeric.values.iter().position(|known| *known == value).ok_or(PoolError::BadValue)? as u64;
        let (mos, services) = (self.mos().clone(), self.syncer.services.clone());
        let text = format!("{}={number}", numeric.name);
        let set = move |_: &Arc<DslPool>, (), tx: &Tx| {
            store(&mos, numeric.name, number, tx).map_err(|_| DslError::Unsupported)?;
            services.log_internal("set", &text, tx);
            Ok(())
        };
        self.dsl().sync_task(|_, _| Ok(()), set)?;
        if numeric.name == "failmode" {
            let mut config = self.syncer.config.lock();
            config.fail_mode = mode_of(number);
            self.syncer.io.set_view(config.view(&self.syncer.services));
        }
        Ok(())
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
        self.sync()
    }
}
