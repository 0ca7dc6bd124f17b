//! Properties of what is received: those in a package as received values, those of the command line above them.

use super::{RECEIVE, Receiving};
use crate::dataset::datasets::{limit_objection, objection};
use crate::dataset::rights::permission_for;
use crate::failure::{self, because};
use control_api::{ErrorKind, Failure};
use dsl::prop::table::{self, Attr, Prop};
use dsl::{DatasetHandle, DslError, ReceivedValue};
use nvlist::{NvList, Value};
use std::collections::BTreeMap;

/// Values in a list of a package, of pairs of a name and a value, or a list with a value; and the names of those that are no values of
/// properties. Names alone are marks of the sender's.
fn values_of(list: &NvList) -> (Vec<(String, ReceivedValue)>, Vec<String>) {
    let plain = |value: &Value| match value {
        Value::Uint64(number) => Some(ReceivedValue::Number(*number)),
        Value::String(text) => text.to_str().map(|text| ReceivedValue::Text(text.to_string())),
        _ => None,
    };
    let value = |value: &Value| match value {
        Value::NvList(list) => list.get("value").and_then(plain),
        value => plain(value),
    };
    let (mut values, mut others) = (Vec::new(), Vec::new());
    for (name, found) in list.iter().filter(|(_, found)| !matches!(found, Value::Boolean)) {
        match (name.to_str(), value(found)) {
            (Some(name), Some(value)) => values.push((name.to_string(), value)),
            _ => others.push(name.to_string()),
        }
    }
    (values, others)
}

/// Limit that contents of an older snapshot may exceed: it is set when they are there (OpenZFS: `extract_delay_props`).
const LATE: &str = "refquota";

/// Moment at which properties are given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// Before the contents: without what may be in their way.
    Before,
    /// Between two snapshots: a limit that is exceeded now may fit later.
    Between,
    /// Behind the last snapshot.
    Last,
}

/// True for a property that a command line can set or leave out (OpenZFS: `zfs_receive_checkprops`).
fn can_be_named(name: &str) -> bool {
    let is_fixed = |desc: &table::PropDesc| matches!(desc.attr, Attr::ReadOnly | Attr::OneTime | Attr::OneTimeDefault);
    match table::find(name) {
        Ok(Prop::Native(desc)) => !is_fixed(desc) && !matches!(desc.name, "version" | "volsize"),
        Ok(Prop::User(_)) => true,
        Err(_) => false,
    }
}

/// Properties of encryption that OpenZFS takes on the command line, to make encryption roots of what is received.
const OF_KEYS: [&str; 4] = ["encryption", "keyformat", "keylocation", "pbkdf2iters"];

/// Failure for properties of encryption on a command line: nobody makes them others in a raw stream, and this version makes no encryption roots of other
/// ones. To leave out `encryption` there changes nothing: what is received is encrypted as what is above it.
fn of_keys(properties: &BTreeMap<String, String>, excluded: &[String], is_raw: bool) -> Option<Failure> {
    let is_one = |name: &&String| OF_KEYS.contains(&name.as_str());
    if is_raw {
        let name = properties.keys().chain(excluded).find(is_one)?;
        let why = format!("encryption property '{name}' cannot be set or excluded for raw streams.");
        return Some(because(ErrorKind::Invalid, RECEIVE, why));
    }
    let name = properties.keys().find(is_one)?;
    let failure = because(ErrorKind::Unsupported, RECEIVE, format!("'-o {name}' is not available in this version"));
    Some(failure.advise("what is received is encrypted as the dataset above it, or as the one that it goes on from"))
}

/// True for a native property that datasets of this kind do not have.
fn is_foreign(name: &str, kind: u8) -> bool {
    table::native(name).is_some_and(|desc| desc.applies & kind == 0)
}

