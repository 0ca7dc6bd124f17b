//! The vdev grammar of `zpool create` and `zpool add`, and the checks on replication (OpenZFS: `zpool_vdev.c`).

use crate::draid;
use cli::Stop;
use control_api::{ErrorKind, FORCEABLE, Failure, NewVdevs, VdevReport, VdevSpec};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;

/// Bytes by which devices of one group may differ (OpenZFS: `ZPOOL_FUZZ`).
const SIZE_FUZZ: u64 = 16 << 20;

/// Class of the devices that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Data,
    Special,
    Dedup,
    Log,
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

/// Folders in which names of devices without a slash are looked for (OpenZFS: `zpool_default_search_paths`).
const FOLDERS: [&str; 9] = [
    "/dev/disk/by-vdev",
    "/dev/mapper",
    "/dev/disk/by-partlabel",
    "/dev/disk/by-partuuid",
    "/dev/disk/by-label",
    "/dev/disk/by-uuid",
    "/dev/disk/by-id",
    "/dev/disk/by-path",
    "/dev",
];

/// Path that a word of the command line means: of a device, unless it begins with a slash.
pub fn device_path(word: &str) -> String {
    if word.starts_with('/') {
        return word.to_string();
    }
    let found = FOLDERS.iter().map(|folder| format!("{folder}/{word}")).find(|path| std::path::Path::new(path).exists());
    found.unwrap_or_else(|| format!("/dev/{word}"))
}

/// Reason why a word names no device: it does not begin with a slash, and nothing is called so (OpenZFS: `make_leaf_vdev`). Names of distributed spares
/// are no devices.
pub fn unknown(word: &str) -> Option<String> {
    if word.is_empty() {
        return Some("cannot open '': the name of the device is empty".to_string());
    }
    let is_known = word.starts_with('/') || word.starts_with("draid") || std::path::Path::new(&device_path(word)).exists();
    (!is_known).then(|| format!("cannot open '{word}': no such device in /dev\nmust be a full path or shorthand device name"))
}

/// Reason why the first of some words that names no device names none; words that begin a group of devices do not count.
pub fn unknown_of(words: &[String]) -> Option<String> {
    words.iter().filter(|word| !begins_group(word)).find_map(|word| unknown(word))
}

fn leaf(word: &str) -> VdevSpec {
    VdevSpec::Leaf { path: device_path(word) }
}

/// Reason why a command line names no vdevs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Reason that is said after "invalid vdev specification".
    Spec(String),
    /// Reason about a dRAID word: said as it is.
    Draid(String),
}

impl Wrong {
    fn spec<T>(why: impl Into<String>) -> Result<T, Wrong> {
        Err(Wrong::Spec(why.into()))
    }

    /// Ends the command with what is wrong.
    pub fn end(self) -> Result<u8, Stop> {
        match self {
            Wrong::Spec(why) => Err(Failure::new(ErrorKind::Invalid, "invalid vdev specification", why).into()),
            Wrong::Draid(why) => {
                cli::errln!("{why}");
                Ok(cli::EXIT_FAILURE)
            }
        }
    }
}

/// True for words that begin something else than a device.
fn begins_group(word: &str) -> bool {
    group(word).is_some() || matches!(word, "log" | "cache" | "spare" | "special" | "dedup")
}

/// The vdevs that the words of a command line name.
pub fn parse(words: &[String]) -> Result<NewVdevs, Wrong> {
    let (mut spec, mut class, mut rest) = (NewVdevs::default(), Class::Data, words);
    let (mut seen_log, mut seen) = (false, Vec::new());
    while let Some((word, after)) = rest.split_first() {
        let count = after.iter().take_while(|word| !begins_group(word)).count();
        match word.as_str() {
            "special" | "dedup" => {
                (class, rest) = (if word == "special" { Class::Special } else { Class::Dedup }, after);
                continue;
            }
            "log" if seen_log => return Wrong::spec("'log' can be specified only once"),
            "log" => {
                (class, seen_log, rest) = (Class::Log, true, after);
                continue;
            }
            "spare" | "cache" if seen.contains(word) => return Wrong::spec(format!("'{word}' can be specified only once")),
            "spare" | "cache" => {
                seen.push(word.clone());
                (class, rest) = (Class::Data, &after[count..]);
                if count == 0 {
                    return Err(no_device(word, rest));
                }
                let list = if word == "spare" { &mut spec.spares } else { &mut spec.caches };
                list.extend(after[..count].iter().map(|word| device_path(word)));
                continue;
            }
            _ => {}
        }
        let vdev = match group(word) {
            None => {
                rest = after;
                leaf(word)
            }
            Some((kind, _)) if class != Class::Data && kind != "mirror" => {
                let word = if class == Class::Log { "log" } else { "special" };
                return Wrong::spec(format!("unsupported '{word}' device: {kind}"));
            }
            Some((kind, parity)) => {
                rest = &after[count..];
                grouped((word, kind, parity), after[..count].iter().map(|word| leaf(word)).collect())?
            }
        };
        match class {
            Class::Data => spec.vdevs.push(vdev),
            Class::Special => spec.special.push(vdev),
            Class::Dedup => spec.dedup.push(vdev),
            Class::Log => spec.logs.push(vdev),
        }
    }
    if seen_log && spec.logs.is_empty() {
        return Wrong::spec("log requires at least 1 device");
    }
    Ok(spec)
}

