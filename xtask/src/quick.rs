//! `cargo xtask quick [BASE]`: the checks that an edit needs at once. Formatting, layers, house rules, and lints and tests of the crates that
//! changed since BASE (default: the last commit; what is not committed counts) and of those that depend on them. The whole gate stays `cargo xtask ci`.
//!
//! What is compiled is what the gate compiles, of the whole workspace: some packages alone would get other features of what they are built on
//! (`serde`, `rustix`, the `testing` of our own), all of which would be compiled once more, also where nothing changed.

use crate::gate::LINTS;
use crate::{run, structure, tidy};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

/// Names of crates whose tests are long programs: the gate's business.
const SLOW: &[&str] = &["torture", "fuzz"];

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
    println!("── quick: {}", wanted.iter().cloned().collect::<Vec<_>>().join(" "));
    let made = build(root)?;
    test_programs(&made, &manifests(&metadata, &wanted))
        .iter()
        .try_for_each(|(manifest, program)| run(Path::new(manifest).parent().unwrap_or(root), program, &[]))
}

/// Compiles and lints as the gate does; what cargo has to say of it for programs.
fn build(root: &Path) -> Result<String, String> {
    let words = ["build", "--workspace", "--all-targets", "--locked", "--message-format", "json-render-diagnostics"];
    println!("── cargo {}", words.join(" "));
    let mut command = Command::new("cargo");
    command.args(words).envs(LINTS.iter().copied()).current_dir(root).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| format!("cargo cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("cargo build failed ({})", output.status))
}

/// Paths of the manifests of packages, but for those whose tests are slow.
fn manifests<'a>(metadata: &'a Value, wanted: &BTreeSet<String>) -> BTreeSet<&'a str> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let is_wanted = |package: &&Value| package["name"].as_str().is_some_and(|name| wanted.contains(name) && !SLOW.contains(&name));
    packages.filter(is_wanted).filter_map(|package| package["manifest_path"].as_str()).collect()
}

/// Programs of tests that cargo has made or found, each with the manifest of its package; in the folder of that they are run, as cargo does.
fn test_programs(made: &str, manifests: &BTreeSet<&str>) -> Vec<(String, String)> {
    let artifacts = made.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let test = |artifact: Value| -> Option<(String, String)> {
        let is_test = artifact["reason"] == "compiler-artifact" && artifact["profile"]["test"] == true;
        let manifest = artifact["manifest_path"].as_str().filter(|manifest| is_test && manifests.contains(manifest))?;
        Some((manifest.to_string(), artifact["executable"].as_str()?.to_string()))
    };
    artifacts.filter_map(test).collect()
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

    /// If this fails, tests of what changed are not run, or those of everything.
    #[test]
    fn the_tests_of_what_is_wanted_are_run_and_no_others() {
        let artifact = |folder: &str, is_test: bool, program: Value| {
            let manifest = format!("/w/{folder}/Cargo.toml");
            json!({"reason": "compiler-artifact", "manifest_path": manifest, "profile": {"test": is_test}, "executable": program})
                .to_string()
        };
        let made = [
            artifact("storage/zio", false, Value::Null),
            artifact("storage/zio", true, json!("/w/target/zio-1")),
            artifact("bin/zdb", false, json!("/w/target/zdb")),
            artifact("bin/zdb", true, json!("/w/target/zdb-2")),
            artifact("base/exec", true, json!("/w/target/exec-3")),
            json!({"reason": "build-finished", "success": true}).to_string(),
        ];
        let found = test_programs(&made.join("\n"), &["/w/storage/zio/Cargo.toml", "/w/bin/zdb/Cargo.toml"].into());
        assert_eq!(found.iter().map(|(_, program)| program.as_str()).collect::<Vec<_>>(), ["/w/target/zio-1", "/w/target/zdb-2"]);
        let package = |name: &str| json!({"name": name, "manifest_path": format!("/w/{name}/Cargo.toml")});
        let metadata = json!({"packages": [package("zio"), package("torture"), package("exec")]});
        assert_eq!(manifests(&metadata, &["zio".to_string(), "torture".to_string()].into()), BTreeSet::from(["/w/zio/Cargo.toml"]));
    }
}
