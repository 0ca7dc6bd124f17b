//! Forms that OpenZFS has: of its usage texts and manual pages, names and nothing else.

use std::collections::BTreeSet;
use std::process::Command;

/// Folder of the manual.
const MANUAL: &str = "/usr/share/man";
/// Pages of properties, and whose they are.
const PROPERTIES: [(&str, &str); 3] =
    [("zfsprops", "property of a dataset"), ("zpoolprops", "property of a pool"), ("vdevprops", "property of a vdev")];
/// Forms of other systems than Linux, of several names in one word, and of other implementations' features.
const NOT_ASKED: [&str; 3] = ["property of a dataset jailed", "property of a dataset usedby*", "property of a pool unsupported@"];

/// Forms of the OpenZFS that this machine has, as [`super::asked::Form::shown`] shows them; None where it has none.
pub fn forms() -> Option<BTreeSet<String>> {
    let mut forms = BTreeSet::new();
    for program in ["zpool", "zfs"] {
        // By its path: ours may have the name as well.
        let said = Command::new(format!("/usr/sbin/{program}")).output().ok()?;
        let verbs = of_usage(program, &String::from_utf8_lossy(&said.stderr), &mut forms);
        for verb in verbs {
            if let Some(page) = page(8, &format!("{program}-{verb}")) {
                of_synopsis(program, &verb, &page, &mut forms);
            }
        }
    }
    for (name, group) in PROPERTIES {
        forms.extend(of_properties(&page(7, name)?).into_iter().map(|property| format!("{group} {property}")));
    }
    forms.retain(|form| !NOT_ASKED.contains(&form.as_str()));
    Some(forms)
}

/// Source of a page of the manual.
fn page(section: u32, name: &str) -> Option<String> {
    let read = Command::new("zcat").arg(format!("{MANUAL}/man{section}/{name}.{section}.gz")).output().ok()?;
    read.status.success().then(|| String::from_utf8_lossy(&read.stdout).into_owned())
}

/// Options of one word: `-fn` has two, `--json-int` is one.
fn options(word: &str) -> Vec<String> {
    match word.strip_prefix("--") {
        Some(long) => vec![format!("--{long}")],
        None => word.chars().skip(1).filter(char::is_ascii_alphanumeric).map(|letter| format!("-{letter}")).collect(),
    }
}

/// Adds what a usage text has, and returns its verbs.
fn of_usage(program: &str, text: &str, forms: &mut BTreeSet<String>) -> BTreeSet<String> {
    let (mut verbs, mut verb) = (BTreeSet::new(), String::new());
    for line in text.lines() {
        let Some(line) = line.strip_prefix('\t') else { continue };
        if line.starts_with(|first: char| first.is_ascii_lowercase()) {
            verb = line.split_whitespace().next().unwrap_or_default().to_string();
            verbs.insert(verb.clone());
            forms.insert(format!("{program} {verb}"));
        }
        let words = line.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
        let words = words.filter(|word| word.starts_with('-') && word.len() > 1);
        forms.extend(words.flat_map(options).map(|option| format!("{program} {verb} {option}")));
    }
    verbs
}

/// Adds what the synopsis of a page has of this verb: some pages have several.
fn of_synopsis(program: &str, verb: &str, page: &str, forms: &mut BTreeSet<String>) {
    let lines = page.lines().skip_while(|line| !line.starts_with(".Sh SYNOPSIS")).skip(1).take_while(|line| !line.starts_with(".Sh "));
    let mut is_this = false;
    for line in lines {
        let mut words = line.trim_start_matches('.').split_whitespace().peekable();
        if let Some(name) = line.strip_prefix(".Cm ") {
            is_this = name.split_whitespace().next() == Some(verb);
        }
        while let Some(word) = words.next() {
            if word != "Fl" {
                continue;
            }
            // Macros have two letters, the first a large one.
            let is_macro = |word: &str| word.len() == 2 && word.starts_with(|first: char| first.is_ascii_uppercase()) && word.is_ascii();
            while let Some(letters) = words.next_if(|word| !is_macro(word) || *word == "DL") {
                let letters = letters.trim_end_matches(',');
                if is_this && letters.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '-') {
                    forms.extend(options(&format!("-{letters}")).into_iter().map(|option| format!("{program} {verb} {option}")));
                }
            }
        }
    }
}

/// Names of the properties that a page describes: what outer lists have for their entries.
fn of_properties(page: &str) -> Vec<String> {
    let (mut names, mut depth, mut lines) = (Vec::new(), 0, page.lines());
    while let Some(line) = lines.next() {
        match line.get(..3) {
            Some(".Bl") => depth += 1,
            Some(".El") => depth -= 1,
            Some(".It") if depth == 1 => {
                let entry = if line == ".It Xo" { lines.next().unwrap_or_default() } else { &line[3..] };
                names.extend(of_entry(entry.trim_start_matches('.')));
            }
            _ => {}
        }
    }
    names
}

/// Names of one entry: several, with commas, or one with a value.
fn of_entry(entry: &str) -> Vec<String> {
    let words: Vec<&str> = entry.split_whitespace().collect();
    match words.as_slice() {
        ["Sy", name, "Ns", at, ..] if at.starts_with('@') => vec![format!("{name}@")],
        ["Sy", name, "Ns", ..] => vec![(*name).to_string()],
        ["Sy", names @ ..] => {
            names.iter().filter(|name| **name != ",").take_while(|name| **name != "Ns").map(|name| (*name).into()).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(forms: &[&str]) -> BTreeSet<String> {
        forms.iter().map(|form| (*form).to_string()).collect()
    }

    /// An option that nobody asks for would not be missed.
    #[test]
    fn options_are_found_in_usages_and_pages() {
        let mut forms = BTreeSet::new();
        let usage = "usage:\n\n\tset [-u] <property=value> <pool-name>\n\tget [-Hp] [-j [--json-int]] ...\n\t    [-o field]\n\nsee -x\n";
        assert_eq!(of_usage("zfs", usage, &mut forms), set(&["get", "set"]));
        let page = ".Sh SYNOPSIS\n.Nm zfs\n.Cm set\n.Op Fl u\n.Nm zfs\n.Cm get\n.Op Fl r Ns | Ns Fl d Ar depth\n.Op Fl DL\n.Sh DESCRIPTION\n.It Fl z\n";
        of_synopsis("zfs", "get", page, &mut forms);
        let wanted = "zfs set,zfs set -u,zfs get,zfs get -H,zfs get -p,zfs get -j,zfs get --json-int,zfs get -o,zfs get -r,zfs get -d,zfs get -D,zfs get -L";
        assert_eq!(forms, set(&wanted.split(',').collect::<Vec<_>>()));
    }

    /// A property that nobody sets would not be missed.
    #[test]
    fn properties_are_those_of_outer_lists() {
        let page = ".Bl -tag\n.It Sy used\n.It Sy userused Ns @ Ns Ar user\n.It Xo\n.Sy acl Ns = Ns Sy on\n.Xc\n.Bl -tag\n.It Sy on\n.El\n.It Sy a , b\n.It\n.El\n";
        assert_eq!(of_properties(page), ["used", "userused@", "acl", "a", "b"]);
    }
}