/// Objection to `spare` or `cache` with no device, and perhaps a group, behind it.
fn no_device(word: &str, rest: &[String]) -> Wrong {
    match rest.first().and_then(|next| group(next)) {
        Some((kind, _)) if word == "cache" => Wrong::Spec(format!("unsupported 'cache' device: {kind}")),
        _ => Wrong::Spec(format!("{word} requires at least 1 devices")),
    }
}

fn grouped((word, kind, parity): (&str, &str, u8), children: Vec<VdevSpec>) -> Result<VdevSpec, Wrong> {
    let mut vdev = match kind {
        "mirror" => VdevSpec::Mirror { children },
        "raidz" => VdevSpec::Raidz { parity, children },
        // The least that the word can mean, until the number of devices is known to be enough.
        _ => VdevSpec::Draid { parity, data: 1, spares: 0, children },
    };
    let (count, widths) = (vdev.children().len(), vdev.widths());
    if count < *widths.start() {
        return Wrong::spec(format!("{word} requires at least {} devices", widths.start()));
    }
    if count > *widths.end() {
        return Wrong::spec(format!("{word} supports no more than {} devices", widths.end()));
    }
    if let VdevSpec::Draid { data, spares, .. } = &mut vdev {
        (*data, *spares) = draid::columns(word, count).map_err(Wrong::Draid)?;
    }
    Ok(vdev)
}

/// Type, parity and width in devices of a top-level vdev.
type Level<'a> = (&'a str, u8, usize);

/// Level with parity and that of the mirror, when the two are that.
fn raidz_and_mirror<'a>(one: Level<'a>, other: Level<'a>) -> Option<(Level<'a>, Level<'a>)> {
    let is_spread = |level: Level| matches!(level.0, "raidz" | "draid");
    match (one, other) {
        (raidz, mirror) | (mirror, raidz) if is_spread(raidz) && mirror.0 == "mirror" => Some((raidz, mirror)),
        _ => None,
    }
}

/// Reason why two top-levels that follow each other do not go together (OpenZFS: `get_replication`).
fn apart(last: Level, next: Level) -> Option<String> {
    if let Some((raidz, mirror)) = raidz_and_mirror(last, next) {
        // They go together when they survive as many failures.
        let redundancy = mirror.2.saturating_sub(1);
        let differ =
            || format!("{} and {} vdevs with different redundancy, {} vs. {redundancy} ({}-way)", raidz.0, mirror.0, raidz.1, mirror.2);
        return (usize::from(raidz.1) != redundancy).then(|| format!("{} are present", differ()));
    }
    let (kind, parity, width) = last;
    // Their widths are not looked at, though those of mirrors are.
    if [last, next].iter().all(|level| matches!(level.0, "raidz" | "draid")) && (kind != next.0 || parity == next.1) {
        let differ = || format!("{kind} and {} vdevs with different redundancy, {parity} vs. {} are present", next.0, next.1);
        return (parity != next.1).then(differ);
    }
    if kind != next.0 {
        Some(format!("both {kind} and {} vdevs are present", next.0))
    } else if parity != next.1 {
        Some(format!("both {parity} and {} device parity {kind} vdevs are present", next.1))
    } else if width != next.2 {
        Some(format!("both {width}-way and {}-way {kind} vdevs are present", next.2))
    } else {
        None
    }
}

