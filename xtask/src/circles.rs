//! Circles of files and scattered types, part of `cargo xtask layers`: inside a crate at most three files may import each other in a
//! circle, and one type's own methods lie in at most four files. What is worse today stands in `xtask/circles.list`, which may only shrink.

use crate::source;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use syn::visit::{self, Visit};

/// Number of files of one circle, at most.
const CIRCLE_FILES_MAX: usize = 3;
/// Number of files with inherent `impl` blocks of one type, at most.
const IMPL_FILES_MAX: usize = 4;
const LIST: &str = "xtask/circles.list";
/// Number of re-exports that lead to re-exports, at most.
const HOPS_MAX: usize = 12;

type Module = Vec<String>;

/// File of a crate.
#[derive(Default)]
struct File {
    /// Paths that its code names, as seen from the crate's root.
    paths: BTreeSet<Module>,
    /// Names that `use` gives something here: name → path from the root.
    names: BTreeMap<String, Module>,
    /// Paths of which it imports everything.
    globs: Vec<Module>,
    /// Names that it defines.
    defined: BTreeSet<String>,
    /// Names of types that it gives methods.
    owners: BTreeSet<String>,
}

/// Files of a crate by their module's path.
type Files = BTreeMap<Module, File>;

/// Fails on circles and scattered types that the list does not allow, and on lines of the list that are not needed any more.
pub fn check(root: &Path) -> Result<(), String> {
    let found = offences(root)?;
    let text = std::fs::read_to_string(root.join(LIST)).map_err(|error| format!("{LIST}: {error}"))?;
    let problems = compare(&found, &text);
    if problems.is_empty() {
        println!(
            "── layers: no circle of more than {CIRCLE_FILES_MAX} files, no type in more than {IMPL_FILES_MAX}, but for {} that are known",
            found.len()
        );
        return Ok(());
    }
    Err(format!("{} circles or scattered types:\n  {}", problems.len(), problems.join("\n  ")))
}

/// Offences of every crate: their line in the list, without the number, with the number and the files.
fn offences(root: &Path) -> Result<BTreeMap<String, (usize, Vec<String>)>, String> {
    let mut crates: BTreeMap<String, Files> = BTreeMap::new();
    for path in source::rust_files(root) {
        let name = path.to_string_lossy();
        let Some((home, inside)) = name.split_once("/src/") else { continue };
        let text = std::fs::read_to_string(root.join(&path)).map_err(|error| format!("{name}: {error}"))?;
        let parsed = syn::parse_file(&text).map_err(|error| format!("{name}: {error}"))?;
        crates.entry(home.to_string()).or_default().insert(module_of(inside), read(module_of(inside), &parsed));
    }
    let mut found = BTreeMap::new();
    for (home, files) in &crates {
        for (at, circle) in circles(files).into_iter().filter(|circle| circle.len() > CIRCLE_FILES_MAX).enumerate() {
            found.insert(format!("circle {home} {}", at + 1), (circle.len(), circle));
        }
        let mut owners: BTreeMap<&String, Vec<String>> = BTreeMap::new();
        for (module, file) in files.iter().filter(|(module, _)| !is_test(module)) {
            file.owners.iter().for_each(|owner| owners.entry(owner).or_default().push(module.join("::")));
        }
        for (owner, at) in owners.into_iter().filter(|(_, at)| at.len() > IMPL_FILES_MAX) {
            found.insert(format!("impl {home} {owner}"), (at.len(), at));
        }
    }
    Ok(found)
}

/// Words on what is wrong: the list has a line `KEY NUMBER` for each offence.
fn compare(found: &BTreeMap<String, (usize, Vec<String>)>, list: &str) -> Vec<String> {
    let lines = list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let known: BTreeMap<&str, usize> =
        lines.filter_map(|line| line.rsplit_once(' ')).filter_map(|(key, number)| Some((key, number.parse().ok()?))).collect();
    let mut problems = Vec::new();
    for (key, (number, files)) in found {
        match known.get(key.as_str()) {
            Some(allowed) if number == allowed => {}
            Some(allowed) if number < allowed => problems.push(format!("{LIST}: `{key}` is {number} now: lower the {allowed}")),
            Some(allowed) => problems.push(format!("{key}: {number} files, {allowed} were known: {}", files.join(", "))),
            None => problems.push(format!("{key}: {number} files: {}", files.join(", "))),
        }
    }
    problems.extend(
        known.keys().filter(|key| !found.contains_key(**key)).map(|key| format!("{LIST}: `{key}` is no longer needed: remove the line")),
    );
    problems
}

