//! Where dependencies come from, part of `cargo xtask layers`, without a network: every one is of crates.io and under a licence of [`LICENCES`], and
//! crates that are there in two incompatible versions stand in `xtask/duplicates.list`, which may only shrink. Licences are looked at of what is
//! built on this platform; origins and versions of everything in `Cargo.lock`.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Output};

/// Licences that dependencies may be under; of alternatives one is enough.
const LICENCES: &[&str] =
    &["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Zlib", "Unicode-3.0"];
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";
const LIST: &str = "xtask/duplicates.list";

/// Fails on a licence, an origin or a second version that is not allowed, and on lines of the list that are not needed any more.
pub fn check(root: &Path) -> Result<(), String> {
    let metadata = metadata(root)?;
    let read = |name: &str| std::fs::read_to_string(root.join(name)).map_err(|error| format!("{name}: {error}"));
    let locked = locked(&read("Cargo.lock")?);
    let mut problems = offences(&metadata)?;
    problems.extend(locked.iter().filter_map(foreign));
    problems.extend(compare(&duplicates(&locked), &read(LIST)?));
    if problems.is_empty() {
        println!(
            "── dependencies: {} of crates.io, under licences that are allowed",
            locked.iter().filter(|one| one.source.is_some()).count()
        );
        return Ok(());
    }
    Err(format!("{} dependencies are not as they should be:\n  {}", problems.len(), problems.join("\n  ")))
}

fn said(root: &Path, program: &str, args: &[&str]) -> Result<Output, String> {
    Command::new(program).args(args).current_dir(root).output().map_err(|error| format!("{program} cannot be started: {error}"))
}

/// Metadata that cargo has of the dependencies on this platform. Where their sources are not here yet, as on a machine that never built, they are
/// fetched first, as the build would do it.
fn metadata(root: &Path) -> Result<Value, String> {
    let version = String::from_utf8_lossy(&said(root, "rustc", &["-vV"])?.stdout).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc -vV names no host")?;
    let ask = || said(root, "cargo", &["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", host]);
    let mut output = ask()?;
    if !output.status.success() {
        println!("── cargo fetch --locked --target {host}");
        let fetched = said(root, "cargo", &["fetch", "--locked", "--target", host])?;
        if !fetched.status.success() {
            return Err(format!("cargo fetch: {}", String::from_utf8_lossy(&fetched.stderr).trim()));
        }
        output = ask()?;
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata said no JSON: {error}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Packages that may not be used, and why.
fn offences(metadata: &Value) -> Result<Vec<String>, String> {
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let own: BTreeSet<&str> = metadata["workspace_members"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut found = Vec::new();
    for package in packages.iter().filter(|package| !package["id"].as_str().is_some_and(|id| own.contains(id))) {
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        let what = format!("{} {}", text("name"), text("version"));
        match package["license"].as_str() {
            Some(licence) if is_allowed(licence) => {}
            Some(licence) => found.push(format!("{what} is under `{licence}`, which allows none of {}", LICENCES.join(", "))),
            None => found.push(format!("{what} names no licence")),
        }
        if text("source") != REGISTRY {
            found.push(format!("{what} does not come from crates.io, but from {}", origin(package["source"].as_str())));
        }
    }
    Ok(found)
}

fn origin(source: Option<&str>) -> &str {
    source.unwrap_or("a folder outside of the workspace")
}

/// True when an expression of SPDX is met by what is allowed: `MIT OR GPL-3.0` is, `MIT AND GPL-3.0` is not. What is no expression is not met.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ").replace(" WITH ", "\0");
    let words: Vec<String> = spaced.split(' ').filter(|word| !word.is_empty()).map(|word| word.replace('\0', " WITH ")).collect();
    let mut rest: &[String] = &words;
    either(&mut rest) == Some(true) && rest.is_empty()
}

fn takes(rest: &mut &[String], word: &str) -> bool {
    let is_next = rest.first().is_some_and(|next| next == word);
    if is_next {
        *rest = &rest[1..];
    }
    is_next
}

/// Parses alternatives.
fn either(rest: &mut &[String]) -> Option<bool> {
    let mut is_met = both(rest)?;
    while takes(rest, "OR") {
        is_met |= both(rest)?;
    }
    Some(is_met)
}

/// Parses what holds together.
fn both(rest: &mut &[String]) -> Option<bool> {
    let mut is_met = one(rest)?;
    while takes(rest, "AND") {
        is_met &= one(rest)?;
    }
    Some(is_met)
}

/// Parses a licence, or an expression in parentheses.
fn one(rest: &mut &[String]) -> Option<bool> {
    if takes(rest, "(") {
        let is_met = either(rest)?;
        return takes(rest, ")").then_some(is_met);
    }
    let (licence, after) = rest.split_first()?;
    *rest = after;
    Some(LICENCES.contains(&licence.as_str()))
}

/// Package of `Cargo.lock`.
struct Locked {
    name: String,
    version: String,
    source: Option<String>,
}

fn locked(lock: &str) -> Vec<Locked> {
    let packages = lock.split("[[package]]").skip(1);
    let value = |package: &str, key: &str| {
        package.lines().find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(" = ")?.trim_matches('"').to_string()))
    };
    packages
        .map(|package| Locked {
            name: value(package, "name").unwrap_or_default(),
            version: value(package, "version").unwrap_or_default(),
            source: value(package, "source"),
        })
        .collect()
}

