//! Lines of the survey: as `obdfilter-survey` prints them, and behind a bar what that does not measure.

/// Figures of one test of a row.
#[derive(Clone, Debug, Default)]
pub struct Test {
    /// Name as the survey's: `write`, `rewrite`, `read`; `cold` is ours.
    pub name: &'static str,
    /// Rate in MiB/s until the last request was answered.
    pub rate: f64,
    /// Lowest and highest rate in MiB/s of an interval; None when there was none.
    pub extremes: Option<[f64; 2]>,
    /// Rate in MiB/s until all was on the devices, of writes.
    pub synced: Option<f64>,
    /// Bytes that the devices read and wrote for a byte that was asked for.
    pub device_bytes: f64,
    /// Percent of the bytes that went past memory; None where nothing else can.
    pub direct: Option<f64>,
    /// Bytes copied for a byte that was asked for; None where nobody could.
    pub copies: Option<f64>,
    /// Seconds of processors for a GiB; None in virtual time, which knows none.
    pub cpu: Option<f64>,
}

/// Row of the survey.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// KiB that each test moved.
    pub total_kib: u64,
    /// KiB of a request.
    pub request_kib: u64,
    /// Number of objects.
    pub objects: usize,
    /// Number of threads.
    pub threads: usize,
    /// Tests, in order; the `cold` one, which the original lacks, is the last.
    pub tests: Vec<Test>,
}

impl Test {
    fn line(&self) -> String {
        let extremes = match self.extremes {
            Some([least, most]) => format!("[{least:7.2},{most:7.2}] "),
            None => format!("{:>17} ", "SHORT"),
        };
        format!("{} {:7.2} {extremes}", self.name, self.rate)
    }
}

/// Values of all tests, as `/` separates them; none where no test has one.
fn column(tests: &[Test], title: &str, decimals: usize, value: impl Fn(&Test) -> Option<f64>) -> String {
    let values: Vec<String> = tests.iter().filter_map(value).map(|value| format!("{value:.decimals$}")).collect();
    if values.is_empty() { String::new() } else { format!(" {title} {}", values.join("/")) }
}

impl Row {
    /// Line of the row. Up to the bar it is `obdfilter-survey`'s, of one target; each figure behind it has a value of each test in order:
    /// rates with the sync (of tests that write), the rate of reads with an empty cache, device bytes by asked bytes, percent direct, copies
    /// by asked bytes, CPU seconds a GiB.
    pub fn line(&self) -> String {
        let Row { total_kib, request_kib, objects, threads, tests } = self;
        let known: String = tests.iter().filter(|test| test.name != "cold").map(Test::line).collect();
        let columns = [
            column(tests, "synced", 2, |test| test.synced),
            column(tests, "cold", 2, |test| (test.name == "cold").then_some(test.rate)),
            column(tests, "dev/asked", 3, |test| Some(test.device_bytes)),
            column(tests, "direct%", 1, |test| test.direct),
            column(tests, "copies", 2, |test| test.copies),
            column(tests, "cpu-s/GiB", 3, |test| test.cpu),
        ];
        format!("ost {:2} sz {total_kib:8}K rsz {request_kib:4} obj {objects:4} thr {threads:4} {known}|{}", 1, columns.concat())
    }
}

/// Rates of the intervals that ended before the run did; None without any. `moved` has times in ns since the beginning, and bytes.
pub fn extremes(moved: &[(u64, u64)], interval_ns: u64) -> Option<[f64; 2]> {
    let end = moved.iter().map(|(at, _)| *at).max()?;
    let mut sums = vec![0u64; (end / interval_ns.max(1)) as usize];
    for (at, bytes) in moved {
        if let Some(sum) = sums.get_mut((at / interval_ns.max(1)) as usize) {
            *sum += bytes;
        }
    }
    let rate = |sum: u64| mib_per_second(sum, interval_ns);
    Some([rate(*sums.iter().min()?), rate(*sums.iter().max()?)])
}

/// Rate in MiB/s.
pub fn mib_per_second(bytes: u64, ns: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20) / (ns.max(1) as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::{Row, Test, extremes};

    /// If this fails, what reads the survey of Lustre's tool cannot read ours.
    #[test]
    fn a_row_is_the_surveys_up_to_the_bar() {
        let test = |name, rate| Test { name, rate, device_bytes: 1.0, ..Test::default() };
        let write = Test { extremes: Some([100.5, 2000.25]), synced: Some(900.0), cpu: Some(0.25), ..test("write", 1234.5) };
        let cold = Test { device_bytes: 1.02, direct: Some(99.96), copies: Some(0.0), ..test("cold", 765.4) };
        let row = Row { total_kib: 262_144, request_kib: 1024, objects: 16, threads: 64, tests: vec![write, test("read", 50.0), cold] };
        let expected = "ost  1 sz   262144K rsz 1024 obj   16 thr   64 write 1234.50 [ 100.50,2000.25] read   50.00             SHORT | \
                        synced 900.00 cold 765.40 dev/asked 1.000/1.000/1.020 direct% 100.0 copies 0.00 cpu-s/GiB 0.250";
        assert_eq!(row.line(), expected);
    }

    /// If this fails, the interval in which a run ended makes it look as if it had nearly stood still.
    #[test]
    fn extremes_are_of_whole_intervals() {
        let mib = 1 << 20;
        let moved = [(10, mib), (900_000_000, mib), (1_100_000_000, 4 * mib), (2_000_000_010, mib)];
        assert_eq!(extremes(&moved, 1_000_000_000), Some([2.0, 4.0]));
        assert_eq!(extremes(&moved[..2], 1_000_000_000), None);
    }
}
