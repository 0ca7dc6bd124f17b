//! The columns of `zilstat`: names, widths and scales are those of OpenZFS 2.3's script (`cmd/zilstat.in`), and so are the statistics behind them.

use crate::logs::Log;

/// Formula of a column's value. Sums of statistics are written `a+b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Formula {
    /// Time of day.
    Time,
    /// Name of the pool.
    Pool,
    /// Name of the dataset.
    Dataset,
    /// Number of the object set.
    Object,
    /// Sum of statistics.
    Sum(&'static str),
    /// The first sum as a percentage of the second.
    Share(&'static str, &'static str),
}

/// Column of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Heading of the column.
    pub name: &'static str,
    /// Width in characters.
    pub width: usize,
    /// Divisor of numbers above it.
    pub scale: u64,
    /// Formula of its value.
    pub formula: Formula,
}

/// Scale of percentages.
const PERCENT: u64 = 100;

const fn text(name: &'static str, width: usize, formula: Formula) -> Column {
    Column { name, width, scale: PERCENT, formula }
}

const fn count(name: &'static str, sum: &'static str) -> Column {
    Column { name, width: 5, scale: 1000, formula: Formula::Sum(sum) }
}

const fn bytes(name: &'static str, sum: &'static str) -> Column {
    Column { name, width: 5, scale: 1024, formula: Formula::Sum(sum) }
}

const fn wide(column: Column) -> Column {
    Column { width: 6, ..column }
}

const fn share(name: &'static str, part: &'static str, whole: &'static str) -> Column {
    Column { name, width: name.len(), scale: PERCENT, formula: Formula::Share(part, whole) }
}

const BYTES: &str = "zil_itx_metaslab_normal_bytes+zil_itx_metaslab_slog_bytes";
const WRITTEN: &str = "zil_itx_metaslab_normal_write+zil_itx_metaslab_slog_write";
const ALLOCATED: &str = "zil_itx_metaslab_normal_alloc+zil_itx_metaslab_slog_alloc";

/// Columns, every one, in the order of `-v`.
pub const COLUMNS: &[Column] = &[
    text("time", 8, Formula::Time),
    text("pool", 12, Formula::Pool),
    text("ds", 12, Formula::Dataset),
    text("obj", 12, Formula::Object),
    count("cc", "zil_commit_count"),
    count("cwc", "zil_commit_writer_count"),
    count("cec", "zil_commit_error_count"),
    count("csc", "zil_commit_stall_count"),
    count("cSc", "zil_commit_suspend_count"),
    count("ic", "zil_itx_count"),
    count("iic", "zil_itx_indirect_count"),
    bytes("iib", "zil_itx_indirect_bytes"),
    count("icc", "zil_itx_copied_count"),
    bytes("icb", "zil_itx_copied_bytes"),
    count("inc", "zil_itx_needcopy_count"),
    bytes("inb", "zil_itx_needcopy_bytes"),
    count("idc", "zil_itx_copied_count+zil_itx_needcopy_count"),
    bytes("idb", "zil_itx_copied_bytes+zil_itx_needcopy_bytes"),
    count("iwc", "zil_itx_indirect_count+zil_itx_copied_count+zil_itx_needcopy_count"),
    bytes("iwb", "zil_itx_indirect_bytes+zil_itx_copied_bytes+zil_itx_needcopy_bytes"),
    wide(count("imnc", "zil_itx_metaslab_normal_count")),
    wide(bytes("imnb", "zil_itx_metaslab_normal_bytes")),
    wide(bytes("imnw", "zil_itx_metaslab_normal_write")),
    wide(bytes("imna", "zil_itx_metaslab_normal_alloc")),
    wide(count("imsc", "zil_itx_metaslab_slog_count")),
    wide(bytes("imsb", "zil_itx_metaslab_slog_bytes")),
    wide(bytes("imsw", "zil_itx_metaslab_slog_write")),
    wide(bytes("imsa", "zil_itx_metaslab_slog_alloc")),
    count("imc", "zil_itx_metaslab_normal_count+zil_itx_metaslab_slog_count"),
    bytes("imb", BYTES),
    bytes("imw", WRITTEN),
    bytes("ima", ALLOCATED),
    share("se%", BYTES, ALLOCATED),
    share("sen%", "zil_itx_metaslab_normal_bytes", "zil_itx_metaslab_normal_alloc"),
    share("ses%", "zil_itx_metaslab_slog_bytes", "zil_itx_metaslab_slog_alloc"),
    share("te%", BYTES, WRITTEN),
    share("ten%", "zil_itx_metaslab_normal_bytes", "zil_itx_metaslab_normal_write"),
    share("tes%", "zil_itx_metaslab_slog_bytes", "zil_itx_metaslab_slog_write"),
];

/// Line of the output: a log, and what it had counted a while before.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// Log now.
    pub log: &'a Log,
    /// Log as it was before; None for all that was counted.
    pub before: Option<&'a Log>,
    /// Seconds since then; 1 for all that was counted.
    pub seconds: u64,
    /// Time of day, as text.
    pub time: &'a str,
}