/// Reason why the new top-levels do not go together, as OpenZFS refuses them without `-f` (`check_replication`).
fn mismatch(vdevs: &[VdevSpec]) -> Option<String> {
    let is_file = |spec: &VdevSpec| replication(spec).0 == "file";
    let mixed = |vdev: &VdevSpec| vdev.children().iter().any(is_file) && !vdev.children().iter().all(is_file);
    let both = vdevs.iter().find(|vdev| mixed(vdev)).map(|vdev| format!("{} contains both files and devices", replication(vdev).0));
    let differ = || vdevs.windows(2).find_map(|pair| apart(replication(&pair[0]), replication(&pair[1])));
    both.or_else(differ).map(|why| format!("mismatched replication level: {why}"))
}

/// Type, parity and width in devices of a vdev.
fn replication(vdev: &VdevSpec) -> (&'static str, u8, usize) {
    match vdev {
        VdevSpec::Leaf { path } if std::path::Path::new(path).is_file() => ("file", 0, 1),
        vdev => (vdev.kind(), vdev.parity(), vdev.children().len().max(1)),
    }
}

/// Type, parity and width in devices of a vdev of a pool, by its name (`raidz2-0`, `draid1:4d:6c:0s-0`).
fn replication_of(vdev: &VdevReport) -> (&str, u8, usize) {
    let digit = |rest: &str| rest.chars().next().and_then(|first| first.to_digit(10)).unwrap_or(1) as u8;
    match vdev.kind.as_str() {
        kind @ ("raidz" | "draid") => (kind, vdev.name.strip_prefix(kind).map_or(1, digit), vdev.children.len()),
        kind => (kind, 0, vdev.children.len().max(1)),
    }
}

/// Reason why new top-levels, which go together, do not go with those of a pool (OpenZFS: `check_replication`). A pool whose own
/// top-levels differ takes anything.
fn differs_from_pool(pool: &VdevReport, vdevs: &[VdevSpec]) -> Option<String> {
    let present: Vec<Level> = pool.children.iter().filter(|top| !top.is_log && top.kind != "hole").map(replication_of).collect();
    let current = *present.last()?;
    if present.windows(2).any(|pair| apart(pair[0], pair[1]).is_some()) {
        return None;
    }
    let new = replication(vdevs.last()?);
    let pair = raidz_and_mirror(current, new);
    let why = match pair {
        Some((raidz, mirror)) if usize::from(raidz.1) + 1 == mirror.2 => return None,
        Some((raidz, mirror)) => format!(
            "pool and new vdev with different redundancy, {} and {} vdevs, {} vs. {} ({}-way)",
            raidz.0,
            mirror.0,
            raidz.1,
            mirror.2 - 1,
            mirror.2
        ),
        None if current.0 != new.0 => format!("pool uses {} and new vdev is {}", current.0, new.0),
        None if current.1 != new.1 => format!("pool uses {} device parity and new vdev uses {}", current.1, new.1),
        None if current.2 != new.2 => {
            format!("pool uses {}-way {} and new vdev uses {}-way {}", current.2, current.0, new.2, new.0)
        }
        None => return None,
    };
    Some(format!("mismatched replication level: {why}"))
}

/// Reason why the devices of one of the vdevs do not go together.
fn unequal(vdevs: &[VdevSpec]) -> Option<String> {
    vdevs.iter().find_map(|vdev| different_sizes(vdev, &size_of))
}

/// Objections to the new top-levels as a whole, which `-f` overrides: that they do not go together, or with those of the `pool` that is to have
/// them, and that the devices of one differ in size.
pub fn objections(vdevs: &[VdevSpec], pool: Option<&VdevReport>) -> Vec<String> {
    let apart = mismatch(vdevs).or_else(|| differs_from_pool(pool?, vdevs));
    apart.into_iter().chain(unequal(vdevs)).collect()
}

/// Failure that tells of everything that `-f` would override: of what the devices hold first, as the daemon `answered` to a dry run, then of
/// `objections` to the vdevs. What force does not help against is told alone.
pub fn objected(objections: &[String], answered: Result<u8, Failure>) -> Failure {
    let lines = format!("\n{}", objections.join("\n"));
    match answered {
        Ok(_) => Failure::new(ErrorKind::Invalid, FORCEABLE, lines),
        Err(mut failure) if failure.what == FORCEABLE => {
            failure.why += &lines;
            failure
        }
        Err(failure) => failure,
    }
}

