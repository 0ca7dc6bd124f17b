//! `cargo xtask layers`: a dependency may only point down. The order stands in `[workspace.metadata.layers]`.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Reads `cargo metadata` and fails on an upward edge, or an undeclared one inside a layer.
pub fn check(root: &Path) -> Result<(), String> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--no-deps", "--locked"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo metadata cannot be started: {error}"))?;
    let metadata: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata said no JSON: {error}: {}", String::from_utf8_lossy(&output.stderr)))?;
    let problems = problems(&metadata)?;
    if problems.is_empty() {
        println!("── layers: every dependency points down");
        return Ok(());
    }
    Err(format!("{} dependency edges break the layers:\n  {}", problems.len(), problems.join("\n  ")))
}

/// Order of the layers and, within a layer, of crates, both bottom to top.
fn order(metadata: &Value) -> Result<Vec<(String, Vec<String>)>, String> {
    let layers = &metadata["metadata"]["layers"];
    let strings =
        |value: &Value| -> Vec<String> { value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(String::from)).collect() };
    let names = strings(&layers["order"]);
    if names.is_empty() {
        return Err("Cargo.toml has no [workspace.metadata.layers] order".into());
    }
    Ok(names.into_iter().map(|layer| (layer.clone(), strings(&layers["within"][&layer]))).collect())
}

fn problems(metadata: &Value) -> Result<Vec<String>, String> {
    let order = order(metadata)?;
    let mut place: BTreeMap<String, (usize, Option<usize>, String)> = BTreeMap::new();
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let root = metadata["workspace_root"].as_str().unwrap_or_default();
    let mut problems = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let manifest = package["manifest_path"].as_str().unwrap_or_default();
        let mut parts = manifest.strip_prefix(root).unwrap_or(manifest).trim_start_matches('/').split('/');
        let layer = parts.next().unwrap_or_default();
        let folder = parts.next().unwrap_or_default().to_string();
        match order.iter().position(|(known, _)| known == layer) {
            Some(level) => {
                let rank = order[level].1.iter().position(|known| *known == folder);
                place.insert(name.to_string(), (level, rank, format!("{layer}/{folder}")));
            }
            None => problems.push(format!("{name} lies in `{layer}`, which is no layer")),
        }
    }
    for package in packages {
        let Some((level, rank, path)) = place.get(package["name"].as_str().unwrap_or_default()) else { continue };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let Some((below, other, target)) = place.get(dependency["name"].as_str().unwrap_or_default()) else { continue };
            let is_test = dependency["kind"].as_str() == Some("dev");
            let allowed = below < level || (below == level && matches!((rank, other), (Some(a), Some(b)) if b < a));
            if !allowed && !is_test && path != target {
                problems.push(format!("{path} → {target}"));
            }
        }
    }
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn workspace(edges: &[(&str, &str)]) -> Value {
        let crates = ["base/exec", "storage/vdev", "storage/zio", "object/dmu"];
        let packages: Vec<Value> = crates
            .iter()
            .map(|path| {
                let dependencies: Vec<Value> =
                    edges.iter().filter(|(from, _)| from == path).map(|(_, to)| json!({"name": to, "kind": null})).collect();
                json!({"name": path, "manifest_path": format!("/w/{path}/Cargo.toml"), "dependencies": dependencies})
            })
            .collect();
        json!({"workspace_root": "/w", "packages": packages,
               "metadata": {"layers": {"order": ["base", "storage", "object"], "within": {"storage": ["vdev", "zio"]}}}})
    }

    #[test]
    fn downward_edges_pass() {
        let found =
            problems(&workspace(&[("object/dmu", "storage/zio"), ("storage/zio", "storage/vdev")])).expect("the metadata is well formed");
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_planted_upward_edge_is_found() {
        let found =
            problems(&workspace(&[("storage/vdev", "storage/zio"), ("base/exec", "object/dmu")])).expect("the metadata is well formed");
        assert_eq!(found, vec!["base/exec → object/dmu".to_string(), "storage/vdev → storage/zio".to_string()]);
    }
}