/// Module of a file: `dnode/mod.rs` → `dnode`; the root has no name.
fn module_of(inside: &str) -> Module {
    let mut parts: Module = inside.trim_end_matches(".rs").split('/').map(String::from).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

fn is_test(module: &[String]) -> bool {
    module.iter().any(|part| part == "tests" || part.ends_with("_tests"))
}

fn read(module: Module, parsed: &syn::File) -> File {
    let mut reader = Reader { module, file: File::default(), hands_on: false, handed_on: BTreeMap::new(), words: BTreeSet::new() };
    reader.visit_file(parsed);
    // What is only handed on is no import; what its own code names too is one.
    let used = reader.handed_on.into_iter().filter(|(name, _)| reader.words.contains(name));
    reader.file.paths.extend(used.map(|(_, path)| path));
    reader.file
}

/// Reader that walks one file's syntax.
struct Reader {
    /// Module where the walk is: the file's, or one inside of it.
    module: Module,
    file: File,
    /// True when the `use` that is looked at hands names on.
    hands_on: bool,
    handed_on: BTreeMap<String, Module>,
    /// First words of the paths in the code.
    words: BTreeSet<String>,
}

impl Reader {
    /// Path from the root, if it may lead to a file of this crate.
    fn absolute(&self, path: &[String]) -> Option<Module> {
        let mut from = self.module.clone();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => (from, rest) = (Module::new(), &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|part| part == "super") {
                    from.pop()?;
                    rest = &rest[1..];
                }
            }
            _ => {}
        }
        from.extend(rest.iter().cloned());
        Some(from)
    }

    fn import(&mut self, tree: &syn::UseTree, before: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.import(&path.tree, before);
                before.pop();
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.import(item, before)),
            syn::UseTree::Glob(_) => {
                if let Some(path) = self.absolute(before) {
                    self.file.globs.push(path.clone());
                    if !self.hands_on {
                        self.file.paths.insert(path);
                    }
                }
            }
            syn::UseTree::Name(name) => self.import_as(before, &name.ident.to_string(), &name.ident.to_string()),
            syn::UseTree::Rename(rename) => self.import_as(before, &rename.ident.to_string(), &rename.rename.to_string()),
        }
    }

    fn import_as(&mut self, before: &[String], name: &str, known_as: &str) {
        let mut path = before.to_vec();
        let mut known_as = known_as;
        if name == "self" {
            known_as = before.last().map_or("", String::as_str);
        } else {
            path.push(name.to_string());
        }
        if let Some(path) = self.absolute(&path) {
            self.file.names.insert(known_as.to_string(), path.clone());
            if self.hands_on {
                self.handed_on.insert(known_as.to_string(), path);
            } else {
                self.file.paths.insert(path);
            }
        }
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && matches!(&attribute.meta, syn::Meta::List(list) if list.tokens.to_string().split(|c: char| !c.is_alphanumeric()).any(|word| word == "test"))
    })
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_for_tests(&item.attrs) {
            return;
        }
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item(&mut self, item: &'ast syn::Item) {
        let name = match item {
            syn::Item::Struct(item) => Some(&item.ident),
            syn::Item::Enum(item) => Some(&item.ident),
            syn::Item::Trait(item) => Some(&item.ident),
            syn::Item::Type(item) => Some(&item.ident),
            syn::Item::Const(item) => Some(&item.ident),
            syn::Item::Static(item) => Some(&item.ident),
            syn::Item::Fn(item) => Some(&item.sig.ident),
            _ => None,
        };
        if let Some(name) = name {
            self.file.defined.insert(name.to_string());
        }
        if let syn::Item::Impl(item) = item
            && item.trait_.is_none()
            && let syn::Type::Path(owner) = &*item.self_ty
            && let Some(last) = owner.path.segments.last()
        {
            self.file.owners.insert(last.ident.to_string());
        }
        visit::visit_item(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_for_tests(&item.attrs) && item.leading_colon.is_none() {
            self.hands_on = !matches!(item.vis, syn::Visibility::Inherited);
            self.import(&item.tree, &mut Vec::new());
        }
    }

    /// Visibility, which is no import: `pub(crate)` needs nothing of the root.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if (parts.len() > 1 || parts.first().is_some_and(|part| part == "crate")) && path.leading_colon.is_none() {
            self.file.paths.extend(self.absolute(&parts));
        }
        self.words.extend(parts.into_iter().next());
        visit::visit_path(self, path);
    }
}

