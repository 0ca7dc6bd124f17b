//! How many late I/Os a promise bears: a promise about 99 of 100 is not broken by one, and every device and host is late now and then by
//! itself. I/Os in time earn a quarter of the late ones that may be; two at most are saved up, and are there to begin with.

/// One late I/O, in the unit of what I/Os in time earn.
const ONE: u32 = 1_000_000;
const MOST: u32 = 2 * ONE;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    saved: u32,
    /// Gain by an I/O in time, in millionths of a late I/O.
    earns: u32,
}

impl Allowance {
    /// Makes the allowance of a promise that so many I/Os in a million may break.
    pub(crate) fn new(late_ppm: u32) -> Allowance {
        Allowance { saved: MOST, earns: (late_ppm / 4).max(1) }
    }

    /// An I/O was in time.
    pub(crate) fn earn(&mut self) {
        self.saved = (self.saved + self.earns).min(MOST);
    }

    /// An I/O was late; false if too many were.
    pub(crate) fn bears(&mut self) -> bool {
        let bears = self.saved >= ONE;
        self.saved -= if bears { ONE } else { 0 };
        bears
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More would break the promise, none would let background work starve for what it did not do.
    #[test]
    fn a_quarter_of_what_may_be_late_is_borne() {
        for every in [50, 300, 500, 1000] {
            let mut allowance = Allowance::new(10_000);
            let borne = (1..=1_000_000u32).filter(|io| {
                allowance.earn();
                io % every == 0 && allowance.bears()
            });
            let borne = borne.count() as u32;
            let expected = if every <= 400 { 1_000_000 / 400 } else { 1_000_000 / every };
            assert!(borne.abs_diff(expected) <= expected / 20, "one in {every}: {borne} borne of {expected}");
        }
    }
}
