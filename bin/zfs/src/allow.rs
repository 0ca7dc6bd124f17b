//! `zfs allow` and `zfs unallow`: permissions that are delegated to users, in OpenZFS's words (`parse_allow_args`, `construct_fsacl_list`), and as it
//! shows them (`print_fs_perms`).

use crate::userspace::names;
use clap::Args;
use cli::property::{DATASET, described};
use cli::{Client, Stop, done};
use control_api::{AllowChange, AllowEntry, AllowQuery, AllowReport, OwnerReport, Request, Response};
use std::collections::BTreeMap;

/// Characters of the line above the permissions of a dataset.
const HEADING_WIDTH: usize = 70;

/// Names of users and groups, by kind and number.
type Names = BTreeMap<(String, u64), String>;

/// `zfs allow`, and what `zfs unallow` has besides `-r`.
#[derive(Args, Clone, Debug, Default)]
pub struct Allow {
    /// What whoever makes a dataset in it gets there.
    #[arg(short)]
    pub create: bool,
    /// For what lies below the dataset; with -l, as without either, also for itself.
    #[arg(short)]
    pub descendants: bool,
    /// To everyone.
    #[arg(short)]
    pub everyone: bool,
    /// The names are those of groups.
    #[arg(short)]
    pub group: bool,
    /// For the dataset itself.
    #[arg(short)]
    pub local: bool,
    /// A set of permissions, whose name begins with @.
    #[arg(short)]
    pub set: bool,
    /// The names are those of users.
    #[arg(short)]
    pub user: bool,
    /// Names of users and groups, everyone, or the name of a set; permissions and sets; the dataset.
    #[arg(value_name = "who perm|@set filesystem|volume")]
    pub words: Vec<String>,
}

/// `zfs unallow`.
#[derive(Args, Clone, Debug, Default)]
pub struct Unallow {
    /// Below the dataset, too.
    #[arg(short)]
    pub recursive: bool,
    /// Whose permissions, and which; all where none is named.
    #[command(flatten)]
    pub allow: Allow,
}

/// Kinds of those to whom permissions are delegated, by their letters in pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Set,
    Creator,
    Everyone,
    /// Users, or groups, or whichever there is.
    Named(Option<Database>),
}

/// Database of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Database {
    Users,
    Groups,
}

/// Words of a command line, by what they mean.
#[derive(Debug, PartialEq)]
struct Meant {
    kind: Kind,
    /// Names of users, groups or a set; empty for the others.
    who: String,
    /// Permissions; None to take all back.
    permissions: Option<String>,
    dataset: String,
}

/// Tells what the words of a command line mean; None to show permissions.
fn meant(arguments: &Allow, is_taking: bool) -> Result<Option<Meant>, Stop> {
    let Allow { create, descendants, everyone, group, local, set, user, words } = arguments;
    let count = |flags: &[&bool]| flags.iter().filter(|flag| ***flag).count();
    let (named, placed) = (count(&[user, group, everyone]), count(&[local, descendants]));
    let kinds = named + count(&[create, set]);
    if named > 1 {
        return Err(Stop::usage("-u, -g, and -e are mutually exclusive"));
    }
    let wrong = |letter: char| Err(Stop::usage(format!("invalid options combined with -{letter}")));
    // How many words there are besides the permissions and the dataset.
    let take = |kind: Kind, before: usize| {
        let words = &words[usize::from(kind == Kind::Everyone && !*everyone)..];
        let rest = words.get(before..).unwrap_or_default();
        let (permissions, dataset) = match rest {
            [dataset] if is_taking => (None, dataset),
            [permissions, dataset] => (Some(permissions.clone()), dataset),
            _ => return Err(Stop::usage("wrong number of parameters")),
        };
        let who = words.first().filter(|_| before > 0).cloned().unwrap_or_default();
        Ok(Some(Meant { kind, who, permissions, dataset: dataset.clone() }))
    };
    match words.first().map(String::as_str) {
        _ if *set && kinds > 1 => wrong('s'),
        Some(name) if *set && !name.starts_with('@') => Err(Stop::usage("invalid set name: missing '@' prefix")),
        _ if *set => take(Kind::Set, 1),
        _ if *create && kinds + placed > 1 => wrong('c'),
        _ if *create => take(Kind::Creator, 0),
        _ if *everyone && kinds > 1 => wrong('e'),
        _ if *everyone => take(Kind::Everyone, 0),
        Some("everyone") if named == 0 => take(Kind::Everyone, 0),
        Some(_) if words.len() == 1 && !is_taking => Ok(None),
        _ if *user => take(Kind::Named(Some(Database::Users)), 1),
        _ if *group => take(Kind::Named(Some(Database::Groups)), 1),
        _ => take(Kind::Named(None), 1),
    }
}