impl Receiving<'_> {
    /// Refuses properties of the command line that cannot be. Those that a dataset of this kind does not have are passed over in a package of
    /// everything below, and so are those that are left out anyway.
    pub(super) fn check_properties(
        &mut self,
        what: &str,
        name: &str,
        (kind, is_new): (u8, bool),
        (is_recursive, is_raw): (bool, bool),
    ) -> Result<(), Failure> {
        let request = self.request;
        if let Some(failure) = of_keys(&request.properties, &request.excluded, is_raw) {
            return Err(failure);
        }
        let excluded = request.excluded.iter().filter(|name| **name != OF_KEYS[0]);
        if let Some(name) = request.properties.keys().chain(excluded).find(|name| !can_be_named(name)) {
            return Err(because(ErrorKind::Invalid, RECEIVE, format!("invalid property '{name}'")));
        }
        let mut wanted = request.properties.clone();
        wanted.retain(|name, _| !(is_recursive && is_foreign(name, kind)));
        if let Some(why) = objection(&wanted, kind, is_new) {
            return Err(because(ErrorKind::Invalid, what, why));
        }
        for property in request.excluded.iter().filter(|property| is_foreign(property, kind)) {
            self.warn(format!("Warning: {name}: property '{property}' does not apply to datasets of this type"));
        }
        Ok(())
    }

    /// True when some of what is given before the contents waits until they are there.
    pub(super) fn is_limited(&self, sent: Option<&NvList>, is_top: bool) -> bool {
        sent.is_some_and(|list| list.contains(LATE)) || is_top && self.request.properties.contains_key(LATE)
    }

    /// False for a property that the user may not set on a dataset, which is added to the list (OpenZFS: `zfs_set_prop_nvlist` leaves it out).
    fn may_set(&self, name: &str, property: &str, denied: &mut Vec<String>) -> bool {
        let may = self.asker.is_none_or(|asker| asker.has(name, permission_for(property)));
        denied.extend((!may).then(|| property.to_string()));
        may
    }

    /// Gives a dataset the properties that were sent and, at the top of what is received, those that the command line sets. What it names
    /// otherwise is inherited, where that is possible, and what was sent waits beneath (OpenZFS: `zfs_setup_cmdline_props`); snapshots have all.
    pub(super) fn give_properties(
        &mut self,
        handle: &DatasetHandle,
        (sent, is_top): (Option<&NvList>, bool),
        moment: Moment,
    ) -> Result<(), Failure> {
        let request = self.request;
        let is_early = moment == Moment::Before;
        let waits = is_early && self.is_limited(sent, is_top);
        let name = handle.name();
        let failed = |error: DslError| failure::dataset("set property for", &name, &error);
        let pool = self.datasets.pools.pool_of(&name, "open")?;
        let _alone = self.asker.map(|_| pool.delegated());
        let mut denied: Vec<String> = Vec::new();
        if is_top && !request.properties.is_empty() {
            let mut pairs: Vec<(String, String)> = request.properties.clone().into_iter().collect();
            pairs.retain(|(property, _)| (!is_early || property != LATE) && self.may_set(&name, property, &mut denied));
            handle.set_props(&pairs).map_err(failed)?;
        }
        let (mut values, others) = sent.map(values_of).unwrap_or_default();
        values.retain(|(property, _)| (!is_early || property != LATE) && self.may_set(&name, property, &mut denied));
        denied.iter().for_each(|property| self.warn(format!("cannot receive {property} property on {name}: permission denied")));
        if sent.is_none() {
            return Ok(());
        }
        let is_hidden = |name: &String| request.excluded.contains(name) || !is_top && request.properties.contains_key(name);
        let mut inherited = Vec::new();
        if !handle.is_snapshot() {
            values.retain(|(name, _)| !is_hidden(name) || table::find(name).is_ok_and(|property| property.is_inherited()));
            inherited.extend(values.iter().map(|(name, _)| name.clone()).filter(is_hidden));
        }
        // What the user may not set the user may not take away either.
        let mut kept = Vec::new();
        if let Some(asker) = self.asker {
            kept.extend(handle.received_props().map_err(failed)?.into_iter().map(|(property, _)| property));
            kept.retain(|property| !asker.has(&name, permission_for(property)));
        }
        let unreadable = others.into_iter().map(|name| (name, DslError::BadValue));
        for (refused, error) in handle.receive_props_beside(values, inherited, kept).map_err(failed)?.into_iter().chain(unreadable) {
            // What waits is told when all is given, and what does not fit yet when nothing follows.
            if waits || moment == Moment::Between && refused == LATE {
                continue;
            }
            let limit = if error == DslError::NoSpace { limit_objection(&refused) } else { None };
            let why = limit.map_or_else(|| error.to_string(), str::to_string);
            self.warn(format!("cannot receive {refused} property on {name}: {why}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a receive that was told something impossible goes on as if it had not been told.
    #[test]
    fn what_is_fixed_is_neither_set_nor_left_out() {
        for name in ["version", "normalization", "volsize", "volblocksize", "used", "compress=off", "nonsense"] {
            assert!(!can_be_named(name), "{name}");
        }
        assert!(["quota", "atime", "compression", "org:tag"].iter().all(|name| can_be_named(name)));
        let kinds = [table::FILESYSTEM, table::VOLUME];
        assert_eq!((kinds.map(|kind| is_foreign("atime", kind)), is_foreign("org:tag", table::VOLUME)), ([false, true], false));
    }

    /// If this fails, what a stream says of a dataset is lost without a word.
    #[test]
    fn whatever_a_list_has_is_taken_or_named() {
        let nested = NvList::new().with("value", 7u64).with("source", "tank");
        let mut list = NvList::new().with("org:tag", "x").with("quota", nested).with("odd", NvList::new());
        list.add_boolean("is_clone_origin");
        let values = [("org:tag", ReceivedValue::Text("x".to_string())), ("quota", ReceivedValue::Number(7))];
        let values = values.map(|(name, value)| (name.to_string(), value)).to_vec();
        assert_eq!(values_of(&list), (values, vec!["odd".to_string()]));
    }
}
