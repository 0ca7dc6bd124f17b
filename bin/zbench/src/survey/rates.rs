//! What the machine of the talk allows: drives at ×4 links behind two PCIe controllers, twelve drives each.

/// Number of drives behind a controller.
const PER_HOST: usize = 12;
/// Number of controllers.
const HOSTS: usize = 2;
/// Number of drives, at most.
pub const DRIVES_MAX: usize = PER_HOST * HOSTS;

/// Direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the devices.
    Read,
    /// To the devices.
    Write,
}

/// Rates in bytes per second.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Rates at which a drive reads, and writes.
    pub drive: [u64; 2],
    /// Rate of the link of a drive.
    pub link: u64,
    /// Rate that all drives behind a controller have together.
    pub host: u64,
}

/// Order in which devices are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As they are counted: those of the first controller first.
    Naive,
    /// From both controllers in turn.
    Aware,
}

/// Controller that a drive is behind.
pub fn host_of(drive: usize) -> usize {
    drive / PER_HOST
}

/// Numbers of the first `count` drives.
pub fn drives(count: usize, order: Order) -> Vec<usize> {
    let number = |index: usize| match order {
        Order::Naive => index,
        Order::Aware => index % HOSTS * PER_HOST + index / HOSTS,
    };
    (0..count.min(DRIVES_MAX)).map(number).collect()
}

impl Rates {
    /// Rate of one drive: its own, or that of its link.
    pub fn drive(&self, direction: Direction) -> u64 {
        self.drive[direction as usize].min(self.link)
    }

    fn at_hosts(drives: &[usize]) -> [usize; HOSTS] {
        let mut counts = [0; HOSTS];
        drives.iter().for_each(|drive| counts[host_of(*drive)] += 1);
        counts
    }

    /// Rate that drives have when each has work of its own.
    pub fn together(&self, drives: &[usize], direction: Direction) -> u64 {
        Rates::at_hosts(drives).iter().map(|count| self.host.min(*count as u64 * self.drive(direction))).sum()
    }

    /// Rate of a stripe, of which each drive has the same part: the one with the least decides.
    pub fn stripe(&self, drives: &[usize], direction: Direction) -> u64 {
        let counts = Rates::at_hosts(drives);
        let parts = counts.iter().filter(|count| **count > 0).map(|count| self.drive(direction).min(self.host / *count as u64));
        parts.min().unwrap_or(0) * drives.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::{Direction, Order, Rates, drives};

    /// If this fails, the survey judges pools by what no machine could give, or by less.
    #[test]
    fn limits_are_those_of_drives_links_and_controllers() {
        const GB: u64 = 1_000_000_000;
        let rates = Rates { drive: [6 * GB, 2 * GB], link: 4 * GB, host: 16 * GB };
        assert_eq!(drives(5, Order::Naive), [0, 1, 2, 3, 4]);
        assert_eq!(drives(5, Order::Aware), [0, 12, 1, 13, 2]);
        let read = |count, order| {
            let drives = drives(count, order);
            [rates.together(&drives, Direction::Read) / GB, rates.stripe(&drives, Direction::Read) / GB]
        };
        assert_eq!(read(1, Order::Naive), [4, 4]);
        assert_eq!(read(8, Order::Naive), [16, 16]);
        assert_eq!(read(8, Order::Aware), [32, 32]);
        // Four drives of the second controller wait for the twelve of the first.
        assert_eq!(read(16, Order::Naive), [32, 21]);
        assert_eq!(read(24, Order::Naive), [32, 31]);
        assert_eq!(rates.together(&drives(24, Order::Aware), Direction::Write) / GB, 32);
        assert_eq!(rates.stripe(&drives(4, Order::Aware), Direction::Write) / GB, 8);
    }
}
