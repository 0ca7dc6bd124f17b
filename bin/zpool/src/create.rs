//! `zpool create`: the vdev grammar, checks on replication, and the dry run.

use crate::{args, usage};
use cli::Client;
use control_api::{Failure, PoolCreate, Request, VdevSpec};
use std::collections::BTreeMap;

/// Runs the verb.
pub fn run(client: &Client, arguments: args::Create) -> Result<u8, Failure> {
    let what = format!("cannot create '{}'", arguments.pool);
    let vdevs = parse_vdevs(&arguments.vdevs).map_err(|why| usage(&what, &why))?;
    if !arguments.force
        && let Some(why) = mismatch(&vdevs)
    {
        return Err(Failure::new(control_api::ErrorKind::Invalid, "invalid vdev specification", why)
            .advise("use '-f' to override the following errors: mismatched replication level"));
    }
    if arguments.dry_run {
        print!("{}", layout(&arguments.pool, &vdevs));
        // The daemon still checks names, devices and properties, and changes nothing.
    }
    let request = PoolCreate {
        pool: arguments.pool,
        vdevs,
        properties: assignments(&arguments.properties, &what)?,
        fs_properties: assignments(&arguments.fs_properties, &what)?,
        mountpoint: arguments.mountpoint,
        altroot: arguments.altroot,
        force: arguments.force,
        dry_run: arguments.dry_run,
        no_features: arguments.no_features,
    };
    crate::done(client, &Request::PoolCreate(request))
}

/// `a=b` words as a map; a property given twice is an error.
pub fn assignments(words: &[String], what: &str) -> Result<BTreeMap<String, String>, Failure> {
    let mut map = BTreeMap::new();
    for word in words {
        let (name, value) =
            word.split_once('=').ok_or_else(|| usage(what, &format!("missing '=' for property=value argument '{word}'")))?;
        if map.insert(name.to_string(), value.to_string()).is_some() {
            return Err(usage(what, &format!("property '{name}' specified multiple times")));
        }
    }
    Ok(map)
}

fn group(word: &str) -> Option<(&str, u8)> {
    match word {
        "mirror" => Some(("mirror", 0)),
        "raidz" | "raidz1" => Some(("raidz", 1)),
        "raidz2" => Some(("raidz", 2)),
        "raidz3" => Some(("raidz", 3)),
        _ => None,
    }
}

fn leaf(word: &str) -> VdevSpec {
    let path = if word.contains('/') {
        std::path::absolute(word).map_or_else(|_| word.to_string(), |path| path.to_string_lossy().into_owned())
    } else {
        format!("/dev/{word}")
    };
    VdevSpec::Leaf { path }
}

fn parse_vdevs(words: &[String]) -> Result<Vec<VdevSpec>, String> {
    let mut vdevs = Vec::new();
    let mut rest = words;
    while let Some((word, after)) = rest.split_first() {
        if matches!(word.as_str(), "log" | "cache" | "spare" | "special" | "dedup") || word.starts_with("draid") {
            return Err(format!("'{word}' vdevs are not available in this version"));
        }
        let Some((kind, parity)) = group(word) else {
            vdevs.push(leaf(word));
            rest = after;
            continue;
        };
        let count = after.iter().take_while(|word| group(word).is_none()).count();
        let children: Vec<VdevSpec> = after[..count].iter().map(|word| leaf(word)).collect();
        let least = if kind == "mirror" { 2 } else { usize::from(parity) + 1 };
        if children.len() < least {
            return Err(format!("invalid vdev specification: {word} requires at least {least} devices"));
        }
        vdevs.push(if kind == "mirror" { VdevSpec::Mirror { children } } else { VdevSpec::Raidz { parity, children } });
        rest = &after[count..];
    }
    Ok(vdevs)
}

/// Why these top-levels do not go together, as OpenZFS refuses them without `-f`.
fn mismatch(vdevs: &[VdevSpec]) -> Option<String> {
    let kind = |vdev: &VdevSpec| match vdev {
        VdevSpec::Leaf { .. } => ("disk".to_string(), 1),
        VdevSpec::Mirror { children } => ("mirror".to_string(), children.len()),
        VdevSpec::Raidz { parity, children } => (format!("raidz{parity}"), children.len()),
    };
    let (first, width) = kind(vdevs.first()?);
    vdevs.iter().skip(1).map(kind).find_map(|(other, count)| {
        if other != first {
            Some(format!("mismatched replication level: both {first} and {other} vdevs are present"))
        } else if count != width {
            Some(format!("mismatched replication level: both {width}-way and {count}-way {first} vdevs are present"))
        } else {
            None
        }
    })
}

fn layout(pool: &str, vdevs: &[VdevSpec]) -> String {
    let mut text = format!("would create '{pool}' with the following layout:\n\n\t{pool}\n");
    for vdev in vdevs {
        let (name, children) = match vdev {
            VdevSpec::Leaf { path } => (path.clone(), [].as_slice()),
            VdevSpec::Mirror { children } => ("mirror".to_string(), children.as_slice()),
            VdevSpec::Raidz { parity, children } => (format!("raidz{parity}"), children.as_slice()),
        };
        text.push_str(&format!("\t  {name}\n"));
        for child in children {
            if let VdevSpec::Leaf { path } = child {
                text.push_str(&format!("\t    {path}\n"));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(String::from).collect()
    }

    #[test]
    fn the_grammar_makes_the_groups_a_user_wrote() {
        let vdevs = parse_vdevs(&words("mirror /a /b mirror /c /d")).expect("two mirrors");
        assert_eq!(vdevs.len(), 2);
        assert_eq!(parse_vdevs(&words("raidz2 /a /b")), Err("invalid vdev specification: raidz2 requires at least 3 devices".into()));
        assert!(matches!(parse_vdevs(&words("sda")).expect("a disk").as_slice(), [VdevSpec::Leaf { path }] if path == "/dev/sda"));
    }

    #[test]
    fn a_stripe_beside_a_mirror_is_refused_without_force() {
        let mixed = parse_vdevs(&words("/x mirror /a /b")).expect("parses");
        assert!(mismatch(&mixed).is_some());
        let widths = parse_vdevs(&words("raidz1 /a /b raidz1 /c /d /e")).expect("parses");
        assert!(mismatch(&widths).is_some());
        let same = parse_vdevs(&words("raidz1 /a /b raidz1 /c /d")).expect("parses");
        assert!(mismatch(&same).is_none());
    }
}
