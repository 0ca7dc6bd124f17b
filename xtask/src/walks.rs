//! The walks through the code in `docs/internals`, part of `cargo xtask tidy`: what they name exists, and each page is listed in their README.
//!
//! A page names code in one form: `` `name` (`path/to/file.rs`) ``, where the name is that of a function or type of the file, or
//! `Type::function` for a function of a type or trait.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use syn::{ImplItem, Item, TraitItem, Type};

const FOLDER: &str = "docs/internals";
const LIST: &str = "README.md";
const FORM: &str = "code is named as `name` (`path/to/file.rs`)";

/// Reference of a page to the code.
#[derive(Debug, PartialEq, Eq)]
struct Reference {
    /// Name of a function or type, or `Type::function`.
    name: String,
    /// Path of the file, relative to the root.
    file: String,
}

/// Adds what is wrong with the pages.
pub fn inspect(root: &Path, found: &mut BTreeMap<String, String>) {
    let pages = pages(&root.join(FOLDER));
    let list = pages.get(LIST).map_or("", String::as_str);
    let mut files: BTreeMap<String, Option<BTreeSet<String>>> = BTreeMap::new();
    for (page, text) in &pages {
        if page != LIST && !list.contains(&format!("({page})")) {
            found.insert(format!("walk {FOLDER}/{page}"), format!("is not listed in {FOLDER}/{LIST}"));
        }
        for reference in references(text) {
            let wrong = match &reference {
                Err(span) => Some((span, FORM.to_string())),
                Ok(Reference { name, file }) => {
                    let names = files.entry(file.clone()).or_insert_with(|| names_in(&root.join(file)));
                    lacks(names.as_ref(), name).map(|why| (name, format!("{file} {why}")))
                }
            };
            if let Some((what, why)) = wrong {
                found.insert(format!("walk {FOLDER}/{page} {what}"), why);
            }
        }
    }
}

/// Names and texts of the pages of a folder.
fn pages(folder: &Path) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let texts = entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, std::fs::read_to_string(entry.path()).ok()?)));
    texts.filter(|(name, _)| Path::new(name).extension().is_some_and(|extension| extension == "md")).collect()
}

/// References of a page; the error is a file that is named in another form. Blocks of code are left out.
fn references(text: &str) -> Vec<Result<Reference, String>> {
    let mut is_code = false;
    let prose = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    let prose = prose.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
    // Every second piece stands between two backticks.
    let pieces: Vec<&str> = prose.split('`').collect();
    let spans = (1..pieces.len()).step_by(2).filter(|&at| pieces[at].ends_with(".rs"));
    let read = |at: usize| {
        let file = pieces[at];
        let is_formed = at > 2 && pieces[at - 1] == " (" && pieces.get(at + 1).is_some_and(|after| after.starts_with(')'));
        let name = if is_formed { pieces[at - 2] } else { "" };
        let is_name = name.split("::").all(|word| !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || c == '_'));
        if is_name { Ok(Reference { name: name.to_string(), file: file.to_string() }) } else { Err(file.to_string()) }
    };
    // With one backtick too many the others would not be what they seem.
    let odd = pieces.len().is_multiple_of(2).then(|| Err("a backtick without its other one".to_string()));
    spans.map(read).chain(odd).collect()
}

/// Reason why a file does not have a name, if it doesn't.
fn lacks(names: Option<&BTreeSet<String>>, name: &str) -> Option<&'static str> {
    match names {
        None => Some("does not exist, or is no Rust"),
        Some(names) if names.contains(name) => None,
        Some(_) => Some("has no function or type of that name"),
    }
}

/// Names of the functions and types of a file: `name`, and `Type::function`. None when the file cannot be read.
fn names_in(file: &Path) -> Option<BTreeSet<String>> {
    let parsed = syn::parse_file(&std::fs::read_to_string(file).ok()?).ok()?;
    let mut names = BTreeSet::new();
    collect(&parsed.items, &mut names);
    Some(names)
}

fn collect(items: &[Item], names: &mut BTreeSet<String>) {
    for item in items {
        match item {
            Item::Fn(function) => {
                names.insert(function.sig.ident.to_string());
            }
            Item::Struct(kind) => {
                names.insert(kind.ident.to_string());
            }
            Item::Enum(kind) => {
                names.insert(kind.ident.to_string());
            }
            Item::Type(kind) => {
                names.insert(kind.ident.to_string());
            }
            Item::Trait(kind) => {
                let functions =
                    kind.items.iter().filter_map(|item| if let TraitItem::Fn(function) = item { Some(&function.sig) } else { None });
                names.extend(functions.map(|function| format!("{}::{}", kind.ident, function.ident)));
                names.insert(kind.ident.to_string());
            }
            Item::Impl(block) => {
                let Type::Path(owner) = &*block.self_ty else { continue };
                let Some(owner) = owner.path.segments.last() else { continue };
                let functions =
                    block.items.iter().filter_map(|item| if let ImplItem::Fn(function) = item { Some(&function.sig) } else { None });
                names.extend(functions.map(|function| format!("{}::{}", owner.ident, function.ident)));
            }
            Item::Mod(module) => collect(module.content.as_ref().map_or(&[], |(_, items)| items), names),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "//! Text.\nstruct Pool;\nimpl Pool { fn open() {} }\nimpl Drop for Pool { fn drop(&mut self) {} }\n\
                        trait Port { fn call(&self); }\nfn free() {}\nmod tests { fn inner() {} }\n";

    fn names() -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        collect(&syn::parse_file(CODE).expect("it parses").items, &mut names);
        names
    }

    #[test]
    fn what_a_file_defines_is_found_and_nothing_else() {
        for name in ["Pool", "Pool::open", "Pool::drop", "Port::call", "free", "inner"] {
            assert_eq!(lacks(Some(&names()), name), None, "{name}");
        }
        for name in ["open", "Pool::free", "Port::open", "call", "Other::call"] {
            assert!(lacks(Some(&names()), name).is_some(), "{name}");
        }
        assert!(lacks(None, "free").is_some());
    }

    #[test]
    fn references_have_one_form() {
        let text = "1. `Pool::open` (`a/b.rs`) opens; then\n   `free`\n   (`c.rs`). `word` alone.\n```\n`x` in `y.rs`\n```\nSee `d.rs`, and `e` in (`f.rs`).";
        let formed = |name: &str, file: &str| Ok(Reference { name: name.into(), file: file.into() });
        assert_eq!(references(text), vec![formed("Pool::open", "a/b.rs"), formed("free", "c.rs"), Err("d.rs".into()), Err("f.rs".into())]);
    }

    #[test]
    fn a_wrong_name_a_missing_file_and_an_unlisted_page_are_offences() {
        let root = std::env::temp_dir().join(format!("zirconia-walks-{}", std::process::id()));
        let write = |name: &str, text: &str| {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).and_then(|()| std::fs::write(path, text)).expect("it is written");
        };
        write("a.rs", CODE);
        write("docs/internals/README.md", "[one](one.md)");
        write("docs/internals/one.md", "`Pool::open` (`a.rs`), `Pool::close` (`a.rs`), `open` (`b.rs`)");
        write("docs/internals/two.md", "`free` (`a.rs`)");
        let mut found = BTreeMap::new();
        inspect(&root, &mut found);
        std::fs::remove_dir_all(&root).expect("it is removed");
        let keys: Vec<&String> = found.keys().collect();
        assert_eq!(keys, ["walk docs/internals/one.md Pool::close", "walk docs/internals/one.md open", "walk docs/internals/two.md"]);
    }
}
