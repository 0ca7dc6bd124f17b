//! The logs whose statistics are shown, read from the files of the daemon: `zil` for all together, `POOL/objset-0x…` for those of datasets.

use cli::kstat::{failed, read, unreadable};
use control_api::Failure;
use std::collections::BTreeMap;
use std::path::Path;

/// Beginning of the names of files about datasets.
const OBJSET: &str = "objset-";

/// Logs that somebody wants to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// All of the process, as one.
    Together,
    /// Each of every pool.
    Each,
    /// Each of one pool.
    Pool(String),
    /// Each of these datasets.
    Datasets(Vec<String>),
}

/// Statistics of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// Name of the pool, `GLOBAL` for all logs together.
    pub pool: String,
    /// Name of the dataset, `-` for all logs together.
    pub dataset: String,
    /// Number of the object set as the file has it, `GLOBAL` for all logs together.
    pub object: String,
    /// Counts by OpenZFS's names.
    pub counts: BTreeMap<String, u64>,
}

/// Logs by pool and object set.
pub type Look = BTreeMap<(String, u64), Log>;

impl Which {
    /// Makes the choice that options say.
    pub fn of(all: bool, pool: Option<&str>, datasets: Option<&str>) -> Which {
        match (pool, datasets) {
            (Some(pool), _) => Which::Pool(pool.to_string()),
            (None, Some(names)) => Which::Datasets(names.split(',').map(str::to_string).collect()),
            (None, None) if all => Which::Each,
            (None, None) => Which::Together,
        }
    }
}

impl Log {
    /// Sum of statistics, written `a+b`.
    pub fn sum(&self, names: &str) -> u64 {
        names.split('+').map(|name| self.counts.get(name).copied().unwrap_or(0)).fold(0, u64::saturating_add)
    }

    fn read(path: &Path) -> Result<Log, Failure> {
        let mut log = Log::default();
        for (name, value) in read(path)? {
            if name == "dataset_name" {
                log.dataset = value;
            } else if let Ok(count) = value.parse() {
                log.counts.insert(name, count);
            }
        }
        Ok(log)
    }
}

/// Reads the statistics in a folder.
///
/// # Errors
/// The daemon shows none, or there is no such pool or dataset.
pub fn look(folder: &Path, which: &Which) -> Result<Look, Failure> {
    match which {
        Which::Together => {
            let global = "GLOBAL".to_string();
            let log = Log { pool: global.clone(), dataset: "-".into(), object: global.clone(), ..Log::read(&folder.join("zil"))? };
            Ok(Look::from([((global, 0), log)]))
        }
        Which::Each => {
            let mut look = Look::new();
            for name in names(folder)? {
                look.extend(of_pool(folder, &name));
            }
            Ok(look)
        }
        Which::Pool(pool) => {
            // Tells a daemon that is not there from a pool that is not.
            names(folder)?;
            if !folder.join(pool).is_dir() {
                return Err(failed(format!("there is no pool '{pool}'")));
            }
            Ok(of_pool(folder, pool))
        }
        Which::Datasets(datasets) => {
            names(folder)?;
            let mut look = Look::new();
            for dataset in datasets {
                let pool = dataset.split('/').next().unwrap_or(dataset);
                let found = of_pool(folder, pool).into_iter().find(|(_, log)| log.dataset == *dataset);
                look.extend([found.ok_or_else(|| failed(format!("there is no dataset '{dataset}', or it is not in use")))?]);
            }
            Ok(look)
        }
    }
}

/// Names of what is in a folder.
fn names(folder: &Path) -> Result<Vec<String>, Failure> {
    let entries = std::fs::read_dir(folder).map_err(|error| unreadable(folder, &error))?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
}

/// Logs of a pool; none of what is no pool. Those of datasets that go out of use meanwhile are left out.
fn of_pool(folder: &Path, pool: &str) -> Look {
    let names = names(&folder.join(pool)).unwrap_or_default();
    let of = |name: &String| {
        let object = name.strip_prefix(OBJSET)?;
        let number = u64::from_str_radix(object.strip_prefix("0x")?, 16).ok()?;
        let log = Log::read(&folder.join(pool).join(name)).ok()?;
        Some(((pool.to_string(), number), Log { pool: pool.to_string(), object: object.to_string(), ..log }))
    };
    names.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &Path, rows: &[(&str, &str)]) {
        let rows: String = rows.iter().map(|(name, value)| format!("{name:<31} 4    {value}\n")).collect();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("1 1 0x01 2 544 0 0\nname                            type data\n{rows}")).unwrap();
    }

    /// If this fails, `zilstat` shows the log of another dataset than the one that was asked for, or none.
    #[test]
    fn logs_are_found_by_pool_and_by_dataset() {
        let folder = std::env::temp_dir().join(format!("zilstat-{}", std::process::id()));
        file(&folder.join("zil"), &[("zil_commit_count", "7")]);
        file(&folder.join("tank/objset-0x36"), &[("dataset_name", "tank"), ("zil_commit_count", "3")]);
        file(&folder.join("tank/objset-0x102"), &[("dataset_name", "tank/my files"), ("zil_commit_count", "4")]);
        file(&folder.join("tank/direct-0x36"), &[("reads", "4")]);
        file(&folder.join("other/objset-0x36"), &[("dataset_name", "other"), ("zil_commit_count", "0")]);
        let shown = |which: &Which| {
            let look = look(&folder, which).map_err(|failure| failure.to_string())?;
            Ok::<_, String>(
                look.values().map(|log| (log.dataset.clone(), log.object.clone(), log.sum("zil_commit_count"))).collect::<Vec<_>>(),
            )
        };
        let row = |dataset: &str, object: &str, count| (dataset.to_string(), object.to_string(), count);
        let (root, files) = (row("tank", "0x36", 3), row("tank/my files", "0x102", 4));
        assert_eq!(shown(&Which::of(false, None, None)), Ok(vec![row("-", "GLOBAL", 7)]));
        assert_eq!(shown(&Which::of(true, None, None)), Ok(vec![row("other", "0x36", 0), root.clone(), files.clone()]));
        assert_eq!(shown(&Which::of(false, Some("tank"), None)), Ok(vec![root, files.clone()]));
        assert_eq!(shown(&Which::of(false, None, Some("tank/my files"))), Ok(vec![files]));
        assert!(shown(&Which::Pool("gone".into())).is_err_and(|why| why.contains("no pool 'gone'")));
        assert!(shown(&Which::Datasets(vec!["tank/gone".into()])).is_err_and(|why| why.contains("no dataset 'tank/gone'")));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(shown(&Which::Together).is_err_and(|why| why.contains("zirconia start")));
    }
}
