//! Reading the tree's Rust sources: which files there are, and what a line of code is.

use std::path::{Path, PathBuf};

/// Paths of every `.rs` file of the workspace, relative to the root, sorted.
pub fn rust_files(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() {
                if name != "target" && !name.to_string_lossy().starts_with('.') {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                files.push(path.strip_prefix(root).unwrap_or(&path).to_path_buf());
            }
        }
    }
    files.sort();
    files
}

/// Part of the source before its inline `#[cfg(test)] mod`, which is how the budgets count "code lines".
pub fn without_inline_tests(text: &str) -> &str {
    let mut offset = 0;
    let mut previous_is_cfg_test = false;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        if previous_is_cfg_test && trimmed.starts_with("mod ") && trimmed.ends_with('{') {
            return &text[..offset];
        }
        previous_is_cfg_test = trimmed == "#[cfg(test)]";
        offset += line.len();
    }
    text
}

/// Number of lines that carry code: not blank, not a comment.
pub fn code_lines(text: &str) -> usize {
    without_inline_tests(text).lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

/// Name, first line (1-based) and number of lines of each function, found by the brace that closes its body's indentation.
pub fn functions(text: &str) -> Vec<(String, usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let Some(name) = function_name(line.trim_start()).filter(|_| !line.ends_with(';')) else { continue };
        let close = format!("{}}}", &line[..indent]);
        let end = lines[index..].iter().position(|l| {
            **l == *close || (l.trim_end().ends_with('}') && l.len() - l.trim_start().len() == indent && l.trim_start().starts_with("fn "))
        });
        if let Some(length) = end {
            found.push((name.to_string(), index + 1, length + 1));
        }
    }
    found
}

fn function_name(line: &str) -> Option<&str> {
    let mut rest = line;
    if let Some(after) = rest.strip_prefix("pub") {
        rest = after.trim_start();
        if rest.starts_with('(') {
            rest = rest.split_once(')')?.1.trim_start();
        }
    }
    for word in ["const ", "unsafe ", "extern \"C\" "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let name = rest.strip_prefix("fn ")?;
    name.split(['(', '<']).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_function_is_measured_and_a_short_one_is_too() {
        let text = "fn a() {\n    1;\n}\n    pub(crate) const fn b<T>(x: T) {\n        2;\n        3;\n    }\n";
        assert_eq!(functions(text), vec![("a".into(), 1, 3), ("b".into(), 4, 4)]);
    }

    #[test]
    fn what_a_trait_only_declares_has_no_lines() {
        let text = "trait T {\n    fn a(&self) -> u8;\n    fn b(&self) {\n    }\n}\n";
        assert_eq!(functions(text), vec![("b".into(), 3, 2)]);
    }

    #[test]
    fn inline_tests_do_not_count_as_code() {
        let text = "fn a() {}\n\n// note\n#[cfg(test)]\nmod tests {\n    fn t() {}\n}\n";
        assert_eq!(code_lines(text), 2);
    }
}
