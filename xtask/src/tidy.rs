//! `cargo xtask tidy`: the house rules that no compiler checks. Exceptions stand in `xtask/tidy-allow.txt`, which may only shrink.

use crate::{source, walks, words};
use std::collections::BTreeMap;
use std::path::Path;

const FILE_CODE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
const HEADER_CHARACTERS_MIN: usize = 40;
const ALLOW: &str = "xtask/tidy-allow.txt";

/// Paths of files that may contain `unsafe`; everything else is refused.
const UNSAFE_MODULES: &[&str] = &[
    "base/abd/src/aligned.rs",
    "base/abd/src/",
    // Closes descriptors that no value owns, and looks before `main` whether there is a standard output.
    "base/service/src/inherited.rs",
    // Asks the kernel for the groups of whoever connected.
    "base/service/src/peer.rs",
    "compute/kernels/src/",
    // Pages of keys: locked in memory, and left out of core dumps.
    "compute/crypt/src/secret.rs",
    // The boundaries to providers written in C and to NVIDIA's libraries, and nothing else of the accelerators.
    "accel/provider-c/src/",
    "accel/provider-cuda/src/driver.rs",
    "accel/provider-cuda/src/nvcomp.rs",
    "accel/provider-cuda/src/nvrtc.rs",
    "storage/device/src/",
    "interface/fuse/src/",
    "bin/zbench/src/",
    "test/commands/src/mapped.rs",
];

/// Crates that say what there is to say through `tracing` (docs/adr/0014): who runs them decides where it goes.
const SILENT: &[&str] = &["base/", "format/", "compute/", "accel/", "storage/", "object/", "interface/"];
const PRINTS: &[&str] = &["println!(", "print!("];

/// Checks every rule and names each offence.
pub fn check(root: &Path) -> Result<(), String> {
    let found = offences(root);
    let allowed = read_allow(root);
    let mut problems: Vec<String> =
        found.iter().filter(|(key, _)| !allowed.contains_key(*key)).map(|(key, what)| format!("{key}: {what}")).collect();
    problems.extend(
        allowed.keys().filter(|key| !found.contains_key(*key)).map(|key| format!("{ALLOW}: `{key}` is no longer needed: remove the line")),
    );
    if problems.is_empty() {
        println!("── tidy: clean ({} allowed exceptions)", allowed.len());
        return Ok(());
    }
    Err(format!("{} tidy problems:\n  {}", problems.len(), problems.join("\n  ")))
}

/// Rewrites the allow-list; refuses to make it longer than it was.
pub fn bless(root: &Path) -> Result<(), String> {
    let found = offences(root);
    let before = read_allow(root);
    if !before.is_empty() && found.len() > before.len() {
        return Err(format!("the allow-list may only shrink: it has {} lines and would get {}", before.len(), found.len()));
    }
    let text: String = found.keys().map(|key| format!("{key}\n")).collect();
    std::fs::write(root.join(ALLOW), text).map_err(|error| format!("{ALLOW} cannot be written: {error}"))
}

fn read_allow(root: &Path) -> BTreeMap<String, ()> {
    let text = std::fs::read_to_string(root.join(ALLOW)).unwrap_or_default();
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).map(|line| (line.to_string(), ())).collect()
}

fn offences(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let members = members(root);
    let untested = |member: &&String| std::fs::read_to_string(root.join(member).join("Cargo.toml")).is_ok_and(|text| is_untested(&text));
    let untested: Vec<&String> = members.iter().filter(untested).collect();
    for file in source::rust_files(root) {
        let Ok(text) = std::fs::read_to_string(root.join(&file)) else { continue };
        let name = file.to_string_lossy();
        inspect(&name, &text, &mut found);
        if untested.iter().any(|member| name.starts_with(&format!("{member}/src/"))) && text.lines().any(|line| line.trim() == "#[test]") {
            found.insert(format!("untested {name}"), "tests that nobody runs: the manifest has `test = false`".into());
        }
    }
    let architecture = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap_or_default();
    for member in members {
        if !architecture.contains(&format!("`{member}`")) {
            found.insert(format!("member {member}"), "is not named in ARCHITECTURE.md".into());
        }
    }
    walks::inspect(root, &mut found);
    found
}

