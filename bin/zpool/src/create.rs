//! `zpool create`: the vdev grammar, checks on replication, and the dry run.

use crate::args;
use cli::{Client, Stop, assignments, done};
use control_api::{ErrorKind, Failure, PoolCreate, Request, VdevSpec};
use std::io::{Seek, SeekFrom};

/// Devices of one group may differ by so many bytes (OpenZFS: `ZPOOL_FUZZ`).
const SIZE_FUZZ: u64 = 16 << 20;

/// Runs the verb.
pub fn run(client: &Client, arguments: args::Create) -> Result<u8, Stop> {
    let vdevs = parse_vdevs(&arguments.vdevs).map_err(|why| Failure::new(ErrorKind::Invalid, "invalid vdev specification", why))?;
    let forceable = mismatch(&vdevs).or_else(|| vdevs.iter().find_map(|vdev| different_sizes(vdev, &size_of)));
    if let (false, Some(why)) = (arguments.force, forceable) {
        let what = "invalid vdev specification\nuse '-f' to override the following errors:";
        eprintln!("{what}\n{why}");
        return Ok(cli::EXIT_FAILURE);
    }
    let (pool, dry_run) = (arguments.pool.clone(), arguments.dry_run);
    let request = PoolCreate {
        pool: arguments.pool,
        vdevs: vdevs.clone(),
        properties: assignments(&arguments.properties)?,
        fs_properties: assignments(&arguments.fs_properties)?,
        mountpoint: arguments.mountpoint,
        altroot: arguments.altroot,
        force: arguments.force,
        dry_run,
        no_features: arguments.no_features,
    };
    // The daemon checks names, devices and properties also for a dry run, and then changes nothing.
    let code = done(client, &Request::PoolCreate(request))?;
    if dry_run {
        print!("{}", layout(&pool, &vdevs));
    }
    Ok(code)
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
            return Err(format!("{word} requires at least {least} devices"));
        }
        vdevs.push(if kind == "mirror" { VdevSpec::Mirror { children } } else { VdevSpec::Raidz { parity, children } });
        rest = &after[count..];
    }
    Ok(vdevs)
}

/// Why these top-levels do not go together, as OpenZFS refuses them without `-f` (`check_replication`).
fn mismatch(vdevs: &[VdevSpec]) -> Option<String> {
    let kind = |vdev: &VdevSpec| match vdev {
        VdevSpec::Leaf { path } if std::path::Path::new(path).is_file() => ("file", 0, 1),
        VdevSpec::Leaf { .. } => ("disk", 0, 1),
        VdevSpec::Mirror { children } => ("mirror", 0, children.len()),
        VdevSpec::Raidz { parity, children } => ("raidz", *parity, children.len()),
    };
    let (first, parity, width) = kind(vdevs.first()?);
    let is_leaf = |kind: &str| matches!(kind, "file" | "disk");
    vdevs.iter().skip(1).map(kind).find_map(|(other, other_parity, count)| {
        if other != first && !(is_leaf(other) && is_leaf(first)) {
            Some(format!("mismatched replication level: both {first} and {other} vdevs are present"))
        } else if other_parity != parity {
            Some(format!("mismatched replication level: both {parity} and {other_parity} device parity {first} vdevs are present"))
        } else if count != width {
            Some(format!("mismatched replication level: both {width}-way and {count}-way {first} vdevs are present"))
        } else {
            None
        }
    })
}

fn size_of(path: &str) -> Option<u64> {
    std::fs::File::open(path).ok()?.seek(SeekFrom::End(0)).ok()
}

/// A group whose devices differ much in size wastes the larger ones.
fn different_sizes(vdev: &VdevSpec, size_of: &dyn Fn(&str) -> Option<u64>) -> Option<String> {
    let (name, children) = match vdev {
        VdevSpec::Leaf { .. } => return None,
        VdevSpec::Mirror { children } => ("mirror", children),
        VdevSpec::Raidz { children, .. } => ("raidz", children),
    };
    let sizes = children.iter().filter_map(|child| match child {
        VdevSpec::Leaf { path } => size_of(path),
        _ => None,
    });
    let (least, most) = sizes.fold((u64::MAX, 0), |(least, most), size| (least.min(size), most.max(size)));
    (most.saturating_sub(least) > SIZE_FUZZ && least != u64::MAX).then(|| format!("{name} contains devices of different sizes"))
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
        assert_eq!(parse_vdevs(&words("raidz2 /a /b")), Err("raidz2 requires at least 3 devices".into()));
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
        let parity = parse_vdevs(&words("raidz1 /a /b /c raidz2 /d /e /f")).expect("parses");
        assert_eq!(mismatch(&parity).as_deref(), Some("mismatched replication level: both 1 and 2 device parity raidz vdevs are present"));
    }

    #[test]
    fn a_mirror_of_a_small_and_a_large_device_is_refused_without_force() {
        let mirror = parse_vdevs(&words("mirror /a /b")).expect("parses").remove(0);
        let sizes = |large: u64| move |path: &str| Some(if path == "/a" { 64 << 20 } else { large });
        assert_eq!(different_sizes(&mirror, &sizes(128 << 20)).as_deref(), Some("mirror contains devices of different sizes"));
        assert_eq!(different_sizes(&mirror, &sizes(70 << 20)), None, "a few MiB are nothing");
    }
}
