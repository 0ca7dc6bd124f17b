//! Properties of vdevs: setting them, showing those that are set, and what the policy makes of them.

use crate::failure::{because, pool_failure};
use crate::pool::OpenPool;
use crate::pool::objections::of_users;
use crate::requests::done;
use control_api::{ErrorKind, Failure, PoolSet, Property, Response, Source, Value, VdevReport};
use ondisk::Guid;
use pool::{PoolError, VdevProps};
use vdev::{LeafId, VdevTree};

/// Properties that OpenZFS can set and that would do nothing here.
const WITHOUT_EFFECT: [(&str, &str); 2] =
    [("failfast", "devices are not asked to fail fast here"), ("path", "the path of a device follows from where it is found")];

pub(crate) fn set(open: &OpenPool, guid: Guid, request: &PoolSet) -> Result<Response, Failure> {
    let what = format!("cannot set property for '{}'", request.pool);
    let name = &request.property;
    if let Some((_, why)) = WITHOUT_EFFECT.iter().find(|(known, _)| known == name) {
        return Err(because(ErrorKind::Unsupported, what, *why));
    }
    if name == "allocating" {
        return set_allocating(open, guid, (&request.value, what));
    }
    if let Some(why) = Some(name).filter(|name| pool::is_user_prop(name)).and_then(|name| of_users(name, &request.value)) {
        return Err(because(ErrorKind::Invalid, what, why));
    }
    open.set_vdev_prop(guid, name, &request.value).map_err(|error| match error {
        PoolError::BadProperty => because(ErrorKind::Invalid, &*what, format!("'{name}' is readonly")),
        PoolError::BadValue => because(ErrorKind::Invalid, &*what, format!("'{}' is no value for '{name}'", request.value)),
        PoolError::NoSuchDevice => because(ErrorKind::Unsupported, &*what, "this vdev has no place for properties")
            .advise("the root needs the feature 'vdev_zaps_v2'; a vdev that stands in for another has none"),
        other => pool_failure(what.clone(), &other),
    })?;
    Ok(done())
}

/// Has new blocks lie on a vdev, or none any more.
fn set_allocating(open: &OpenPool, guid: Guid, (value, what): (&str, String)) -> Result<Response, Failure> {
    let is_on = match value {
        "on" => true,
        "off" => false,
        _ => return Err(because(ErrorKind::Invalid, what, "'allocating' must be one of 'on | off'")),
    };
    match open.pool().set_allocating(guid, is_on) {
        Ok(()) => Ok(done()),
        Err(PoolError::NoSuchDevice) => Err(because(ErrorKind::Unsupported, what, "only top-level vdevs are allocated from")),
        Err(error) => Err(pool_failure(what, &error)),
    }
}

/// Adds the properties that are set to the reports of a vdev and those below it.
pub(crate) fn show(vdev: &mut VdevReport, props: &VdevProps) {
    if let Some(own) = props.get(&Guid(vdev.guid)) {
        let value = |text: &String| if text == "none" { Value::None } else { Value::Text(text.clone()) };
        let property = |(name, text): (&String, &String)| Property::of(name, value(text), Source::Local);
        vdev.properties = own.iter().map(property).collect();
    }
    vdev.children.iter_mut().for_each(|child| show(child, props));
}

/// Number that is set for a leaf, or for what it is part of (OpenZFS: `vdev_prop_get_inherited`).
pub(crate) fn number(tree: &VdevTree, props: &VdevProps, leaf: LeafId, name: &str) -> Option<u64> {
    let leaf = tree.leaf(leaf);
    let top = tree.tops.get(leaf.top.0 as usize).map(|top| top.guid);
    let text = [Some(leaf.guid), top, Some(tree.guid)].into_iter().flatten().find_map(|guid| props.get(&guid)?.get(name))?;
    text.parse().ok()
}