/// Checks the rules that look at one file.
fn inspect(name: &str, text: &str, found: &mut BTreeMap<String, String>) {
    let header = text.lines().next().unwrap_or_default();
    if !header.starts_with("//!") || header.len() < HEADER_CHARACTERS_MIN {
        found.insert(format!("header {name}"), format!("the first line must be a //! line of at least {HEADER_CHARACTERS_MIN} characters"));
    }
    let is_test = name.contains("/tests/") || name.ends_with("tests.rs") || name.contains("/tests");
    let lines = source::code_lines(text);
    if lines > FILE_CODE_LINES_MAX && !is_test {
        found.insert(format!("file {name}"), format!("{lines} code lines (at most {FILE_CODE_LINES_MAX})"));
    }
    for (function, line, length) in source::functions(source::without_inline_tests(text)) {
        if length > FUNCTION_LINES_MAX && !is_test {
            found.insert(format!("fn {name} {function}"), format!("line {line}: {length} lines (at most {FUNCTION_LINES_MAX})"));
        }
    }
    let uses_unsafe = text.lines().map(str::trim).any(|line| !line.starts_with("//") && line.contains("unsafe {"));
    if uses_unsafe && !name.starts_with("xtask/") && !UNSAFE_MODULES.iter().any(|allowed| name.starts_with(allowed)) {
        found.insert(format!("unsafe {name}"), "unsafe code outside the listed modules".into());
    }
    for (line, word) in words::nounless(name, text) {
        found.insert(format!("doc {name} {line}"), format!("a doc comment begins with \"{word}\": say what the item is, and its unit"));
    }
    let is_silent = SILENT.iter().any(|layer| name.starts_with(layer)) && !is_test && !name.contains("/examples/");
    let prints = |line: &str| !line.starts_with("//") && PRINTS.iter().any(|print| line.contains(print));
    if is_silent && !name.ends_with("build.rs") && source::without_inline_tests(text).lines().map(str::trim).any(prints) {
        found.insert(format!("prints {name}"), "a library prints: `tracing` has error!, warn!, info! and debug!".into());
    }
    if name.ends_with("error.rs") && text.lines().any(|line| line.contains("(String)") && !line.trim().starts_with("//")) {
        found.insert(format!("stringly {name}"), "an error variant that carries only a String".into());
    }
}

/// True when a manifest says that its library has no tests of its own: no program is made for them.
fn is_untested(manifest: &str) -> bool {
    let library = manifest.split_once("[lib]\n").map_or("", |(_, rest)| rest.split_once("\n[").map_or(rest, |(library, _)| library));
    library.lines().any(|line| line.trim() == "test = false")
}

/// Paths of the workspace's members as they stand in Cargo.toml.
fn members(root: &Path) -> Vec<String> {
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap_or_default();
    let list = manifest.split_once("members = [").and_then(|(_, rest)| rest.split_once(']')).map_or("", |(list, _)| list);
    list.split(',').map(|item| item.trim().trim_matches('"').to_string()).filter(|item| !item.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offences_of(name: &str, text: &str) -> Vec<String> {
        let mut found = BTreeMap::new();
        inspect(name, text, &mut found);
        found.into_keys().collect()
    }

    /// If this fails, tests are written that never run.
    #[test]
    fn a_library_without_tests_is_known_by_its_manifest() {
        assert!(is_untested("[package]\nname = \"x\"\n\n[lib]\nname = \"x\"\ntest = false\n\n[dependencies]\n"));
        assert!(!is_untested("[lib]\nname = \"x\"\n\n[[bin]]\nname = \"y\"\ntest = false\n"));
    }

    #[test]
    fn a_clean_file_passes() {
        let text = "//! A header that says what this file is for and why.\nfn a() {\n}\n";
        assert!(offences_of("object/x/src/lib.rs", text).is_empty());
    }

    #[test]
    fn each_planted_violation_is_found() {
        let long: String = "    1;\n".repeat(80);
        let text = format!("// no header\nfn long() {{\n{long}}}\nfn u() {{\n    unsafe {{ }}\n}}\n");
        assert_eq!(
            offences_of("object/x/src/lib.rs", &text),
            vec!["fn object/x/src/lib.rs long", "header object/x/src/lib.rs", "unsafe object/x/src/lib.rs"]
        );
        let big = format!("//! A header that says what this file is for and why.\n{}", "const A: u8 = 1;\n".repeat(700));
        assert_eq!(offences_of("object/x/src/big.rs", &big), vec!["file object/x/src/big.rs"]);
        let prints = "//! A header that says what this file is for and why.\nfn a() {\n    eprintln!(\"lost\");\n}\n";
        assert_eq!(offences_of("object/x/src/a.rs", prints), vec!["prints object/x/src/a.rs"]);
        assert!(offences_of("bin/x/src/a.rs", prints).is_empty() && offences_of("object/x/tests/a.rs", prints).is_empty());
    }
}
