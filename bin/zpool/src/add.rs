//! `zpool add`: the new vdevs beside those of the pool, and the dry run.

use crate::names::Names;
use crate::{args, list, spec};
use cli::{Client, Stop, done};
use control_api::{NewVdevs, PoolAdd, PoolReport, Request, VDEV_CLASSES, VdevReport, VdevSpec};

/// Runs the verb.
pub fn run(client: &Client, arguments: &args::Add) -> Result<u8, Stop> {
    let allowed = [arguments.allow_in_use, arguments.allow_replication_mismatch, arguments.allow_ashift_mismatch];
    if arguments.force && allowed.contains(&true) {
        return Err(Stop::usage(
            "'-f' option is not allowed with '--allow-replication-mismatch', '--allow-ashift-mismatch', or '--allow-in-use'",
        ));
    }
    let [allow_in_use, allow_replication_mismatch, allow_ashift_mismatch] = allowed.map(|allowed| allowed || arguments.force);
    let ashift = ashift(&arguments.properties)?;
    let Some(report) = list::reports(client, vec![arguments.pool.clone()], false)?.pop() else {
        return Ok(cli::EXIT_FAILURE);
    };
    let wanted = match spec::parse(&arguments.vdevs) {
        Ok(wanted) => wanted,
        Err(wrong) => return wrong.end(),
    };
    if let Some(why) = spec::unknown_of(&arguments.vdevs) {
        cli::errln!("{why}");
        return Ok(cli::EXIT_FAILURE);
    }
    let request = PoolAdd {
        pool: arguments.pool.clone(),
        new: wanted.clone(),
        ashift,
        allow_in_use,
        allow_ashift_mismatch,
        dry_run: arguments.dry_run,
    };
    if let Some(why) = spec::unresolved(&wanted) {
        return Ok(spec::absent_beside(&why, done(client, &Request::PoolAdd(PoolAdd { dry_run: true, ..request }))));
    }
    let data: Vec<VdevSpec> = wanted.data().cloned().collect();
    let objections = if allow_replication_mismatch { Vec::new() } else { spec::objections(&data, Some(&report.vdevs)) };
    if !objections.is_empty() {
        // The daemon tells what the devices hold, which force would override too.
        let answered = done(client, &Request::PoolAdd(PoolAdd { dry_run: true, ..request }));
        return Err(spec::objected(&objections, answered).into());
    }
    let code = done(client, &Request::PoolAdd(request))?;
    if arguments.dry_run {
        let names = Names { full_paths: arguments.full_paths, guids: arguments.guids, follow_links: arguments.follow_links };
        cli::out!("{}", picture(&report, &wanted, names));
    }
    Ok(code)
}

/// Value of `-o ashift=N`: the only property that can be given.
fn ashift(properties: &[String]) -> Result<Option<u32>, Stop> {
    let mut ashift = None;
    for property in properties {
        match property.split_once('=') {
            None => return Err(Stop::usage("missing '=' for -o option")),
            Some(("ashift", value)) => match value.parse::<u32>() {
                Ok(0) => ashift = None,
                Ok(shift @ 9..=16) => ashift = Some(shift),
                _ => {
                    let why = format!("property 'ashift' number {value} is invalid, only values between 9 and 16 are allowed.");
                    return Err(Stop::usage(why));
                }
            },
            Some((name, _)) => return Err(Stop::usage(format!("property '{name}' is not valid here"))),
        }
    }
    Ok(ashift)
}

