//! Parameters of the I/O scheduler that a sweep goes through, each with its values, the others as they are.

use crate::measure::text;
use std::str::FromStr;
use vdev_queue::Tunables;

/// Parameter with the values that are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// Name, as OpenZFS has it.
    pub name: String,
    /// Values, one after the other.
    pub values: Vec<u64>,
}

impl FromStr for Sweep {
    type Err = String;
    fn from_str(spec: &str) -> Result<Sweep, String> {
        let (name, values) = spec.split_once('=').ok_or("a sweep looks like zfs_vdev_max_active=100:1000")?;
        let values = values.split(':').map(|value| value.parse().map_err(text)).collect::<Result<Vec<u64>, String>>()?;
        Ok(Sweep { name: name.to_string(), values })
    }
}

/// Fails when the I/O scheduler has no such parameter, or it cannot have a value.
pub fn check(sweeps: &[Sweep]) -> Result<(), String> {
    let mut tunables = Tunables::default();
    settings(sweeps).into_iter().flatten().try_for_each(|(name, value)| {
        let outcome = tunables.set(name, value);
        outcome.map_err(|error| format!("{name}={value}: {error}"))
    })
}

/// Settings of a sweep: none first, then each value of each parameter alone.
pub fn settings(sweeps: &[Sweep]) -> Vec<Option<(&str, u64)>> {
    let each = sweeps.iter().flat_map(|sweep| sweep.values.iter().map(|value| Some((sweep.name.as_str(), *value))));
    std::iter::once(None).chain(each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a sweep measures a parameter beside another one that was left changed, or leaves out what it is compared with.
    #[test]
    fn each_value_is_tried_alone_after_the_defaults() {
        let sweeps: Vec<Sweep> = ["a=1:2", "b=3"].iter().map(|spec| spec.parse().expect("a sweep")).collect();
        assert_eq!(settings(&sweeps), [None, Some(("a", 1)), Some(("a", 2)), Some(("b", 3))]);
        assert_eq!(settings(&[]), [None]);
        assert!(check(&sweeps).is_err() && check(&["zfs_vdev_max_active=10:1000".parse().expect("a sweep")]).is_ok());
        assert!("a".parse::<Sweep>().is_err() && "a=x".parse::<Sweep>().is_err() && "a=".parse::<Sweep>().is_err());
    }
}
