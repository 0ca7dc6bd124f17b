//! Properties that are worked out only when somebody names them: `written@SNAPSHOT`, `written#BOOKMARK`, `userused@USER` and their kind.

use crate::pool::Pools;
use control_api::{DatasetReport, Property, Source, Value};
use dsl::DatasetHandle;

/// Adds what was asked for to the reports; what a dataset lacks has the value `-`.
pub(crate) fn add_asked(pools: &Pools, asked: &[String], reports: &mut [DatasetReport]) {
    if asked.is_empty() {
        return;
    }
    for report in reports {
        let open = pools.get(&report.pool);
        // A dataset may be destroyed between the listing and the hold.
        let Some(handle) = open.and_then(|open| open.dsl().hold(&report.name).ok()) else { continue };
        report.properties.extend(asked.iter().map(|name| match value(&handle, name) {
            Some(value) => Property::of(name, value, Source::Local),
            None => Property::fact(name, Value::None),
        }));
    }
}

fn value(handle: &DatasetHandle, name: &str) -> Option<Value> {
    if let Some(bookmark) = name.strip_prefix("written#") {
        return handle.written_since_bookmark(bookmark).ok().map(Value::Bytes);
    }
    let (kind, whose) = name.split_once('@')?;
    if kind == "written" {
        return handle.written_since(whose).ok().map(Value::Bytes);
    }
    let id = whose.parse().ok()?;
    let number = zpl::userspace::value(&handle.objset().ok()?, kind, id).ok()?;
    Some(match (kind.ends_with("quota"), kind.contains("obj")) {
        (true, true) => Value::LimitCount(number),
        (true, false) => Value::Limit(number),
        (false, true) => Value::Count(number),
        (false, false) => Value::Bytes(number),
    })
}
