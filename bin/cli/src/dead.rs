//! Mounts that a daemon left which died and is not started again: programs get errors there until somebody does something.

use control_api::StateDir;
use serde_json::Value;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

/// Number of dead mounts that are named; of more the count is told.
const NAMED_MAX: usize = 10;

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
        many => {
            let (count, named) = (many.len(), &many[..many.len().min(NAMED_MAX)]);
            let rest = if count > NAMED_MAX { format!("\n\tand {} more", count - NAMED_MAX) } else { String::new() };
            let advice = "'zirconia start' brings them back, 'umount' takes one away";
            Some(format!("the daemon died, and its {count} mounts are dead: {advice}\n\t{}{rest}", named.join("\n\t")))
        }
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

    /// Whoever has hundreds of file systems would see nothing but their names, and the advice long gone from the screen.
    #[test]
    fn of_many_dead_mounts_the_first_are_named_and_the_others_counted() {
        let places: Vec<PathBuf> = (0..202).map(|number| PathBuf::from(format!("/m/{number}"))).collect();
        let said = |count: usize| words_on(&places[..count], &|_| Some(ErrorKind::NotConnected.into())).unwrap();
        let many = said(202);
        assert!(many.starts_with("the daemon died, and its 202 mounts are dead: 'zirconia start' brings them back"), "{many}");
        assert!(many.ends_with("\n\t/m/9\n\tand 192 more"), "{many}");
        assert_eq!((many.lines().count(), said(10).lines().count()), (12, 11));
        assert!(said(10).ends_with("\n\t/m/9"));
    }
}
