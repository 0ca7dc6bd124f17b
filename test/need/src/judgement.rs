//! What OpenZFS's `zdb` says of a pool in which everything is as it should be, so that nobody has to wait for more.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Text that begins what `zdb -h` says after everything else; only what is said before it counts.
const LAST_WORDS: &str = "\nHistory:\n";
/// Words on errors and leaks.
const WORDS: [&str; 7] = ["error", "leaked", "unexpected", "mismatch", "not correct", "overlap", "double"];

/// Checks what `zdb -bcch` has said of a pool, with `-d` (every count of a feature) or without: every block was read, nothing leaked, and there is
/// no complaint. The error says what is lacking, or is the complaint.
///
/// Who has heard that much need not wait for `zdb`: it spends the next six seconds on emptying its cache, because blocks that were prefetched have
/// to stay in it that long (OpenZFS: `arc_evict_hdr`). Its exit code would only repeat what it said (`dump_block_stats`).
pub fn clean(said: &str) -> Result<(), String> {
    let Some((said, _)) = said.split_once(LAST_WORDS) else { return Err("zdb came to no end".into()) };
    clean_before_history(said)
}

/// Does [`clean`] with all that `zdb -bcc` has said, to its end, of a pool before version 4, which has no history to come last.
pub fn clean_before_history(said: &str) -> Result<(), String> {
    if !said.contains("No leaks") {
        return Err("zdb does not say that nothing leaked".into());
    }
    let complaint = said.lines().find(|line| {
        let line = line.to_lowercase();
        WORDS.iter().any(|word| line.contains(word))
            && !line.contains("error log")
            && !line.contains("no leaks")
            && !line.starts_with("traversing")
    });
    complaint.map_or(Ok(()), |line| Err(line.to_string()))
}

/// Runs `zdb -bcch` on a pool whose devices lie in a folder, until it has called it [`clean`]; gives what it said. The error has that, too.
pub fn judged(zdb: &Path, folder: &Path, pool: &str) -> Result<String, String> {
    // Line by line, where there is a program that makes it so.
    let mut command = Command::new(crate::on_path("stdbuf").as_deref().unwrap_or(zdb));
    if crate::on_path("stdbuf").is_some() {
        command.arg("-oL").arg(zdb);
    }
    let named = |error: std::io::Error| format!("{}: {error}", zdb.display());
    let (reader, writer) = std::io::pipe().map_err(named)?;
    command.args(["-e", "-p"]).arg(folder).args(["-bcch", pool]);
    command.stdin(Stdio::null()).stdout(writer.try_clone().map_err(named)?).stderr(writer);
    let mut child = command.spawn().map_err(named)?;
    // It has the pipe's other ends: without it the output ends when zdb does.
    drop(command);
    let (mut lines, mut said, mut line) = (BufReader::new(reader), String::new(), Vec::new());
    while clean(&said).is_err() && lines.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        said.push_str(&String::from_utf8_lossy(&line));
        line.clear();
    }
    // It may have ended by itself.
    let _ = child.kill();
    let _ = child.wait();
    match clean(&said) {
        Ok(()) => Ok(said),
        Err(why) => Err(format!("{why}:\n{said}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, pools with leaks or errors pass for whole ones.
    #[test]
    fn only_a_pool_without_a_complaint_is_clean() {
        let blocks = "Traversing all blocks to verify checksums and verify nothing leaked ...\n\n\tNo leaks (block sum matches space maps exactly)\n";
        let said = |more: &str| format!("{blocks}{more}\nHistory:\n2026-11-27 an error of the past\n");
        assert_eq!(clean(&said("")), Ok(()));
        assert_eq!(clean(&said("\tpersistent error log\n")), Ok(()));
        for complaint in
            ["async_destroy feature refcount mismatch: 1 consumers != 0 refcount", "Error counts:", "space map refcount mismatch"]
        {
            assert_eq!(clean(&said(&format!("{complaint}\n"))), Err(complaint.to_string()));
        }
        assert!(clean(blocks).is_err(), "it was cut off");
        assert!(clean("\tblock traversal size 8192 != alloc 4096 (unreachable 4096)\n\nHistory:\n").is_err());
    }
}