/// Number of a user or group: of a name, or of a number that is known.
fn known(database: Database, word: &str) -> Option<u32> {
    let name = if database == Database::Users { "passwd" } else { "group" };
    // Names may come from elsewhere than /etc.
    let found = std::process::Command::new("getent").args([name, "--", word]).output().ok()?;
    String::from_utf8_lossy(&found.stdout).lines().next()?.split(':').nth(2)?.parse().ok()
}

/// Letter and number of a user or group.
fn somebody(wanted: Option<Database>, word: &str) -> Result<(char, String), Stop> {
    let letter = |database: Database| if database == Database::Users { 'u' } else { 'g' };
    let number = word.parse::<u32>().ok();
    let found = match wanted {
        // Somebody may be gone, or be known elsewhere.
        Some(database) => known(database, word).or(number).map(|id| (letter(database), id)),
        None => [Database::Users, Database::Groups].into_iter().find_map(|database| Some((letter(database), known(database, word)?))),
    };
    let kind = match wanted {
        Some(Database::Users) => "user",
        Some(Database::Groups) => "group",
        None => "user/group",
    };
    let (letter, id) = found.ok_or_else(|| Stop::usage(format!("invalid {kind} {word}")))?;
    Ok((letter, id.to_string()))
}

/// Entries as pools store them: permissions and sets apart, for each place where they hold; all of somebody's are entries without permissions.
fn entries(arguments: &Allow, meant: &Meant) -> Result<Vec<AllowEntry>, Stop> {
    let somebodies = match meant.kind {
        Kind::Set => vec![('s', meant.who.clone())],
        Kind::Creator => vec![('c', String::new())],
        Kind::Everyone => vec![('e', String::new())],
        Kind::Named(wanted) => meant.who.split(',').map(|word| somebody(wanted, word)).collect::<Result<_, _>>()?,
    };
    let both = !arguments.local && !arguments.descendants;
    let places: &[char] = match meant.kind {
        Kind::Set | Kind::Creator => &['-'],
        _ if both || arguments.local && arguments.descendants => &['l', 'd'],
        _ if arguments.local => &['l'],
        _ => &['d'],
    };
    // By their own names: `compress` is `compression`.
    let own = |word: &str| described(DATASET, word).map_or_else(|| word.to_string(), |known| known.name.to_string());
    let words: Vec<&str> = meant.permissions.iter().flat_map(|list| list.split(',')).collect();
    let (sets, plain): (Vec<&str>, Vec<&str>) = words.into_iter().partition(|word| word.starts_with('@'));
    let (sets, plain): (Vec<String>, Vec<String>) = (sets.into_iter().map(String::from).collect(), plain.into_iter().map(own).collect());
    let mut entries = Vec::new();
    for (letter, name) in somebodies {
        for place in places {
            for (letter, permissions) in [(letter, &plain), (letter.to_ascii_uppercase(), &sets)] {
                if meant.permissions.is_none() || !permissions.is_empty() {
                    entries.push(AllowEntry { who: format!("{letter}{place}${name}"), permissions: permissions.clone() });
                }
            }
        }
    }
    Ok(entries)
}

/// Runs `zfs allow`.
pub fn run(client: &Client, arguments: &Allow) -> Result<u8, Stop> {
    match meant(arguments, false)? {
        Some(meant) => change(client, arguments, &meant, (false, false)),
        None => show(client, arguments.words.first().cloned().unwrap_or_default()),
    }
}

/// Runs `zfs unallow`.
pub fn take_back(client: &Client, arguments: &Unallow) -> Result<u8, Stop> {
    match meant(&arguments.allow, true)? {
        Some(meant) => change(client, &arguments.allow, &meant, (true, arguments.recursive)),
        None => Err(Stop::usage("wrong number of parameters")),
    }
}

fn change(client: &Client, arguments: &Allow, meant: &Meant, (remove, recursive): (bool, bool)) -> Result<u8, Stop> {
    let entries = entries(arguments, meant)?;
    Ok(done(client, &Request::AllowChange(AllowChange { name: meant.dataset.clone(), entries, remove, recursive }))?)
}

