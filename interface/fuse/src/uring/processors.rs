//! Numbers of processors: those that the kernel may ever have, each of which has a queue, and those on which threads may run.

use rustix::thread::CpuSet;

/// Processors of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Processors {
    /// Number of queues that the kernel wants.
    pub possible: usize,
    /// Numbers of those that run, ascending.
    pub online: Vec<usize>,
}

impl Processors {
    /// Looks at the machine; None where the kernel says nothing that makes sense.
    pub fn look() -> Option<Processors> {
        let read = |name: &str| std::fs::read_to_string(format!("/sys/devices/system/cpu/{name}")).ok();
        Processors::parse(&read("possible")?, &read("online")?)
    }

    fn parse(possible: &str, online: &str) -> Option<Processors> {
        let (possible, online) = (list(possible)?, list(online)?);
        Some(Processors { possible: possible.len(), online }).filter(|found| possible.last() == Some(&(found.possible - 1)))
    }
}

/// Numbers of a list as `0-3,8`.
fn list(text: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        if first > last || last >= CpuSet::MAX_CPU || all.last().is_some_and(|before| *before >= first) {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

/// Has this thread run on the processor, if the process may use it.
pub(crate) fn stay_on(processor: usize) {
    let may = rustix::thread::sched_getaffinity(None).is_ok_and(|set| set.is_set(processor));
    if may {
        let mut set = CpuSet::new();
        set.set(processor);
        // Elsewhere it serves as well, only later.
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}

#[cfg(test)]
mod tests {
    use super::Processors;

    /// A processor without a queue keeps the kernel from using any: the mount would hang.
    #[test]
    fn every_possible_processor_is_counted() {
        let parse = |possible, online| Processors::parse(possible, online).map(|found| (found.possible, found.online));
        assert_eq!(parse("0-3\n", "0,2-3\n"), Some((4, vec![0, 2, 3])));
        assert_eq!(parse("0", "0"), Some((1, vec![0])));
        for possible in ["", "1-3", "0,2", "3-0", "0-1,1-2", "x", "0-99999999"] {
            assert_eq!(parse(possible, "0"), None, "{possible}");
        }
    }
}
