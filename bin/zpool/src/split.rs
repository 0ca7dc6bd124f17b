//! `zpool split`: the devices of the new pool, and the dry run.

use crate::divided::Split;
use crate::names::Names;
use crate::{create, list, vdev_get};
use cli::{Client, Stop, done};
use control_api::{ErrorKind, Failure, PoolReport, PoolSplit, Request, VDEV_CLASSES, VdevReport};

const ONLY_MIRRORS: &str = "Source pool must be composed only of mirrors";
const ONE_OF_EACH: &str = "Device list must include at most one disk from each mirror";

/// Runs the verb.
pub fn run(client: &Client, arguments: Split) -> Result<u8, Stop> {
    let (properties, mount_options): (Vec<String>, Vec<String>) = arguments.properties.into_iter().partition(|word| word.contains('='));
    let properties = create::pool_properties(&properties)?;
    if arguments.altroot.is_none() && arguments.load_keys {
        return Err(Stop::usage("loading keys is only valid when importing the pool"));
    }
    if arguments.altroot.is_none() && !mount_options.is_empty() {
        return Err(Stop::usage("setting mntopts is only valid when importing the pool"));
    }
    let failed = |why: &str| Failure::new(ErrorKind::Invalid, format!("Unable to split {}", arguments.pool), why);
    let reports = list::reports(client, vec![arguments.pool.clone()], false)?;
    let report = reports.first().ok_or_else(|| failed("no such pool"))?;
    let chosen = choose(report, &arguments.devices).map_err(failed)?;
    if arguments.dry_run {
        let names = Names::new(arguments.full_paths, arguments.guids, arguments.follow_links);
        cli::out!("{}", layout(&arguments.new_pool, report, &chosen, names));
        return Ok(0);
    }
    let devices = chosen.iter().map(|vdev| vdev.guid).collect();
    let (pool, new_pool, altroot) = (arguments.pool, arguments.new_pool, arguments.altroot);
    let (half, options) = (new_pool.clone(), mount_options.clone());
    let request = PoolSplit { pool, new_pool, devices, altroot, properties, mount_options };
    let code = done(client, &Request::PoolSplit(request))?;
    if !arguments.load_keys {
        return Ok(code);
    }
    Ok(code.max(cli::unlock::open(client, &half, &options)?))
}

/// The device of each mirror that leaves: one that is named, or the last (OpenZFS: `zpool_vdev_split`).
fn choose<'a>(report: &'a PoolReport, words: &[String]) -> Result<Vec<&'a VdevReport>, &'static str> {
    let named: Vec<u64> = match vdev_get::places(report, words) {
        Ok(places) => places.iter().map(|place| place.vdev.guid).collect(),
        Err(_) => return Err(ONE_OF_EACH),
    };
    let (mut chosen, mut found) = (Vec::new(), 0);
    for top in report.vdevs.children.iter().filter(|top| !top.is_log && top.kind != "hole") {
        if top.kind != "mirror" {
            return Err(ONLY_MIRRORS);
        }
        let wanted = top.children.iter().find(|child| named.contains(&child.guid));
        found += usize::from(wanted.is_some());
        chosen.extend(wanted.or(top.children.last()));
    }
    if found == named.len() { Ok(chosen) } else { Err(ONE_OF_EACH) }
}

fn layout(pool: &str, report: &PoolReport, chosen: &[&VdevReport], names: Names) -> String {
    let is_chosen = |vdev: &&VdevReport| chosen.iter().any(|other| other.guid == vdev.guid);
    let lines = |class: Option<&str>| -> String {
        let tops = report.vdevs.children.iter().filter(|top| top.class() == class);
        tops.flat_map(|top| &top.children).filter(is_chosen).map(|vdev| format!("\t  {}\n", names.of(vdev))).collect()
    };
    let mut text = format!("would create '{pool}' with the following layout:\n\n\t{pool}\n{}", lines(None));
    for class in VDEV_CLASSES {
        let below = lines(Some(class));
        if !below.is_empty() {
            text.push_str(&format!("\t{class}\n{below}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vdev(kind: &str, guid: u64, children: Vec<VdevReport>) -> VdevReport {
        let path = children.is_empty().then(|| format!("/vdevs/{guid}"));
        VdevReport { name: format!("{kind}-{guid}"), kind: kind.into(), guid, path, children, ..VdevReport::default() }
    }

    /// If this fails, another device than the one that was named leaves the pool.
    #[test]
    fn of_each_mirror_the_named_device_leaves_or_the_last() {
        let pair = |guid| vdev("mirror", guid, vec![vdev("file", guid + 1, Vec::new()), vdev("file", guid + 2, Vec::new())]);
        let log = VdevReport { is_log: true, ..vdev("file", 7, Vec::new()) };
        let root = |children| PoolReport { vdevs: vdev("root", 1, children), ..PoolReport::default() };
        let pool = root(vec![pair(10), log, pair(20)]);
        let guids = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
            choose(&pool, &words).map(|chosen| chosen.iter().map(|vdev| vdev.guid).collect::<Vec<u64>>())
        };
        assert_eq!(guids(&[]), Ok(vec![12, 22]));
        assert_eq!(guids(&["/vdevs/21"]), Ok(vec![12, 21]));
        assert_eq!(guids(&["/vdevs/21", "/vdevs/11"]), Ok(vec![11, 21]));
        for wrong in [&["/vdevs/11", "/vdevs/12"][..], &["/vdevs/7"], &["/elsewhere"]] {
            assert_eq!(guids(wrong), Err(ONE_OF_EACH), "{wrong:?}");
        }
        let plain = root(vec![pair(10), vdev("file", 30, Vec::new())]);
        assert_eq!(choose(&plain, &[]).err(), Some(ONLY_MIRRORS));
        let chosen = choose(&pool, &[]).expect("mirrors only");
        let text = layout("half", &pool, &chosen, Names::default());
        assert_eq!(text, "would create 'half' with the following layout:\n\n\thalf\n\t  /vdevs/12\n\t  /vdevs/22\n");
        let classes = root(vec![pair(10), VdevReport { bias: Some("special".into()), ..pair(30) }]);
        let text = layout("half", &classes, &choose(&classes, &[]).expect("mirrors only"), Names::default());
        assert_eq!(text, "would create 'half' with the following layout:\n\n\thalf\n\t  /vdevs/12\n\tspecial\n\t  /vdevs/32\n");
    }
}
