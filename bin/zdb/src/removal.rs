//! Counts of the features of removed vdevs, beside what there is of them (OpenZFS: `verify_device_removal_feature_counts` in `zdb.c`).

use crate::dump::{DIRECTORY, Dump};
use ondisk::names::mos as directory;
use ondisk::names::top_zap;
use ondisk::{CondensingPhys, IndirectMappingPhys, from_words};
use pool::Pool;
use vdev::TopVdev;
use zap::{Value, Zap};

/// Compares the pool's counts of the features of removals with the objects that there are; returns 1 when they differ. What cannot be read is none.
pub fn dump_features(dump: &mut Dump<'_>, pool: &Pool) -> u8 {
    let features = pool.features();
    let count = |name: &str| features.iter().find(|(known, ..)| known == name).and_then(|(_, _, count)| *count).unwrap_or(0);
    let condensing = condensing(dump, pool);
    let tree = pool.tree();
    let mapped: Vec<&TopVdev> = tree.tops.iter().filter(|top| top.objects.mapping.0 != 0).collect();
    let (removals, counted) = (count("device_removal"), count("obsolete_counts"));
    let is_right = removals == mapped.len() as u64;
    if is_right {
        dump.line(format_args!("Verified device_removal feature refcount of {removals} is correct"));
    } else {
        dump.line(format_args!("Number of indirect vdevs ({}) does not match feature count ({removals})", mapped.len()));
    }
    let number_of = |has: &dyn Fn(&Pool, &TopVdev) -> bool| mapped.iter().filter(|top| has(pool, top)).count() as u64;
    let precise = number_of(&|pool, top| is_set(pool, top, top_zap::OBSOLETE_COUNTS_ARE_PRECISE));
    let maps = number_of(&|pool, top| is_set(pool, top, top_zap::INDIRECT_OBSOLETE_SM));
    let counts = number_of(&has_counts);
    let lists = u64::from(Zap::hold(pool.mos(), DIRECTORY).is_ok_and(|zap| zap.lookup(directory::OBSOLETE_BPOBJ).is_ok()));
    let objects = precise + maps + counts + condensing + lists;
    if objects == counted {
        dump.line(format_args!("Verified indirect_refcount feature refcount of {counted} is correct"));
    } else {
        dump.line(format_args!("Number of obsolete counts objects ({objects}) does not match feature count ({counted})"));
        dump.line(format_args!("pv:{precise} os:{maps} oc:{counts} sc:{condensing} ob:{lists} rd:0"));
    }
    u8::from(!is_right || objects != counted)
}

/// Number of objects by which a mapping is being written anew; shows which.
fn condensing(dump: &mut Dump<'_>, pool: &Pool) -> u64 {
    let state = Zap::hold(pool.mos(), DIRECTORY).and_then(|zap| zap.lookup(directory::CONDENSING_INDIRECT));
    let Ok(Value::U64(words)) = state else { return 0 };
    let phys: CondensingPhys = from_words(&words);
    if phys.scip_next_mapping_object == 0 {
        return 0;
    }
    dump.line(format_args!(
        "Condensing indirect vdev {}: new mapping object {}, prev obsolete sm {}",
        phys.scip_vdev, phys.scip_next_mapping_object, phys.scip_prev_obsolete_sm_object
    ));
    2
}

fn is_set(pool: &Pool, top: &TopVdev, name: &str) -> bool {
    Zap::hold(pool.mos(), top.zap).and_then(|zap| zap.lookup_u64(name)).is_ok_and(|value| value != 0)
}

/// True when the mapping tells how much of it nobody needs.
fn has_counts(pool: &Pool, top: &TopVdev) -> bool {
    let bonus = pool.mos().hold(top.objects.mapping).and_then(|object| object.bonus());
    bonus.is_ok_and(|bonus| bonus.len() >= IndirectMappingPhys::SIZE)
}