/// The pool with what would be added.
fn picture(report: &PoolReport, wanted: &NewVdevs, names: Names) -> String {
    fn lines(vdev: &VdevReport, depth: usize, names: Names, text: &mut String) {
        text.push_str(&format!("\t{}{}\n", "  ".repeat(depth), names.of(vdev)));
        vdev.children.iter().for_each(|child| lines(child, depth + 1, names, text));
    }
    let path_name = |path: &str| {
        let kind = if std::path::Path::new(path).is_file() { "file" } else { "disk" };
        names.of(&VdevReport { kind: kind.into(), path: Some(path.into()), ..VdevReport::default() })
    };
    let pool = &report.name;
    let mut text = format!("would update '{pool}' to the following configuration:\n\n\t{pool}\n");
    let tops = &report.vdevs.children;
    tops.iter().filter(|top| top.class().is_none()).for_each(|top| lines(top, 1, names, &mut text));
    text.push_str(&spec::vdev_lines(&wanted.vdevs, &path_name));
    for class in VDEV_CLASSES {
        let present: Vec<VdevReport> = tops.iter().filter(|top| top.class() == Some(class)).map(without_number).collect();
        let new = wanted.of_class(class);
        if !present.is_empty() || !new.is_empty() {
            text.push_str(&format!("\t{class}\n"));
            present.iter().for_each(|top| lines(top, 1, names, &mut text));
            text.push_str(&spec::vdev_lines(new, &path_name));
        }
    }
    for (class, there, new) in [("cache", &report.caches, &wanted.caches), ("spares", &report.spares, &wanted.spares)] {
        if !there.is_empty() || !new.is_empty() {
            text.push_str(&format!("\t{class}\n"));
            there.iter().for_each(|vdev| text.push_str(&format!("\t  {}\n", names.of(vdev))));
            new.iter().for_each(|path| text.push_str(&format!("\t  {}\n", path_name(path))));
        }
    }
    text
}

/// The vdev by a name without its number, as groups of a class have none there (OpenZFS: `print_vdev_tree` without `VDEV_NAME_TYPE_ID`).
fn without_number(top: &VdevReport) -> VdevReport {
    let name = top.name.rsplit_once('-').filter(|_| top.path.is_none()).map_or(top.name.as_str(), |(word, _)| word);
    VdevReport { name: name.to_string(), ..top.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(path: &str, is_log: bool) -> VdevReport {
        VdevReport { kind: "file".into(), name: path.into(), path: Some(path.into()), is_log, ..VdevReport::default() }
    }

    /// Users look there whether they are about to make a stripe of their mirror.
    #[test]
    fn a_dry_run_shows_the_pool_as_it_would_be() {
        let mirror = VdevReport {
            kind: "mirror".into(),
            name: "mirror-0".into(),
            children: vec![leaf("/a", false), leaf("/b", false)],
            ..VdevReport::default()
        };
        let of_class = |bias: &str, path: &str| {
            let children = vec![leaf(path, false)];
            VdevReport { kind: "mirror".into(), name: "mirror-2".into(), bias: Some(bias.into()), children, ..VdevReport::default() }
        };
        let children = vec![mirror, leaf("/log", true), of_class("special", "/m")];
        let vdevs = VdevReport { name: "tank".into(), children, ..VdevReport::default() };
        let report = PoolReport { name: "tank".into(), vdevs, spares: vec![leaf("/s", false)], ..PoolReport::default() };
        let words = "mirror /nowhere/c /nowhere/d dedup /nowhere/e special /nowhere/f spare /nowhere/t cache /nowhere/u";
        let words: Vec<String> = words.split(' ').map(String::from).collect();
        let wanted = spec::parse(&words).expect("parses");
        assert_eq!(
            picture(&report, &wanted, Names { full_paths: true, ..Names::default() }),
            "would update 'tank' to the following configuration:\n\n\ttank\n\t  mirror-0\n\t    /a\n\t    /b\n\t  mirror\n\t    \
             /nowhere/c\n\t    /nowhere/d\n\tdedup\n\t  /nowhere/e\n\tspecial\n\t  mirror\n\t    /m\n\t  /nowhere/f\n\tlogs\n\t  /log\n\t\
             cache\n\t  /nowhere/u\n\tspares\n\t  /s\n\t  /nowhere/t\n"
        );
    }
}
