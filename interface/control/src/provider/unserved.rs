//! Work that a pool's properties give to its provider and that the provider does not do, in words for whoever asked for it.

use crate::pool::OpenPool;
use crate::provider::targets;
use control_api::Remark;
use dpusm::{Device, Feature, StoreKind};

/// Words for the folder in which writes are tried out, where nobody can say which that is.
const TRIALS: &str = "'provider-tests' of the daemon's state directory";

/// Name of a property, and the features of which it needs one.
type Need = (&'static str, fn(&Feature) -> bool);

const NEEDS: [Need; 11] = [
    ("zia_compress", |feature| matches!(feature, Feature::Compress { .. })),
    ("zia_decompress", |feature| matches!(feature, Feature::Decompress { .. })),
    ("zia_checksum", |feature| matches!(feature, Feature::Checksum { .. })),
    ("zia_raidz1_gen", |feature| matches!(feature, Feature::RaidGenerate { parity: 1, .. })),
    ("zia_raidz2_gen", |feature| matches!(feature, Feature::RaidGenerate { parity: 2, .. })),
    ("zia_raidz3_gen", |feature| matches!(feature, Feature::RaidGenerate { parity: 3, .. })),
    ("zia_raidz1_rec", |feature| matches!(feature, Feature::RaidReconstruct { parity: 1, .. })),
    ("zia_raidz2_rec", |feature| matches!(feature, Feature::RaidReconstruct { parity: 2, .. })),
    ("zia_raidz3_rec", |feature| matches!(feature, Feature::RaidReconstruct { parity: 3, .. })),
    ("zia_file_write", |feature| matches!(feature, Feature::Store { kind: StoreKind::File })),
    ("zia_disk_write", |feature| matches!(feature, Feature::Store { kind: StoreKind::Disk })),
];

/// Reason why a device does none of the work that a property gives to it; None when it does some, and for other properties.
fn refusal(device: &Device, property: &str) -> Option<String> {
    let (_, is_one) = NEEDS.into_iter().find(|(name, _)| *name == property)?;
    if device.capabilities().list.iter().any(|capability| is_one(&capability.feature)) {
        return None;
    }
    let off = device.disabled().iter().find(|disabled| is_one(&disabled.capability.feature));
    Some(off.map_or_else(|| "it does not offer that".to_string(), |disabled| targets::why(disabled, TRIALS)))
}

/// Properties of an open pool that are on and whose work its provider does not do, each with the reason.
pub(crate) fn unserved(open: &OpenPool) -> Vec<(&'static str, String)> {
    let Some(accelerator) = open.pool().accelerator() else { return Vec::new() };
    let Ok(device) = accelerator.session().device() else { return Vec::new() };
    let policy = accelerator.policy();
    let [gen1, gen2, gen3] = policy.raidz_gen;
    let [rec1, rec2, rec3] = policy.raidz_rec;
    let (first, stores) = ([policy.compress, policy.decompress, policy.checksum], [policy.file_write, policy.disk_write]);
    let are_on = first.into_iter().chain([gen1, gen2, gen3, rec1, rec2, rec3]).chain(stores);
    let names = NEEDS.into_iter().zip(are_on).filter(|(_, is_on)| *is_on).map(|((name, _), _)| name);
    names.filter_map(|name| Some((name, refusal(&device, name)?))).collect()
}

/// Remarks after a property of an open pool was set: what of it happens later, or not at all.
pub(crate) fn remarks(open: &OpenPool, property: &str) -> Vec<Remark> {
    let Some(provider) = open.pool().provider().filter(|_| property.starts_with("zia_")) else { return Vec::new() };
    if let Some(awaited) = open.pool().awaited_provider().filter(|_| property == "zia_provider") {
        let why = awaited.why.map(|why| format!(" ({why})")).unwrap_or_default();
        let until = "the pool goes on in software until it is there";
        return vec![Remark::Warning(format!("warning: provider '{provider}' is {}{why}: {until}", awaited.state))];
    }
    let is_meant = |name: &str| property == "zia_provider" || property == name;
    let unserved = unserved(open).into_iter().filter(|(name, _)| is_meant(name));
    let said = |(name, why)| Remark::Warning(format!("warning: {name} is on, and provider '{provider}' does not do that: {why}"));
    unserved.map(said).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each property that gives work to a provider has the features that do it: one that has none would be said to be refused by all.
    #[test]
    fn every_switch_of_a_pool_has_its_features() {
        let others = ["zia_provider", "zia_verify", "zia_mode"];
        let switches: Vec<&str> = pool::settable_props().filter(|name| name.starts_with("zia_") && !others.contains(name)).collect();
        assert_eq!(switches, NEEDS.map(|(name, _)| name));
    }
}
