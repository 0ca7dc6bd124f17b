//! The lists of what is asked, and how: `zpool.list`, `zfs.list`, `properties.list`.

/// Lists, as they are read.
const LISTS: [&str; 3] = [include_str!("zpool.list"), include_str!("zfs.list"), include_str!("properties.list")];

/// Verb with an option or without, or a property, and the words of sh(1) that ask for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// Verb with its program, or whose property it is.
    pub group: String,
    /// Option with its dashes, or the name of a property; empty for a verb alone.
    pub name: String,
    /// Script that succeeds where the form is there and does what it is for.
    pub script: String,
}

impl Form {
    /// Form as users type it.
    pub fn shown(&self) -> String {
        format!("{} {}", self.group, self.name).trim_end().to_string()
    }
}

/// Forms of all lists.
pub fn all() -> Vec<Form> {
    LISTS.iter().flat_map(|list| read(list)).collect()
}

/// Forms of one list.
fn read(list: &str) -> Vec<Form> {
    let (mut forms, mut group, mut before) = (Vec::new(), String::new(), String::new());
    for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            (group, before) = (name.to_string(), String::new());
        } else if let Some(words) = line.strip_prefix("; ") {
            before.push_str(words);
            before.push('\n');
        } else if let Some((name, words)) = line.split_once("| ") {
            forms.push(Form { group: group.clone(), name: name.trim().to_string(), script: format!("{before}{words}") });
        }
    }
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is asked would lack what comes before it, or belong to another verb.
    #[test]
    fn forms_have_what_comes_before_them() {
        let forms = read("# list\n\n[zpool list]\n; make\n | one | two\n-j | three\n\n[zpool get]\n | four\n");
        let form = |group: &str, name: &str, script: &str| Form { group: group.into(), name: name.into(), script: script.into() };
        let wanted = [form("zpool list", "", "make\none | two"), form("zpool list", "-j", "make\nthree"), form("zpool get", "", "four")];
        assert_eq!(forms, wanted);
        assert_eq!((forms[0].shown().as_str(), forms[1].shown().as_str()), ("zpool list", "zpool list -j"));
    }

    /// A form would be asked, and counted, twice.
    #[test]
    fn no_form_is_there_twice() {
        let mut names: Vec<String> = all().iter().map(Form::shown).collect();
        names.sort();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(count > 500, "{count}");
    }
}
