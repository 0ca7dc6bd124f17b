//! `zpool create`: the vdev grammar, checks on replication, and the dry run.

use crate::{args, draid};
use cli::{Client, Stop, assignments, done};
use control_api::{ErrorKind, Failure, PoolCreate, Request, VdevSpec};
use std::io::{Seek, SeekFrom};

/// Devices of one group may differ by so many bytes (OpenZFS: `ZPOOL_FUZZ`).
const SIZE_FUZZ: u64 = 16 << 20;

/// Runs the verb.
pub fn run(client: &Client, arguments: args::Create) -> Result<u8, Stop> {
    let vdevs = match parse_vdevs(&arguments.vdevs) {
        Ok(vdevs) => vdevs,
        Err(Wrong::Spec(why)) => return Err(Failure::new(ErrorKind::Invalid, "invalid vdev specification", why).into()),
        Err(Wrong::Draid(why)) => {
            eprintln!("{why}");
            return Ok(cli::EXIT_FAILURE);
        }
    };
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
        _ => Some(("draid", draid::parity(word)?)),
    }
}

/// The path that a word of the command line means: below /dev, unless it has a slash.
pub(crate) fn device_path(word: &str) -> String {
    if word.contains('/') {
        std::path::absolute(word).map_or_else(|_| word.to_string(), |path| path.to_string_lossy().into_owned())
    } else {
        format!("/dev/{word}")
    }
}

fn leaf(word: &str) -> VdevSpec {
    VdevSpec::Leaf { path: device_path(word) }
}

/// Why a command line names no vdevs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wrong {
    /// Said after "invalid vdev specification".
    Spec(String),
    /// About a dRAID word: said as it is.
    Draid(String),
}

fn parse_vdevs(words: &[String]) -> Result<Vec<VdevSpec>, Wrong> {
    let mut vdevs = Vec::new();
    let mut rest = words;
    while let Some((word, after)) = rest.split_first() {
        if matches!(word.as_str(), "log" | "cache" | "spare" | "special" | "dedup") {
            return Err(Wrong::Spec(format!("'{word}' vdevs are not available in this version")));
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
            return Err(Wrong::Spec(format!("{word} requires at least {least} devices")));
        }
        if kind != "mirror" && children.len() > 255 {
            return Err(Wrong::Spec(format!("{word} supports no more than 255 devices")));
        }
        vdevs.push(match kind {
            "mirror" => VdevSpec::Mirror { children },
            "raidz" => VdevSpec::Raidz { parity, children },
            _ => {
                let shape = draid::shape(word, children.len()).map_err(Wrong::Draid)?;
                VdevSpec::Draid { parity, data: shape.data, spares: shape.spares, children }
            }
        });
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
        VdevSpec::Draid { parity, children, .. } => ("draid", *parity, children.len()),
    };
    let (first, parity, width) = kind(vdevs.first()?);
    let is_leaf = |kind: &str| matches!(kind, "file" | "disk");
    vdevs.iter().skip(1).map(kind).find_map(|(other, other_parity, count)| {
        let is_grouped = |kind: &str| matches!(kind, "raidz" | "draid");
        if (other == "draid" || first == "draid") && is_grouped(other) && is_grouped(first) {
            // They go together when they survive as many failures.
            let differ = format!("{first} and {other} vdevs with different redundancy, {parity} vs. {other_parity} are present");
            return (parity != other_parity).then(|| format!("mismatched replication level: {differ}"));
        }
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
        VdevSpec::Draid { children, .. } => ("draid", children),
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
            VdevSpec::Draid { parity, data, spares, children } => {
                (format!("draid{parity}:{data}d:{}c:{spares}s", children.len()), children.as_slice())
            }
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
        assert_eq!(parse_vdevs(&words("raidz2 /a /b")), Err(Wrong::Spec("raidz2 requires at least 3 devices".into())));
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
    fn draid_words_make_the_group_and_go_with_raidz_of_the_same_parity() {
        let vdevs = parse_vdevs(&words("draid2:3d:1s /a /b /c /d /e /f raidz2 /g /h /i /j")).expect("parses");
        assert!(matches!(&vdevs[0], VdevSpec::Draid { parity: 2, data: 3, spares: 1, children } if children.len() == 6));
        assert_eq!(mismatch(&vdevs), None);
        assert!(layout("tank", &vdevs).contains("\t  draid2:3d:6c:1s\n"));
        let differ = parse_vdevs(&words("draid /a /b /c raidz2 /g /h /i")).expect("parses");
        let said = "mismatched replication level: draid and raidz vdevs with different redundancy, 1 vs. 2 are present";
        assert_eq!(mismatch(&differ).as_deref(), Some(said));
        assert_eq!(parse_vdevs(&words("draid2 /a /b")), Err(Wrong::Spec("draid2 requires at least 3 devices".into())));
        assert!(matches!(parse_vdevs(&words("draid:9c /a /b")), Err(Wrong::Draid(_))));
    }

    #[test]
    fn a_mirror_of_a_small_and_a_large_device_is_refused_without_force() {
        let mirror = parse_vdevs(&words("mirror /a /b")).expect("parses").remove(0);
        let sizes = |large: u64| move |path: &str| Some(if path == "/a" { 64 << 20 } else { large });
        assert_eq!(different_sizes(&mirror, &sizes(128 << 20)).as_deref(), Some("mirror contains devices of different sizes"));
        assert_eq!(different_sizes(&mirror, &sizes(70 << 20)), None, "a few MiB are nothing");
    }
}
