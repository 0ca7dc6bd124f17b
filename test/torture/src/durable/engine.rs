//! Pools that a power cut left with an intent log, taken over by the real engine, and by us after it.

use super::Recorded;
use crate::machine::write_image;
use crate::outcome::Verdict;
use interop::oracle::Oracle;
use interop::taken::{Taken, by_both};
use sim::{CrashChoice, Image};
use std::path::{Path, PathBuf};

/// Has both engines take over so many pools of a recording, at cuts that lie evenly in it. Where the real engine is missing and may be, nothing is done.
pub fn take_over(recorded: &Recorded, pools: u64) -> (Verdict, Taken) {
    let (mut verdict, mut taken) = (Verdict::default(), Taken::default());
    if pools == 0 {
        return (verdict, taken);
    }
    let oracle = match Oracle::find(&interop::root()) {
        Ok(oracle) if oracle.has_zdb() => oracle,
        Ok(_) => return (verdict, taken),
        Err(missing) => {
            verdict.trial("the real engine", || Err(missing.to_string()));
            return (verdict, taken);
        }
    };
    let cuts = recorded.recording.cuts().len();
    let every = (cuts / pools as usize).max(1);
    recorded.recording.each_cut((every, every / 2), &mut |cut| {
        let choice = if (cut.number / every).is_multiple_of(2) { CrashChoice::Lost } else { CrashChoice::Random(cut.events as u64) };
        let what = format!("{} seed {} cut {} {choice:?}, taken over by the real engine", recorded.layout, recorded.seed, cut.events);
        verdict.trial(&what, || {
            let folder = folder().map_err(|error| error.to_string())?;
            let result = in_folder(&oracle, &folder, &cut.images(choice));
            if result.is_ok() {
                let _ = std::fs::remove_dir_all(&folder);
            }
            taken.add(result.map_err(|error| format!("{error}; it is in {}", folder.display()))?);
            Ok(())
        });
    });
    (verdict, taken)
}

fn in_folder(oracle: &Oracle, folder: &Path, images: &[Image]) -> Result<Taken, interop::Failure> {
    let left = folder.join("left");
    std::fs::create_dir_all(&left)?;
    for (index, image) in images.iter().enumerate() {
        write_image(image, &left.join(format!("d{index:02}")))?;
    }
    by_both(oracle, (&left, "tank"), &folder.join("work"))
}

/// Folder for the devices, in memory where there is one.
fn folder() -> Result<PathBuf, interop::Failure> {
    let memory = PathBuf::from("/dev/shm");
    let base = if memory.is_dir() { memory } else { interop::scratch()? };
    let folder = base.join(format!("zirconia-taken-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}
