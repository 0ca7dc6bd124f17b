//! `cargo xtask quick [BASE]`: the checks that an edit needs at once. Formatting, layers, house rules, and lints and tests of the crates that
//! changed since BASE (default: the last commit; what is not committed counts) and of those that depend on them. The whole gate stays `cargo xtask ci`.

use crate::gate::LINTS;
use crate::{run, run_with, structure, tidy};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Names of crates whose tests drive whole programs: the gate's business.
const SLOW: &[&str] = &["torture", "interop", "commands", "fuzz"];

/// Checks what changed since `base`, and what depends on it.
pub fn check(root: &Path, base: &str) -> Result<(), String> {
    let changed = changed_files(root, base)?;
    let metadata = metadata(root)?;
    let wanted = affected(&metadata, &changed)?;
    run(root, "cargo", &["fmt", "--all", "--check"])?;
    structure(root)?;
    tidy::check(root)?;
    if wanted.is_empty() {
        println!("── quick: no crate changed since {base}");
        return Ok(());
    }
    let packages: Vec<&str> = wanted.iter().flat_map(|name| ["-p", name.as_str()]).collect();
    println!("── quick: {}", wanted.iter().cloned().collect::<Vec<_>>().join(" "));
    run_with(root, "cargo", &[&["build", "--locked", "--all-targets"], packages.as_slice()].concat(), LINTS)?;
    let tested: Vec<&str> = wanted.iter().filter(|name| !SLOW.contains(&name.as_str())).flat_map(|name| ["-p", name.as_str()]).collect();
    if tested.is_empty() { Ok(()) } else { run_with(root, "cargo", &[&["test", "--locked"], tested.as_slice()].concat(), LINTS) }
}

fn output(root: &Path, program: &str, args: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(args).current_dir(root).output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{program} {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}

/// Paths of files that differ from `base`, and of those that git does not know yet.
fn changed_files(root: &Path, base: &str) -> Result<Vec<String>, String> {
    let known = output(root, "git", &["diff", "--name-only", base])?;
    let new = output(root, "git", &["ls-files", "--others", "--exclude-standard"])?;
    Ok(known.lines().chain(new.lines()).map(String::from).collect())
}

fn metadata(root: &Path) -> Result<Value, String> {
    let text = output(root, "cargo", &["metadata", "--format-version", "1", "--no-deps", "--locked"])?;
    serde_json::from_str(&text).map_err(|error| format!("cargo metadata said no JSON: {error}"))
}

/// Names of packages with changed files, and of all that depend on them. A change of the workspace's manifest is one of every package.
fn affected(metadata: &Value, changed: &[String]) -> Result<BTreeSet<String>, String> {
    let root = metadata["workspace_root"].as_str().unwrap_or_default();
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let all_change = changed.iter().any(|file| file == "Cargo.toml" || file == "Cargo.lock");
    let mut found = BTreeSet::new();
    let mut users: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let manifest = package["manifest_path"].as_str().unwrap_or_default();
        let folder = manifest.strip_prefix(root).unwrap_or(manifest).trim_start_matches('/').trim_end_matches("Cargo.toml");
        if all_change || changed.iter().any(|file| file.starts_with(folder)) {
            found.insert(name.to_string());
        }
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            users.entry(dependency["name"].as_str().unwrap_or_default()).or_default().push(name);
        }
    }
    let mut open: Vec<String> = found.iter().cloned().collect();
    while let Some(name) = open.pop() {
        for user in users.get(name.as_str()).into_iter().flatten() {
            if found.insert(user.to_string()) {
                open.push(user.to_string());
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// If this fails, a change is called good though who builds on it was not looked at.
    #[test]
    fn what_depends_on_a_change_is_checked_too() {
        let package = |name: &str, folder: &str, on: &[&str]| {
            let dependencies: Vec<Value> = on.iter().map(|name| json!({"name": name})).collect();
            json!({"name": name, "manifest_path": format!("/w/{folder}/Cargo.toml"), "dependencies": dependencies})
        };
        let packages = [
            package("exec", "base/exec", &[]),
            package("zio", "storage/zio", &["exec"]),
            package("zio-x", "storage/zio-x", &[]),
            package("dmu", "object/dmu", &["zio"]),
        ];
        let metadata = json!({"workspace_root": "/w", "packages": packages});
        let names = |changed: &[&str]| {
            let changed: Vec<String> = changed.iter().map(|file| file.to_string()).collect();
            affected(&metadata, &changed).expect("well formed").into_iter().collect::<Vec<_>>()
        };
        assert_eq!(names(&["storage/zio/src/read.rs"]), ["dmu", "zio"]);
        assert_eq!(names(&["docs/NEXT.md"]), [""; 0]);
        assert_eq!(names(&["Cargo.lock"]).len(), 4);
    }
}