/// Shows the permissions of a dataset.
fn show(client: &Client, name: String) -> Result<u8, Stop> {
    let reports = match client.call(&Request::Allow(AllowQuery { name }))? {
        Response::Allowed(reports) => reports,
        other => return Err(cli::unexpected("cannot get permissions", other).into()),
    };
    let owner = |entry: &AllowEntry| {
        let (who, id) = (kind_of(entry)?.to_string(), name_of(entry).parse().ok()?);
        Some(OwnerReport { who, id, ..OwnerReport::default() })
    };
    let owners: Vec<OwnerReport> = reports.iter().flat_map(|report| report.entries.iter().filter_map(owner)).collect();
    let names = names(&owners);
    reports.iter().for_each(|report| cli::out!("{}", text(report, &names)));
    Ok(0)
}

/// Kind of whom permissions were delegated to; None for sets and creators.
fn kind_of(entry: &AllowEntry) -> Option<&'static str> {
    match entry.who.chars().next()?.to_ascii_lowercase() {
        'u' => Some("user"),
        'g' => Some("group"),
        'e' => Some("everyone"),
        _ => None,
    }
}

/// Number or name behind the `$`.
fn name_of(entry: &AllowEntry) -> &str {
    entry.who.split_once('$').map_or("", |(_, name)| name)
}

/// Text about one dataset.
fn text(report: &AllowReport, names: &Names) -> String {
    let heading = format!("---- Permissions on {} ", report.name);
    let mut text = format!("{heading:-<HEADING_WIDTH$}\n");
    for (letter, title) in [('s', "Permission sets"), ('c', "Create time permissions")] {
        let mut sets: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for entry in report.entries.iter().filter(|entry| entry.who.to_ascii_lowercase().starts_with(letter)) {
            sets.entry(name_of(entry)).or_default().extend(entry.permissions.iter().map(String::as_str));
        }
        if !sets.is_empty() {
            text += &format!("{title}:\n");
        }
        for (name, mut permissions) in sets {
            permissions.sort_unstable();
            let name = if name.is_empty() { String::new() } else { format!("{name} ") };
            text += &format!("\t{name}{}\n", permissions.join(","));
        }
    }
    for (title, is_local, is_below) in
        [("Local permissions", true, false), ("Descendent permissions", false, true), ("Local+Descendent permissions", true, true)]
    {
        let lines = lines(report, names, (is_local, is_below));
        if !lines.is_empty() {
            text += &format!("{title}:\n{lines}");
        }
    }
    text
}

/// Permissions, each with whether it holds at a dataset and below it.
type Held<'a> = BTreeMap<&'a str, (bool, bool)>;