/// Module of the file in which a path from the root ends, through re-exports.
fn home_of(files: &Files, path: &[String], hops: usize) -> Option<Module> {
    let mut at = Module::new();
    for (index, part) in path.iter().enumerate() {
        let mut below = at.clone();
        below.push(part.clone());
        if files.contains_key(&below) {
            at = below;
            continue;
        }
        let file = files.get(&at)?;
        if let Some(target) = file.names.get(part).filter(|target| hops > 0 && target.as_slice() != path) {
            let target: Module = target.iter().chain(&path[index + 1..]).cloned().collect();
            // A name from another crate leads to a path that begins where it is: nothing of this crate.
            return if target.starts_with(&below) { None } else { home_of(files, &target, hops - 1) };
        }
        if file.defined.contains(part) || hops == 0 {
            return Some(at);
        }
        let through_globs = |from: &Module| {
            let defines = files.get(from).is_some_and(|file| file.defined.contains(part) || file.names.contains_key(part));
            defines.then(|| from.iter().chain(&path[index..]).cloned().collect::<Module>())
        };
        return match file.globs.iter().filter(|from| **from != at).find_map(through_globs) {
            Some(target) => home_of(files, &target, hops - 1),
            None => (!at.is_empty() || index == path.len()).then_some(at),
        };
    }
    Some(at)
}

/// Circles among the files, largest first, each sorted.
fn circles(files: &Files) -> Vec<Vec<String>> {
    let modules: Vec<&Module> = files.keys().filter(|module| !is_test(module)).collect();
    let number: BTreeMap<&Module, usize> = modules.iter().enumerate().map(|(at, module)| (*module, at)).collect();
    let edges: Vec<BTreeSet<usize>> = modules
        .iter()
        .enumerate()
        .map(|(from, module)| {
            let homes = files[*module].paths.iter().filter_map(|path| home_of(files, path, HOPS_MAX));
            homes.filter_map(|home| number.get(&home).copied()).filter(|to| *to != from).collect()
        })
        .collect();
    let reach: Vec<BTreeSet<usize>> = (0..modules.len()).map(|from| reachable(&edges, from)).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for from in 0..modules.len() {
        let circle: BTreeSet<usize> = reach[from].iter().copied().filter(|to| reach[*to].contains(&from)).collect();
        if !circle.is_empty() && seen.insert(circle.clone()) {
            found.push(
                circle
                    .into_iter()
                    .map(|at| if modules[at].is_empty() { "the root".into() } else { modules[at].join("/") })
                    .collect::<Vec<_>>(),
            );
        }
    }
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found
}

fn reachable(edges: &[BTreeSet<usize>], from: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut open: Vec<usize> = edges[from].iter().copied().collect();
    while let Some(at) = open.pop() {
        if found.insert(at) {
            open.extend(&edges[at]);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(texts: &[(&str, &str)]) -> Files {
        let read = |(inside, text): &(&str, &str)| (module_of(inside), read(module_of(inside), &syn::parse_file(text).expect("Rust")));
        texts.iter().map(read).collect()
    }

    /// If this fails, files grow into circles again and nobody is told.
    #[test]
    fn a_planted_circle_is_found_through_re_exports_and_renames() {
        let planted = files(&[
            ("lib.rs", "mod a; mod b; mod c; mod d; pub use b::B; pub(crate) use c::*;"),
            ("a.rs", "use crate::B as Other; pub struct A(Other);"),
            ("b.rs", "pub struct B(crate::C);"),
            ("c/mod.rs", "mod e; pub struct C(super::d::D);"),
            ("c/e.rs", "use super::C; pub struct E(C);"),
            ("d.rs", "fn d() { crate::a::A::new(); } #[cfg(test)] mod tests { use crate::c::e::E; }"),
        ]);
        assert_eq!(circles(&planted), vec![vec!["a", "b", "c", "d"]], "what only tests import is no part of it");
    }

    #[test]
    fn names_of_other_crates_are_no_edges() {
        let plain = files(&[
            ("lib.rs", "mod a; mod b; pub use a::A;"),
            ("a.rs", "use exec::b::X; use std::sync::Arc; pub struct A(Arc<X>);"),
            ("b.rs", "use crate::A; use exec::a; fn b(_: A, _: a::Y) {}"),
        ]);
        assert!(circles(&plain).is_empty(), "{:?}", circles(&plain));
    }

    /// If this fails, the list of exceptions can grow, or stay longer than it must.
    #[test]
    fn the_list_only_shrinks() {
        let found: BTreeMap<_, _> = [("circle a/b 1", 5), ("impl a/b T", 6), ("impl a/b U", 7)]
            .map(|(key, number)| (key.to_string(), (number, vec!["x".to_string()])))
            .into();
        assert!(compare(&found, "# known\ncircle a/b 1 5\nimpl a/b T 6\nimpl a/b U 7\n").is_empty());
        let words = compare(&found, "circle a/b 1 4\nimpl a/b T 8\nimpl a/b V 9\n");
        let starts = [
            "circle a/b 1: 5 files, 4 were known",
            "xtask/circles.list: `impl a/b T` is 6 now",
            "impl a/b U: 7 files",
            "xtask/circles.list: `impl a/b V` is no longer",
        ];
        assert!(words.len() == 4 && words.iter().zip(starts).all(|(word, start)| word.starts_with(start)), "{words:?}");
    }
}
