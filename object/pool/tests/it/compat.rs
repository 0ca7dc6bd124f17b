//! COMPAT.md is what users decide by: its feature table must say what the code does, feature by feature.

use pool::{FEATURES, Support};

#[test]
fn the_feature_table_of_compat_md_says_what_the_code_does() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../COMPAT.md")).expect("COMPAT.md is in the tree");
    let rows: Vec<Vec<&str>> =
        text.lines().filter(|line| line.starts_with("| `")).map(|line| line.split('|').map(str::trim).collect()).collect();
    assert_eq!(rows.len(), FEATURES.len(), "one row a feature");
    for (feature, row) in FEATURES.iter().zip(rows) {
        let support = match feature.support {
            Support::Full => "full",
            Support::Read => "read-only",
            Support::None => "refused",
        };
        let created = if feature.on_new_pools { "yes" } else { "no" };
        assert_eq!(row[1..4], [format!("`{}`", feature.name).as_str(), support, created], "{}", feature.name);
    }
}