/// Words on the first device, spares included, that is not there, as OpenZFS has them for each (`make_leaf_vdev`); None when all are. To be said before
/// anything that `-f` would let pass: it brings none, and without it the others may go together.
pub fn unresolved(wanted: &NewVdevs) -> Option<String> {
    absent(wanted).map(|path| format!("cannot resolve path '{path}'"))
}

/// Ends a command for a device that is not there, for the reason `why`; below it stands what the other devices hold, as the daemon `answered` to a dry
/// run, which failed for the same reason.
pub fn absent_beside(why: &str, answered: Result<u8, Failure>) -> u8 {
    cli::errln!("{why}");
    if let Some((_, others)) = answered.err().as_ref().and_then(|failure| failure.why.split_once('\n')) {
        cli::errln!("{others}");
    }
    cli::EXIT_FAILURE
}

fn absent(wanted: &NewVdevs) -> Option<&str> {
    let is_absent = |path: &&str| std::fs::metadata(path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
    wanted.paths().chain(wanted.beside()).find(is_absent)
}

/// Lines of a dry run for some vdevs, as deep as the children of a pool (OpenZFS: `print_vdev_tree`).
pub fn vdev_lines(vdevs: &[VdevSpec], name: &dyn Fn(&str) -> String) -> String {
    let mut text = String::new();
    for vdev in vdevs {
        let first = if let VdevSpec::Leaf { path } = vdev { name(path) } else { vdev.word() };
        text.push_str(&format!("\t  {first}\n"));
        let below = vdev.children().iter().flat_map(VdevSpec::paths);
        below.for_each(|path| text.push_str(&format!("\t    {}\n", name(path))));
    }
    text
}

fn size_of(path: &str) -> Option<u64> {
    let kind = std::fs::metadata(path).ok()?.file_type();
    // A FIFO's other end is not waited for: what is no device is refused later.
    if !kind.is_file() && !kind.is_block_device() {
        return None;
    }
    std::fs::File::open(path).ok()?.seek(SeekFrom::End(0)).ok()
}

/// Objection to a group whose devices differ much in size: it wastes the larger ones.
fn different_sizes(vdev: &VdevSpec, size_of: &dyn Fn(&str) -> Option<u64>) -> Option<String> {
    let sizes = vdev.children().iter().flat_map(VdevSpec::paths).filter_map(size_of);
    let (least, most) = sizes.fold((u64::MAX, 0), |(least, most), size| (least.min(size), most.max(size)));
    (most.saturating_sub(least) > SIZE_FUZZ && least != u64::MAX).then(|| format!("{} contains devices of different sizes", vdev.kind()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[String]) -> Result<Vec<VdevSpec>, Wrong> {
        parse(words).map(|spec| spec.vdevs)
    }

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(String::from).collect()
    }

    /// If this fails, who has an empty variable in a script is told of a folder that nobody named.
    #[test]
    fn an_empty_name_is_told_as_one() {
        assert_eq!(unknown_of(&words("mirror /a ")).as_deref(), Some("cannot open '': the name of the device is empty"));
    }

    #[test]
    fn the_grammar_makes_the_groups_a_user_wrote() {
        let vdevs = parsed(&words("mirror /a /b mirror /c /d")).expect("two mirrors");
        assert_eq!(vdevs.len(), 2);
        assert_eq!(parsed(&words("raidz2 /a /b")), Err(Wrong::Spec("raidz2 requires at least 3 devices".into())));
        assert!(matches!(parsed(&words("sda")).expect("a disk").as_slice(), [VdevSpec::Leaf { path }] if path == "/dev/sda"));
    }

    #[test]
    fn a_stripe_beside_a_mirror_is_refused_without_force() {
        let mixed = parsed(&words("/x mirror /a /b")).expect("parses");
        assert!(mismatch(&mixed).is_some());
        let widths = parsed(&words("raidz1 /a /b raidz1 /c /d /e")).expect("parses");
        assert!(mismatch(&widths).is_some());
        for text in ["mirror /a /b raidz1 /c /d /e", "raidz2 /a /b /c mirror /d /e /f"] {
            assert_eq!(mismatch(&parsed(&words(text)).expect("parses")), None, "{text}: as many may be lost");
        }
        let less = parsed(&words("raidz2 /a /b /c /d mirror /e /f")).expect("parses");
        let said = "mismatched replication level: raidz and mirror vdevs with different redundancy, 2 vs. 1 (2-way) are present";
        assert_eq!(mismatch(&less).as_deref(), Some(said));
        let same = parsed(&words("raidz1 /a /b raidz1 /c /d")).expect("parses");
        assert!(mismatch(&same).is_none());
        let parity = parsed(&words("raidz1 /a /b /c raidz2 /d /e /f")).expect("parses");
        assert_eq!(mismatch(&parity).as_deref(), Some("mismatched replication level: both 1 and 2 device parity raidz vdevs are present"));
    }

    #[test]
    fn draid_words_make_the_group_and_go_with_raidz_of_the_same_parity() {
        let vdevs = parsed(&words("draid2:3d:1s /a /b /c /d /e /f raidz2 /g /h /i /j")).expect("parses");
        assert!(matches!(&vdevs[0], VdevSpec::Draid { parity: 2, data: 3, spares: 1, children } if children.len() == 6));
        assert_eq!(mismatch(&vdevs), None);
        assert!(vdev_lines(&vdevs, &str::to_string).contains("\t  draid2:3d:6c:1s\n"));
        let differ = parsed(&words("draid /a /b /c raidz2 /g /h /i")).expect("parses");
        let said = "mismatched replication level: draid and raidz vdevs with different redundancy, 1 vs. 2 are present";
        assert_eq!(mismatch(&differ).as_deref(), Some(said));
        assert_eq!(parsed(&words("draid2 /a /b")), Err(Wrong::Spec("draid2 requires at least 3 devices".into())));
        assert!(matches!(parsed(&words("draid:9c /a /b")), Err(Wrong::Draid(_))));
    }

    #[test]
    fn a_mirror_of_a_small_and_a_large_device_is_refused_without_force() {
        let mirror = parsed(&words("mirror /a /b")).expect("parses").remove(0);
        let sizes = |large: u64| move |path: &str| Some(if path == "/a" { 64 << 20 } else { large });
        assert_eq!(different_sizes(&mirror, &sizes(128 << 20)).as_deref(), Some("mirror contains devices of different sizes"));
        assert_eq!(different_sizes(&mirror, &sizes(70 << 20)), None, "a few MiB are nothing");
    }

    /// If this fails, whoever reads of a small mistake and forces the command loses an archive on one of the devices, of which nobody told.
    #[test]
    fn contents_of_devices_are_told_before_what_does_not_go_together() {
        let objections = objections(&parsed(&words("/x mirror /a /b")).expect("parses"), None);
        let mismatch = "mismatched replication level: both disk and mirror vdevs are present";
        assert_eq!(objections, [mismatch]);
        let alone = objected(&objections, Ok(0)).to_string();
        assert_eq!(alone, format!("invalid vdev specification\nuse '-f' to override the following errors:\n{mismatch}"));
        let holds = Failure::new(ErrorKind::Busy, FORCEABLE, "\n/a contains a filesystem of type 'tar'").advise("lost");
        let both = objected(&objections, Err(holds)).to_string();
        assert_eq!(both, format!("{FORCEABLE}:\n/a contains a filesystem of type 'tar'\n{mismatch}\nlost"));
        let fixed = Failure::new(ErrorKind::Busy, "cannot create 'tank'", "pool already exists");
        assert_eq!(objected(&objections, Err(fixed.clone())), fixed);
    }

    /// If this fails, whoever mistypes a path reads of mismatched replication, and is told to use force.
    #[test]
    fn a_device_that_is_not_there_is_told_of_first() {
        let there = std::env::current_exe().expect("a program").display().to_string();
        let absent_of = |text: &str| absent(&parse(&words(text)).expect("parses")).map(str::to_string);
        assert_eq!(absent_of(&format!("mirror {there} /nowhere/b")).as_deref(), Some("/nowhere/b"));
        assert_eq!(absent_of(&format!("{there} spare /nowhere/s")).as_deref(), Some("/nowhere/s"));
        assert_eq!(absent_of(&format!("{there} log {there}")), None);
    }

    #[test]
    fn logs_spares_and_caches_stand_behind_their_words() {
        let spec = parse(&words("mirror /a /b spare /s /t cache /u log mirror /l /m")).expect("parses");
        assert_eq!((spec.vdevs.len(), spec.logs.len(), spec.spares), (1, 1, vec!["/s".to_string(), "/t".to_string()]));
        assert_eq!(spec.caches, ["/u"]);
        let said = |text: &str| match parse(&words(text)) {
            Err(Wrong::Spec(why)) => why,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(said("log raidz /a /b"), "unsupported 'log' device: raidz");
        assert_eq!(said("/a log"), "log requires at least 1 device");
        assert_eq!(said("spare /a spare /b"), "'spare' can be specified only once");
        assert_eq!(said("/a cache /b cache /c"), "'cache' can be specified only once");
        assert_eq!(said("/a cache"), "cache requires at least 1 devices");
        assert_eq!(said("/a cache mirror /b /c"), "unsupported 'cache' device: mirror");
    }

    /// If this fails, a disk that was meant for metadata becomes a place for files, for good, or one without redundancy may lose the whole pool.
    #[test]
    fn vdevs_for_some_blocks_stand_behind_their_words_and_have_the_redundancy_of_the_others() {
        let spec = |text: &str| parse(&words(text));
        let all = spec("special /s mirror /a /b special mirror /c /d dedup /e /f log /l").expect("parses");
        assert_eq!((all.vdevs.len(), all.special.len(), all.dedup.len(), all.logs.len()), (0, 3, 2, 1), "until the next word");
        let some = spec("raidz /a /b /c special mirror /d /e log /l dedup mirror /f /g spare /s").expect("parses");
        assert_eq!((some.vdevs.len(), some.special.len(), some.dedup.len(), some.logs.len(), some.spares.len()), (1, 1, 1, 1, 1));
        for word in ["special", "dedup"] {
            let refused = spec(&format!("/a {word} raidz /b /c"));
            assert_eq!(refused, Wrong::spec("unsupported 'special' device: raidz"));
        }
        let objected = |text: &str| objections(&spec(text).expect("parses").data().cloned().collect::<Vec<_>>(), None);
        assert_eq!(objected("mirror /a /b special mirror /c /d dedup mirror /e /f"), [""; 0]);
        assert_eq!(objected("raidz /a /b /c special mirror /d /e"), [""; 0], "as many may be lost");
        assert_eq!(objected("draid /a /b /c draid /d /e /f /g special mirror /h /i"), [""; 0], "as many may be lost of each");
        for (text, why) in [
            ("raidz /a /b /c special /d", "both raidz and disk vdevs are present"),
            ("/a special mirror /b /c", "both disk and mirror vdevs are present"),
            ("mirror /a /b dedup mirror /c /d /e", "both 2-way and 3-way mirror vdevs are present"),
        ] {
            assert_eq!(objected(text), [format!("mismatched replication level: {why}")], "{text}");
        }
    }

    /// If this fails, a disk becomes a stripe of a redundant pool by a slip, for good.
    #[test]
    fn a_vdev_that_does_not_go_with_the_pool_is_refused_without_force() {
        let top = |kind: &str, name: &str, width: usize| VdevReport {
            kind: kind.into(),
            name: name.into(),
            children: vec![VdevReport::default(); width],
            ..VdevReport::default()
        };
        let pool = |tops: Vec<VdevReport>| VdevReport { children: tops, ..VdevReport::default() };
        let against = |tops: Vec<VdevReport>, text: &str| differs_from_pool(&pool(tops), &parsed(&words(text)).expect("parses"));
        let mirror = || top("mirror", "mirror-0", 2);
        let said = against(vec![mirror()], "/x").expect("a stripe");
        assert_eq!(said, "mismatched replication level: pool uses mirror and new vdev is disk");
        assert_eq!(against(vec![mirror()], "mirror /x /y"), None);
        assert_eq!(against(vec![mirror()], "raidz1 /x /y /z"), None, "as many may be lost");
        let said = against(vec![top("raidz", "raidz2-0", 4)], "mirror /x /y").expect("less redundancy");
        assert_eq!(
            said,
            "mismatched replication level: pool and new vdev with different redundancy, raidz and mirror vdevs, 2 vs. 1 (2-way)"
        );
        let said = against(vec![top("raidz", "raidz1-0", 3)], "raidz2 /x /y /z").expect("another parity");
        assert_eq!(said, "mismatched replication level: pool uses 1 device parity and new vdev uses 2");
        let said = against(vec![mirror()], "mirror /x /y /z").expect("another width");
        assert_eq!(said, "mismatched replication level: pool uses 2-way mirror and new vdev uses 3-way mirror");
        assert_eq!(against(vec![mirror(), top("file", "/a", 0)], "/x"), None, "a pool that is mixed already");
    }
}
