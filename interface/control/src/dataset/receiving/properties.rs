//! Properties of what is received: those in a package as received values, those of the command line above them.

use super::Receiving;
use crate::dataset::datasets::{limit_objection, objection};
use crate::failure::{self, because};
use control_api::{ErrorKind, Failure};
use dsl::prop::table;
use dsl::{DatasetHandle, DslError, ReceivedValue};
use nvlist::{NvList, Value};

/// Values in a list of a package: of pairs of a name and a value, or a list with a value.
fn values_of(list: &NvList) -> Vec<(String, ReceivedValue)> {
    let plain = |value: &Value| match value {
        Value::Uint64(number) => Some(ReceivedValue::Number(*number)),
        Value::String(text) => text.to_str().map(|text| ReceivedValue::Text(text.to_string())),
        _ => None,
    };
    let value = |value: &Value| match value {
        Value::NvList(list) => list.get("value").and_then(plain),
        value => plain(value),
    };
    let pairs = list.iter().filter_map(|(name, found)| Some((name.to_str()?.to_string(), value(found)?)));
    pairs.collect()
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

    /// Gives a dataset the properties that were sent and, at the top of what is received, those that the command line sets. What it names
    /// otherwise is inherited, where that is possible, and what was sent waits beneath (OpenZFS: `zfs_setup_cmdline_props`); snapshots have all.
    pub(super) fn give_properties(&mut self, handle: &DatasetHandle, sent: Option<&NvList>, is_top: bool) -> Result<(), Failure> {
        let request = self.request;
        let name = handle.name();
        let failed = |error: DslError| failure::dataset("set property for", &name, &error);
        if is_top && !request.properties.is_empty() {
            let pairs: Vec<(String, String)> = request.properties.clone().into_iter().collect();
            handle.set_props(&pairs).map_err(failed)?;
        }
        let Some(list) = sent else { return Ok(()) };
        let mut values = values_of(list);
        let is_hidden = |name: &String| request.excluded.contains(name) || !is_top && request.properties.contains_key(name);
        let mut inherited = Vec::new();
        if !handle.is_snapshot() {
            values.retain(|(name, _)| !is_hidden(name) || table::find(name).is_ok_and(|property| property.is_inherited()));
            inherited.extend(values.iter().map(|(name, _)| name.clone()).filter(is_hidden));
        }
        for (refused, error) in handle.receive_props(values, inherited).map_err(failed)? {
            let limit = if error == DslError::NoSpace { limit_objection(&refused) } else { None };
            let why = limit.map_or_else(|| error.to_string(), str::to_string);
            self.warn(format!("cannot receive {refused} property on {name}: {why}"));
        }
        Ok(())
    }
}