/// Offence of a package from elsewhere than crates.io. Those without a source are folders; [`offences`] knows whether they are ours.
fn foreign(package: &Locked) -> Option<String> {
    let source = package.source.as_deref().filter(|source| *source != REGISTRY)?;
    Some(format!("Cargo.lock: {} {} does not come from crates.io, but from {source}", package.name, package.version))
}

/// Part of a version that is the same in those which can stand in for each other.
fn compatible(version: &str) -> String {
    let mut parts = version.split(['.', '-', '+']);
    let mut kept = parts.next().unwrap_or_default().to_string();
    while kept.trim_matches(['0', '.']).is_empty() {
        let Some(next) = parts.next() else { break };
        kept = format!("{kept}.{next}");
    }
    kept
}

/// Crates with incompatible versions, as lines of the list: `NAME VERSION VERSION…`.
fn duplicates(locked: &[Locked]) -> BTreeSet<String> {
    let mut versions: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for package in locked {
        versions.entry(&package.name).or_default().insert(compatible(&package.version));
    }
    let several = versions.into_iter().filter(|(_, versions)| versions.len() > 1);
    several.map(|(name, versions)| format!("{name} {}", versions.into_iter().collect::<Vec<_>>().join(" "))).collect()
}

fn compare(found: &BTreeSet<String>, list: &str) -> Vec<String> {
    let known: BTreeSet<String> =
        list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).map(String::from).collect();
    let new = found
        .difference(&known)
        .map(|line| format!("two incompatible versions of one crate: {line} (`cargo tree -i NAME@VERSION` says who uses which)"));
    let old = known.difference(found).map(|line| format!("{LIST}: `{line}` is no longer needed: remove the line"));
    new.chain(old).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(packages: &[(&str, Value, Value)]) -> Vec<String> {
        let packages: Vec<Value> = packages
            .iter()
            .map(|(name, licence, source)| json!({"id": name, "name": name, "version": "1.0.0", "license": licence, "source": source}))
            .collect();
        offences(&json!({"packages": packages, "workspace_members": ["zio"]})).expect("the metadata is well formed")
    }

    /// If this fails, somebody's licence is broken by every program that is handed on.
    #[test]
    fn a_bad_licence_is_refused() {
        let of = |licence: Value| found(&[("zio", Value::Null, Value::Null), ("x", licence, json!(REGISTRY))]);
        for good in [
            "MIT",
            "MIT OR Apache-2.0",
            "MIT/Apache-2.0",
            "Unlicense OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0-only",
        ] {
            assert_eq!(of(json!(good)), [""; 0], "{good}");
        }
        for bad in [
            "GPL-3.0-only",
            "CDDL-1.0",
            "MIT AND GPL-2.0-only",
            "(MIT OR Apache-2.0) AND LGPL-2.1",
            "Apache-2.0 WITH Classpath-exception-2.0",
            "MIT OR",
            "(MIT",
            "",
        ] {
            let said = of(json!(bad));
            assert!(said.len() == 1 && said[0].starts_with(&format!("x 1.0.0 is under `{bad}`")), "{bad}: {said:?}");
        }
        assert_eq!(of(Value::Null), ["x 1.0.0 names no licence"]);
    }

    /// What comes from elsewhere can change, or be gone, at any time.
    #[test]
    fn what_comes_from_elsewhere_is_refused() {
        let said = found(&[("x", json!("MIT"), json!("git+https://example.org/x#0")), ("y", json!("MIT"), Value::Null)]);
        assert_eq!(
            said,
            [
                "x 1.0.0 does not come from crates.io, but from git+https://example.org/x#0",
                "y 1.0.0 does not come from crates.io, but from a folder outside of the workspace"
            ]
        );
        let lock = "[[package]]\nname = \"w\"\nversion = \"0.1.0\"\nsource = \"git+https://example.org/w#0\"\n";
        assert_eq!(
            locked(lock).iter().filter_map(foreign).collect::<Vec<_>>(),
            ["Cargo.lock: w 0.1.0 does not come from crates.io, but from git+https://example.org/w#0"]
        );
    }

    #[test]
    fn second_versions_are_listed_and_the_list_shrinks() {
        let of = |versions: &[&str]| {
            let locked: Vec<Locked> =
                versions.iter().map(|version| Locked { name: "x".into(), version: version.to_string(), source: None }).collect();
            duplicates(&locked).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(of(&["1.2.3", "1.9.0"]), [""; 0]);
        assert_eq!(of(&["1.2.3", "2.0.0"]), ["x 1 2"]);
        assert_eq!(of(&["0.1.2", "0.1.9"]), [""; 0]);
        assert_eq!(of(&["0.1.2", "0.2.0", "0.0.3"]), ["x 0.0.3 0.1 0.2"]);
        let now = BTreeSet::from(["x 1 2".to_string()]);
        assert_eq!(compare(&now, "# a note\nx 1 2\n"), [""; 0]);
        assert!(compare(&now, "")[0].starts_with("two incompatible versions of one crate: x 1 2"));
        assert_eq!(compare(&now, "x 1 2\ny 1 2\n"), ["xtask/duplicates.list: `y 1 2` is no longer needed: remove the line"]);
    }
}