impl Line<'_> {
    /// Growth of a sum. A dataset that was mounted anew began at zero.
    fn growth(&self, names: &str) -> u64 {
        self.log.sum(names).saturating_sub(self.before.map_or(0, |before| before.sum(names)))
    }
}

impl Column {
    /// Text about what the column shows.
    pub fn about(&self) -> String {
        match self.formula {
            Formula::Time => "time of day".to_string(),
            Formula::Pool => "pool".to_string(),
            Formula::Dataset => "dataset_name".to_string(),
            Formula::Object => "objset".to_string(),
            Formula::Sum(names) => names.to_string(),
            Formula::Share(part, whole) => format!("({part}), percent of ({whole})"),
        }
    }

    /// Heading, right-aligned; that of a rate says so.
    pub fn heading(&self, is_rate: bool) -> String {
        let heading = if is_rate && self.scale > PERCENT { format!("{}/s", self.name) } else { self.name.to_string() };
        format!("{heading:>width$}", width = self.width)
    }

    /// Cell of a line: a text, a number for each second, or a percentage (100 of nothing).
    pub fn cell(&self, line: &Line<'_>) -> String {
        let text = |text: &str| format!("{text:>width$}", width = self.width);
        match self.formula {
            Formula::Time => text(line.time),
            Formula::Pool => text(&line.log.pool),
            Formula::Dataset => text(&line.log.dataset),
            Formula::Object => text(&line.log.object),
            Formula::Sum(names) => self.pretty(line.growth(names) / line.seconds.max(1)),
            Formula::Share(part, whole) => {
                let percent = line.growth(part).saturating_mul(PERCENT).checked_div(line.growth(whole));
                self.pretty(percent.unwrap_or(PERCENT))
            }
        }
    }

    /// Text of a number in the column's width: divided by its scale until it fits, below ten with a decimal (`prettynum`).
    fn pretty(&self, number: u64) -> String {
        let scale = self.scale as f64;
        let (mut value, mut index) = (number as f64, 0);
        while value > scale && index < 5 {
            value /= scale;
            index += 1;
        }
        let width = self.width - usize::from(index > 0);
        let unit = ["", "K", "M", "G", "T", "P"][index];
        if index > 0 && value < 10.0 { format!("{value:>width$.1}{unit}") } else { format!("{:>width$}{unit}", value as u64) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(counts: &[(&str, u64)]) -> Log {
        Log {
            pool: "tank".into(),
            dataset: "tank/db".into(),
            object: "0x36".into(),
            counts: counts.iter().map(|(name, count)| ((*name).to_string(), *count)).collect(),
        }
    }

    fn shown(name: &str, line: &Line<'_>) -> String {
        COLUMNS.iter().find(|column| column.name == name).unwrap().cell(line)
    }

    /// Two columns of one name would hide one of them.
    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<&str> = COLUMNS.iter().map(|column| column.name).collect();
        assert_eq!((names.len(), COLUMNS.len()), (COLUMNS.len(), 38));
    }

    /// Whoever looks for the dataset that syncs most reads these columns; they must mean what OpenZFS's mean.
    #[test]
    fn values_are_sums_rates_and_shares() {
        let before = log(&[("zil_commit_count", 1000), ("zil_itx_copied_bytes", 0)]);
        let now = log(&[
            ("zil_commit_count", 5000),
            ("zil_itx_copied_bytes", 1024 * 1024),
            ("zil_itx_needcopy_bytes", 2 * 1024 * 1024),
            ("zil_itx_metaslab_normal_bytes", 3000),
            ("zil_itx_metaslab_normal_alloc", 4096),
        ]);
        let total = Line { log: &now, before: None, seconds: 1, time: "12:34:56" };
        assert_eq!(["time", "ds", "obj"].map(|name| shown(name, &total)), ["12:34:56", "     tank/db", "        0x36"]);
        assert_eq!(["cc", "idb", "icc"].map(|name| shown(name, &total)), [" 5.0K", " 3.0M", "    0"]);
        assert_eq!(["sen%", "ses%", "te%"].map(|name| shown(name, &total)), ["  73", " 100", "100"], "nothing of nothing is all of it");
        let rate = Line { before: Some(&before), seconds: 8, ..total };
        assert_eq!(["cc", "icb"].map(|name| shown(name, &rate)), ["  500", " 128K"]);
        let anew = Line { log: &before, before: Some(&now), ..total };
        assert_eq!(shown("cc", &anew), "    0", "a dataset that was mounted anew");
    }

    #[test]
    fn headings_say_what_is_a_rate() {
        let heading = |name: &str| COLUMNS.iter().find(|column| column.name == name).unwrap().heading(true);
        assert_eq!(["time", "cc", "imnw", "se%"].map(heading), ["    time", " cc/s", "imnw/s", "se%"]);
    }
}
