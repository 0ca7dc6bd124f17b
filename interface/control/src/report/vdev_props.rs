//! Properties of vdevs: setting them, showing those that are set, and what the policy makes of them.

use crate::failure::{because, pool_failure};
use crate::pool::OpenPool;
use crate::pool::objections::of_users;
use crate::requests::done;
use control_api::{ErrorKind, Failure, PoolSet, Property, Response, Source, Value, VdevReport};
use ondisk::Guid;
use pool::{PoolError, VdevProps};
use vdev::{LeafId, TopKind, TopVdev, VdevTree};

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
    if name == "sit_out" {
        return set_sit_out(open, guid, (&request.value, what));
    }
    if name == "autosit" && !open.pool().tree().tops.iter().any(|top| top.guid == guid && has_redundancy(top)) {
        return Err(because(ErrorKind::Unsupported, what, "only mirrors, RAID-Z and dRAID can let devices sit out"));
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

/// Value of a switch.
fn switch(name: &str, value: &str, what: &str) -> Result<bool, Failure> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(because(ErrorKind::Invalid, what, format!("'{name}' must be one of 'on | off'"))),
    }
}

/// True when reads can do without a device of the vdev.
fn has_redundancy(top: &TopVdev) -> bool {
    top.parity() > 0 || top.kind == TopKind::Mirror
}

/// Has reads pass over a leaf, or come to it again.
fn set_sit_out(open: &OpenPool, guid: Guid, (value, what): (&str, String)) -> Result<Response, Failure> {
    let is_on = switch("sit_out", value, &what)?;
    let tree = open.pool().tree();
    let top = tree.leaf_by_guid(guid).and_then(|id| tree.top(tree.leaf(id).top));
    if !top.is_some_and(has_redundancy) {
        return Err(because(ErrorKind::Unsupported, what, "only devices of mirrors, RAID-Z and dRAID can sit out"));
    }
    match open.pool().set_sit_out(guid, is_on) {
        Ok(()) => Ok(done()),
        Err(PoolError::NoReplicas) => Err(because(ErrorKind::Busy, what, "too many disks already sitting out")),
        Err(error) => Err(pool_failure(what, &error)),
    }
}

/// Has new blocks lie on a vdev, or none any more.
fn set_allocating(open: &OpenPool, guid: Guid, (value, what): (&str, String)) -> Result<Response, Failure> {
    let is_on = switch("allocating", value, &what)?;
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

/// Adds who sits out, and which vdevs let slow devices do so, to the reports of those that can: `sits` is a leaf that does.
pub(crate) fn show_sitting(root: &mut VdevReport, tree: &VdevTree, sits: &dyn Fn(Guid) -> bool) {
    for top in tree.tops.iter().filter(|top| has_redundancy(top)) {
        let Some(report) = root.children.iter_mut().find(|report| report.guid == top.guid.0) else { continue };
        if !report.properties.iter().any(|property| property.name == "autosit") {
            report.properties.insert(0, Property::of("autosit", Value::Text("off".into()), Source::Default));
        }
        let leaves: Vec<Guid> = top.leaves().map(|leaf| tree.leaf(leaf).guid).collect();
        report.children.iter_mut().for_each(|child| show_sitting_below(child, &leaves, sits));
    }
}

fn show_sitting_below(vdev: &mut VdevReport, leaves: &[Guid], sits: &dyn Fn(Guid) -> bool) {
    vdev.children.iter_mut().for_each(|child| show_sitting_below(child, leaves, sits));
    let guid = Guid(vdev.guid);
    if leaves.contains(&guid) {
        let value = if sits(guid) { "on" } else { "off" };
        vdev.properties.insert(0, Property::fact("sit_out", Value::Text(value.into())));
    }
}

/// Number that is set for a leaf, or for what it is part of (OpenZFS: `vdev_prop_get_inherited`).
pub(crate) fn number(tree: &VdevTree, props: &VdevProps, leaf: LeafId, name: &str) -> Option<u64> {
    let leaf = tree.leaf(leaf);
    let top = tree.tops.get(leaf.top.0 as usize).map(|top| top.guid);
    let text = [Some(leaf.guid), top, Some(tree.guid)].into_iter().flatten().find_map(|guid| props.get(&guid)?.get(name))?;
    text.parse().ok()
}
