//! Mounts that a daemon left which died and is not started again: programs get errors there until somebody does something.

use control_api::StateDir;
use serde_json::Value;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

/// Words on the mounts of a daemon that does not run which are dead; None where there is none.
pub fn words(state: &StateDir) -> Option<String> {
    words_on(&noted(state), &|place| std::fs::symlink_metadata(place).err())
}

/// Words on those of the places at which `look` finds that nobody is at the other end of the mount.
fn words_on(places: &[PathBuf], look: &dyn Fn(&Path) -> Option<Error>) -> Option<String> {
    // The kernel's answer once a connection is over, and while it ends.
    let is_over = |error: Error| matches!(error.kind(), ErrorKind::NotConnected | ErrorKind::ConnectionAborted);
    let dead: Vec<String> =
        places.iter().filter(|place| look(place).is_some_and(is_over)).map(|place| place.display().to_string()).collect();
    let advice = "'zirconia start' brings it back, 'umount' takes it away";
    match dead.as_slice() {
        [] => None,
        [one] => Some(format!("the daemon died, and its mount at {one} is dead: {advice}")),
        many => Some(format!("the daemon died, and its mounts are dead, each of these: {advice}\n\t{}", many.join("\n\t"))),
    }
}

/// Places at which file systems were mounted, as the daemon wrote them down last.
fn noted(state: &StateDir) -> Vec<PathBuf> {
    // What is not believed is told by the daemon.
    let text = service::trust::read(&state.mounts_list()).ok().flatten().unwrap_or_default();
    let notes: Value = serde_json::from_slice(&text).unwrap_or_default();
    let mounts = notes.get("mounts").and_then(Value::as_array);
    mounts.into_iter().flatten().filter_map(|note| note.get("place")?.as_str().map(PathBuf::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who stops a service that died would be told that it does not run, and find programs that hang on errors without a hint.
    #[test]
    fn mounts_of_a_daemon_that_died_are_named_and_no_others() {
        let folder = std::env::temp_dir().join(format!("zirconia-dead-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let state = StateDir::at(&folder);
        assert_eq!(words(&state), None, "there is no list");
        let notes = r#"{"boot":"x","pools":["tank"],"mounts":[{"name":"tank","place":"/a","by_hand":false,"options":[]},
            {"name":"tank/b","place":"/b","by_hand":false,"options":[]},{"name":"tank/c","place":"/c","by_hand":false,"options":[]}]}"#;
        service::trust::replace(&state.mounts_list(), notes.as_bytes()).unwrap();
        let places = noted(&state);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(places, ["/a", "/b", "/c"].map(PathBuf::from));
        let answer = |place: &Path| match place.to_str() {
            Some("/a") => Some(Error::from(ErrorKind::NotConnected)),
            Some("/b") => Some(Error::from(ErrorKind::NotFound)),
            _ => None,
        };
        let said = words_on(&places, &answer).unwrap();
        assert!(said.contains("its mount at /a is dead: 'zirconia start' brings it back"), "{said}");
        assert!(words_on(&places, &|_| Some(ErrorKind::ConnectionAborted.into())).unwrap().ends_with("\n\t/a\n\t/b\n\t/c"));
        assert_eq!(words_on(&places, &|_| None), None);
    }
}
