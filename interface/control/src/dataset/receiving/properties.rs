//! Properties of what is received: those in a package as received values, those of the command line above them.

use super::Receiving;
use crate::dataset::datasets::{limit_objection, objection};
use crate::dataset::rights::permission_for;
use crate::failure::{self, because};
use control_api::{ErrorKind, Failure};
use dsl::prop::table;
use dsl::{DatasetHandle, DslError, ReceivedValue};
use nvlist::{NvList, Value};

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

impl Receiving<'_> {
    /// Refuses properties of the command line that cannot be.
    pub(super) fn check_properties(&self, what: &str, kind: u8, is_new: bool) -> Result<(), Failure> {
        if let Some(why) = objection(&self.request.properties, kind, is_new) {
            return Err(because(ErrorKind::Invalid, what, why));
        }
        let is_unknown = |name: &&String| table::find(name).is_err();
        match self.request.excluded.iter().find(is_unknown) {
            Some(name) => Err(because(ErrorKind::Invalid, what, format!("invalid property '{name}'"))),
            None => Ok(()),
        }
    }

    /// False for a property that the user may not set on a dataset, which is added to the list (OpenZFS: `zfs_set_prop_nvlist` leaves it out).
    fn may_set(&self, name: &str, property: &str, denied: &mut Vec<String>) -> bool {
        let may = self.asker.is_none_or(|asker| asker.has(name, permission_for(property)));
        denied.extend((!may).then(|| property.to_string()));
        may
    }

    /// Gives a dataset the properties that were sent and, at the top of what is received, those that the command line sets. What it names
    /// otherwise is inherited, where that is possible, and what was sent waits beneath (OpenZFS: `zfs_setup_cmdline_props`); snapshots have all.
    pub(super) fn give_properties(&mut self, handle: &DatasetHandle, sent: Option<&NvList>, is_top: bool) -> Result<(), Failure> {
        let request = self.request;
        let name = handle.name();
        let failed = |error: DslError| failure::dataset("set property for", &name, &error);
        let pool = self.datasets.pools.pool_of(&name, "open")?;
        let _alone = self.asker.map(|_| pool.delegated());
        let mut denied: Vec<String> = Vec::new();
        if is_top && !request.properties.is_empty() {
            let mut pairs: Vec<(String, String)> = request.properties.clone().into_iter().collect();
            pairs.retain(|(property, _)| self.may_set(&name, property, &mut denied));
            handle.set_props(&pairs).map_err(failed)?;
        }
        let (mut values, others) = sent.map(values_of).unwrap_or_default();
        values.retain(|(property, _)| self.may_set(&name, property, &mut denied));
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
        let unreadable = others.into_iter().map(|name| (name, DslError::BadValue));
        for (refused, error) in handle.receive_props(values, inherited).map_err(failed)?.into_iter().chain(unreadable) {
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
