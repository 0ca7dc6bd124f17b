//! `cargo xtask mutants [FILE…]`: small mistakes put into the code that gives out and counts space, one at a time. The tests must notice each, except those that `test/mutants.list` has with a reason.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Crates, and the files of each that are looked at.
const FILES: [(&str, &[&str]); 3] = [
    (
        "metaslab",
        &[
            "storage/metaslab/src/allocator.rs",
            "storage/metaslab/src/metaslab.rs",
            "storage/metaslab/src/shard.rs",
            "storage/metaslab/src/types.rs",
        ],
    ),
    (
        "dsl",
        &[
            "object/dsl/src/bpobj.rs",
            "object/dsl/src/dataset.rs",
            "object/dsl/src/deadlist.rs",
            "object/dsl/src/dir.rs",
            "object/dsl/src/ledger.rs",
            "object/dsl/src/meta.rs",
            "object/dsl/src/space.rs",
            "object/dsl/src/pool/destroy.rs",
            "object/dsl/src/pool/freeing.rs",
            "object/dsl/src/pool/snapshot.rs",
        ],
    ),
    (
        "dmu",
        &[
            "object/dmu/src/sync/delta.rs",
            "object/dmu/src/sync/free.rs",
            "object/dmu/src/sync/mod.rs",
            "object/dmu/src/sync/node.rs",
            "object/dmu/src/sync/pointer.rs",
            "object/dmu/src/sync/write_set.rs",
        ],
    ),
];

const LIST: &str = "test/mutants.list";
/// Seconds after which a test that a mistake made endless has noticed it.
const TEST_SECONDS_MAX: &str = "120";

/// Numbers of equal mistakes, by their description.
type Counts = BTreeMap<String, usize>;

/// Makes the mistakes of all files, or of those named, and compares those that nobody noticed with the list.
pub fn check(root: &Path, only: &[&str]) -> Result<(), String> {
    let known = || FILES.iter().flat_map(|(_, files)| *files);
    if let Some(stranger) = only.iter().find(|file| !known().any(|known| known == *file)) {
        return Err(format!("{stranger} is not one of the files that are looked at (xtask/src/mutants.rs)"));
    }
    let wanted = |file: &str| only.is_empty() || only.contains(&file);
    let is_there = Command::new("cargo").args(["mutants", "--version"]).output().is_ok_and(|output| output.status.success());
    if !is_there {
        return Err("cargo-mutants is missing: cargo install cargo-mutants --locked".to_string());
    }
    let out = root.join("target/mutants");
    let mut command = Command::new("cargo");
    command.args(["mutants", "--no-shuffle", "--jobs", "1", "--timeout", TEST_SECONDS_MAX, "--colors", "never", "--output"]).arg(&out);
    for (package, files) in FILES {
        let files: Vec<&&str> = files.iter().filter(|file| wanted(file)).collect();
        if !files.is_empty() {
            command.args(["--package", package]);
            files.iter().for_each(|file| {
                command.args(["--file", file]);
            });
        }
    }
    command.env("CARGO_INCREMENTAL", "1").env("CARGO_PROFILE_DEV_DEBUG", "0").current_dir(root);
    let status = command.status().map_err(|error| format!("cargo mutants cannot be started: {error}"))?;
    // 2: some were not noticed, 3: some ended by the clock only.
    if !matches!(status.code(), Some(0 | 2 | 3)) {
        return Err(format!("cargo mutants failed ({status}); its logs are in {}", out.join("mutants.out/log").display()));
    }
    let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
    let missed = counts(read(&out.join("mutants.out/missed.txt"))?.lines().filter_map(told));
    let listed = counts(listed(&read(&root.join(LIST))?).filter(|line| line.split_once(':').is_some_and(|(file, _)| wanted(file))));
    judge(&missed, &listed)
}

/// A mistake as the list has it, `file: function: mutation`: where it is in the file changes too often.
fn told(line: &str) -> Option<String> {
    let (place, what) = line.split_once(": ")?;
    let file = place.split(':').next()?;
    if let Some((mutation, function)) = what.rsplit_once(" in ") {
        return Some(format!("{file}: {function}: {mutation}"));
    }
    let Some((function, value)) = what.strip_prefix("replace ").and_then(|what| what.rsplit_once(" with ")) else {
        return Some(format!("{file}: {what}"));
    };
    // A constant has no function around it, and an operator no type.
    let function = function.split(" -> ").next()?;
    let is_name = function.contains(|letter: char| letter.is_alphanumeric());
    Some(if is_name { format!("{file}: {function}: replace with {value}") } else { format!("{file}: {what}") })
}

fn listed(text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.filter_map(|line| Some(line.split_once(" — ")?.0.to_string()))
}

fn counts(lines: impl Iterator<Item = String>) -> Counts {
    let mut counts = Counts::new();
    lines.for_each(|line| *counts.entry(line).or_default() += 1);
    counts
}

/// Names what is listed and noticed now; what is not listed and not noticed is a failure.
fn judge(missed: &Counts, listed: &Counts) -> Result<(), String> {
    let more = |one: &Counts, other: &Counts| -> Vec<String> {
        one.iter().filter(|(what, count)| *count > other.get(*what).unwrap_or(&0)).map(|(what, _)| format!("  {what}")).collect()
    };
    let noticed = more(listed, missed);
    if !noticed.is_empty() {
        println!("{LIST} has mistakes that tests notice now; take them out:\n{}", noticed.join("\n"));
    }
    let new = more(missed, listed);
    if new.is_empty() {
        println!("no mistake passes the tests but the {} of {LIST}", missed.values().sum::<usize>());
        return Ok(());
    }
    Err(format!("no test notices these mistakes; write one, or list them with a reason in {LIST}:\n{}", new.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, mistakes that no test notices pass for ones that were looked at.
    #[test]
    fn what_nobody_noticed_is_compared_with_the_list() {
        let lines = [
            ("a/b.rs:51:34: replace << with >>", "a/b.rs: replace << with >>"),
            ("a/b.rs:156:84: replace >= with < in Shard::take", "a/b.rs: Shard::take: replace >= with <"),
            ("a/b.rs:45:9: replace Loan::segments -> &[Range<u64>] with Vec::new()", "a/b.rs: Loan::segments: replace with Vec::new()"),
            ("a/b.rs:24:9: replace <impl Drop for Hold>::drop with ()", "a/b.rs: <impl Drop for Hold>::drop: replace with ()"),
            ("a/b.rs:9:9: replace match guard !x with false in A::b", "a/b.rs: A::b: replace match guard !x with false"),
        ];
        for (line, expected) in lines {
            assert_eq!(told(line).as_deref(), Some(expected));
        }
        let list = counts(listed("# A word: about — this\n\na/b.rs: f: delete ! — only speed\na/b.rs: f: delete ! — the same\n"));
        let missed = |times: usize| counts((0..times).map(|_| "a/b.rs: f: delete !".to_string()));
        assert_eq!(list, missed(2));
        assert!(judge(&missed(0), &list).is_ok() && judge(&missed(2), &list).is_ok());
        assert!(judge(&missed(3), &list).is_err(), "one more of the same is new");
        assert!(judge(&counts(["a/b.rs: g: delete !".to_string()].into_iter()), &list).is_err());
    }
}