/// Lines of the permissions that hold at just these places: at the dataset, below it.
fn lines(report: &AllowReport, names: &Names, places: (bool, bool)) -> String {
    // By kind and number or name, in OpenZFS's order; each permission with the places where it holds.
    let mut found: BTreeMap<(usize, &str), Held> = BTreeMap::new();
    for entry in &report.entries {
        let Some(kind) = kind_of(entry) else { continue };
        let order = ["user", "group", "everyone"].iter().position(|known| *known == kind).unwrap_or_default();
        let permissions = found.entry((order, name_of(entry))).or_default();
        for permission in &entry.permissions {
            let held = permissions.entry(permission.as_str()).or_default();
            match entry.who.as_bytes().get(1) {
                Some(b'l') => held.0 = true,
                Some(b'd') => held.1 = true,
                _ => {}
            }
        }
    }
    let mut text = String::new();
    for ((order, number), permissions) in found {
        let these: Vec<&str> = permissions.into_iter().filter(|(_, held)| *held == places).map(|(permission, _)| permission).collect();
        if these.is_empty() {
            continue;
        }
        let known = |kind: &str| number.parse().ok().and_then(|id| names.get(&(kind.to_string(), id)).cloned());
        let somebody = |kind: &str| format!("{kind} {}", known(kind).unwrap_or_else(|| format!("(unknown: {number})")));
        let who = match order {
            0 => somebody("user"),
            1 => somebody("group"),
            _ => "everyone".to_string(),
        };
        text += &format!("\t{who} {}\n", these.join(","));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(flags: &str, words: &str) -> Allow {
        let has = |letter: char| flags.contains(letter);
        Allow {
            create: has('c'),
            descendants: has('d'),
            everyone: has('e'),
            group: has('g'),
            local: has('l'),
            set: has('s'),
            user: has('u'),
            words: words.split_whitespace().map(String::from).collect(),
        }
    }

    /// If this fails, somebody is allowed what was meant for somebody else, at another place, or other permissions.
    #[test]
    fn words_are_taken_apart_as_openzfs_does() {
        let told = |flags: &str, words: &str, is_taking: bool| {
            let arguments = of(flags, words);
            let meant = meant(&arguments, is_taking).expect("a line").expect("a change");
            let entries = entries(&arguments, &meant).expect("entries");
            let entries: Vec<String> = entries.iter().map(|entry| format!("{} {}", entry.who, entry.permissions.join(","))).collect();
            format!("{}: {}", meant.dataset, entries.join("; "))
        };
        let lines = [
            ("u", "7 create,mount t", false, "t: ul$7 create,mount; ud$7 create,mount"),
            ("lu", "7 create t", false, "t: ul$7 create"),
            ("du", "7,8 create t", false, "t: ud$7 create; ud$8 create"),
            ("ldg", "7 @a,create,@b t", false, "t: gl$7 create; Gl$7 @a,@b; gd$7 create; Gd$7 @a,@b"),
            ("u", "7 compress,recsize t", false, "t: ul$7 compression,recordsize; ud$7 compression,recordsize"),
            ("e", "create t", false, "t: el$ create; ed$ create"),
            ("l", "everyone create t", false, "t: el$ create"),
            ("c", "destroy,@a t", false, "t: c-$ destroy; C-$ @a"),
            ("s", "@a mount,@b t", false, "t: s-$@a mount; S-$@a @b"),
            ("u", "7 t", true, "t: ul$7 ; Ul$7 ; ud$7 ; Ud$7 "),
            ("d", "everyone t", true, "t: ed$ ; Ed$ "),
            ("e", "create t", true, "t: el$ create; ed$ create"),
            ("c", "t", true, "t: c-$ ; C-$ "),
            ("s", "@a t", true, "t: s-$@a ; S-$@a "),
            ("u", "0 send t", true, "t: ul$0 send; ud$0 send"),
        ];
        for (flags, words, is_taking, expected) in lines {
            assert_eq!(told(flags, words, is_taking), expected, "-{flags} {words}");
        }
        assert!(matches!(meant(&of("", "t"), false), Ok(None)), "permissions are shown");
    }

    /// If this fails, a line that OpenZFS refuses does something that nobody meant.
    #[test]
    fn lines_that_mean_nothing_are_refused() {
        let why = |flags: &str, words: &str, is_taking: bool| match meant(&of(flags, words), is_taking) {
            Err(Stop::Usage(why)) => why,
            other => panic!("-{flags} {words}: {other:?}"),
        };
        let parameters = "wrong number of parameters";
        for (flags, words, is_taking, expected) in [
            ("", "", false, parameters),
            ("", "t", true, parameters),
            ("", "everyone t", false, parameters),
            ("", "7 create t more", false, parameters),
            ("e", "t", false, parameters),
            ("c", "t", false, parameters),
            ("s", "@a t", false, parameters),
            ("s", "a mount t", false, "invalid set name: missing '@' prefix"),
            ("ug", "7 create t", false, "-u, -g, and -e are mutually exclusive"),
            ("ue", "create t", true, "-u, -g, and -e are mutually exclusive"),
            ("se", "@a mount t", false, "invalid options combined with -s"),
            ("sc", "@a mount t", false, "invalid options combined with -s"),
            ("cl", "mount t", false, "invalid options combined with -c"),
            ("ce", "mount t", true, "invalid options combined with -c"),
        ] {
            assert_eq!(why(flags, words, is_taking), expected, "-{flags} {words}");
        }
    }

    /// If this fails, an administrator believes that somebody may do less, or more, than a pool's owner allowed.
    #[test]
    fn permissions_are_shown_by_the_places_where_they_hold() {
        let entry = |who: &str, permissions: &[&str]| AllowEntry {
            who: who.to_string(),
            permissions: permissions.iter().map(|word| word.to_string()).collect(),
        };
        let entries = vec![
            entry("s-$@backup", &["hold", "send"]),
            entry("c-$", &["destroy"]),
            entry("ul$1000", &["create", "mount"]),
            entry("ud$1000", &["mount", "snapshot"]),
            entry("Ul$1000", &["@backup"]),
            entry("gd$7", &["clone"]),
            entry("el$", &["diff"]),
        ];
        let names = Names::from([(("user".to_string(), 1000), "ann".to_string())]);
        let shown = text(&AllowReport { name: "tank/fs".to_string(), entries }, &names);
        let expected = "---- Permissions on tank/fs ------------------------------------------\n\
                        Permission sets:\n\t@backup hold,send\n\
                        Create time permissions:\n\tdestroy\n\
                        Local permissions:\n\tuser ann @backup,create\n\teveryone diff\n\
                        Descendent permissions:\n\tuser ann snapshot\n\tgroup (unknown: 7) clone\n\
                        Local+Descendent permissions:\n\tuser ann mount\n";
        assert_eq!(shown, expected);
        assert_eq!(shown.lines().next().map(str::len), Some(HEADING_WIDTH));
    }
}
