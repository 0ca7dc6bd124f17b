//! The columns of `arcstat`: names, widths and scales are those of OpenZFS's script (`cmd/arcstat.in`), and so are the
//! statistics behind them.

use std::collections::BTreeMap;

/// Formula of a column's value. Sums of statistics are written `a+b`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Formula {
    /// Time of day.
    Time,
    /// Growth per second.
    Rate(String),
    /// Growth of the first as a percentage of the growth of the second.
    Share(String, String),
    /// Value now.
    Level(String),
    /// Value now of the first as a percentage of that of the second.
    LevelShare(String, String),
    /// Number 1 unless the cache must not grow.
    MayGrow,
}

/// Column of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Heading of the column.
    pub name: String,
    /// Width in characters.
    pub width: usize,
    /// Divisor of numbers above it (100: percentages, never).
    pub scale: u32,
    /// Text about what the column shows.
    pub about: String,
    /// Formula of its value.
    pub formula: Formula,
}

fn column(name: &str, width: usize, scale: u32, about: &str, formula: Formula) -> Column {
    Column { name: name.to_string(), width, scale, about: about.to_string(), formula }
}

const HITS: &str = "hits";
/// Row of [`KINDS`].
type AccessKind = (&'static str, &'static str, &'static [&'static str], usize, usize, &'static str, usize);
/// Accesses of a kind: prefix of the three columns, how it is spelled, the statistics' prefixes, widths of counts and shares,
/// heading of the sum and its width.
const KINDS: [AccessKind; 7] = [
    ("d", "demand", &["demand_data", "demand_metadata"], 4, 3, "dread", 5),
    ("dd", "demand data", &["demand_data"], 5, 4, "ddread", 6),
    ("dm", "demand metadata", &["demand_metadata"], 5, 4, "dmread", 6),
    ("p", "prefetch", &["prefetch_data", "prefetch_metadata"], 4, 3, "pread", 5),
    ("pd", "prefetch data", &["prefetch_data"], 5, 4, "pdread", 6),
    ("pm", "prefetch metadata", &["prefetch_metadata"], 5, 4, "pmread", 6),
    ("m", "metadata", &["prefetch_metadata", "demand_metadata"], 4, 3, "mread", 5),
];
/// Rates of one statistic: heading, width, scale, statistic.
const RATES: [(&str, usize, u32, &str); 28] = [
    ("mfu", 4, 1000, "mfu_hits"),
    ("mru", 4, 1000, "mru_hits"),
    ("mfug", 4, 1000, "mfu_ghost_hits"),
    ("mrug", 4, 1000, "mru_ghost_hits"),
    ("unc", 4, 1000, "uncached_hits"),
    ("eskip", 5, 1000, "evict_skip"),
    ("el2skip", 7, 1000, "evict_l2_skip"),
    ("el2cach", 7, 1024, "evict_l2_cached"),
    ("el2el", 5, 1024, "evict_l2_eligible"),
    ("el2mfu", 6, 1024, "evict_l2_eligible_mfu"),
    ("el2mru", 6, 1024, "evict_l2_eligible_mru"),
    ("el2inel", 7, 1024, "evict_l2_ineligible"),
    ("mtxmis", 6, 1000, "mutex_miss"),
    ("l2hits", 6, 1000, "l2_hits"),
    ("l2miss", 6, 1000, "l2_misses"),
    ("l2read", 6, 1000, "l2_hits+l2_misses"),
    ("l2bytes", 7, 1024, "l2_read_bytes"),
    ("l2wbytes", 8, 1024, "l2_write_bytes"),
    ("ztotal", 6, 1000, "zfetch_hits+zfetch_future+zfetch_stride+zfetch_past+zfetch_misses"),
    ("zhits", 5, 1000, "zfetch_hits"),
    ("zahead", 6, 1000, "zfetch_future+zfetch_stride"),
    ("zpast", 5, 1000, "zfetch_past"),
    ("zmisses", 7, 1000, "zfetch_misses"),
    ("zmax", 4, 1000, "zfetch_max_streams"),
    ("zfuture", 7, 1000, "zfetch_future"),
    ("zstride", 7, 1000, "zfetch_stride"),
    ("zissued", 7, 1000, "zfetch_io_issued"),
    ("zactive", 7, 1000, "zfetch_io_active"),
];
/// Values now of one statistic: heading, width, statistic.
const LEVELS: [(&str, usize, &str); 14] = [
    ("arcsz", 5, "size"),
    ("size", 5, "size"),
    ("c", 5, "c"),
    ("need", 5, "arc_need_free"),
    ("free", 5, "memory_free_bytes"),
    ("avail", 5, "memory_available_bytes"),
    ("waste", 5, "abd_chunk_waste_size"),
    ("l2pref", 6, "l2_prefetch_asize"),
    ("l2mfu", 5, "l2_mfu_asize"),
    ("l2mru", 5, "l2_mru_asize"),
    ("l2data", 6, "l2_bufc_data_asize"),
    ("l2meta", 6, "l2_bufc_metadata_asize"),
    ("l2asize", 7, "l2_asize"),
    ("l2size", 6, "l2_size"),
];
/// Names of the parts of the cache by structure.
const STRUCTURES: [(&str, &str); 8] = [
    ("cmp", "compressed"),
    ("ovh", "overhead"),
    ("bon", "bonus"),
    ("dno", "dnode"),
    ("dbu", "dbuf"),
    ("hdr", "hdr"),
    ("l2h", "l2_hdr"),
    ("abd", "abd_chunk_waste"),
];
const STATES: [(&str, &str, bool); 4] = [("ano", "anon", false), ("mfu", "mfu", true), ("mru", "mru", true), ("unc", "uncached", false)];

/// Columns, every one, in the order of `-a` and `-v`.
pub fn columns() -> Vec<Column> {
    let mut all = vec![column("time", 8, 1, "time of day", Formula::Time)];
    all.extend(accesses());
    all.extend(RATES.map(|(name, width, scale, source)| {
        column(name, width, scale, &format!("{} per second", source.replace('+', " + ")), Formula::Rate(source.to_string()))
    }));
    all.extend(LEVELS.map(|(name, width, source)| column(name, width, 1024, source, Formula::Level(source.to_string()))));
    for (name, part) in [("l2hit%", "l2_hits"), ("l2miss%", "l2_misses")] {
        let formula = Formula::Share(part.to_string(), "l2_hits+l2_misses".to_string());
        all.push(column(name, name.len(), 100, &format!("{part}, percent of accesses of the second level"), formula));
    }
    for (name, part) in [("pref", "prefetch"), ("mfu", "mfu"), ("mru", "mru"), ("data", "bufc_data"), ("meta", "bufc_metadata")] {
        let formula = Formula::LevelShare(format!("l2_{part}_asize"), "l2_asize".to_string());
        all.push(column(&format!("l2{name}%"), name.len() + 3, 100, &format!("l2_{part}_asize, percent of l2_asize"), formula));
    }
    all.push(column("grow", 4, 1000, "0 while the cache must not grow", Formula::MayGrow));
    all.extend(breakdown());
    all
}

fn accesses() -> Vec<Column> {
    let mut all = Vec::new();
    let total = "hits+iohits+misses";
    let rate = |source: &str| Formula::Rate(source.to_string());
    let share = |part: &str, whole: &str| Formula::Share(part.to_string(), whole.to_string());
    all.push(column("hits", 4, 1000, "hits per second", rate(HITS)));
    all.push(column("iohs", 4, 1000, "hits on reads in flight per second", rate("iohits")));
    all.push(column("miss", 4, 1000, "misses per second", rate("misses")));
    all.push(column("read", 4, 1000, "accesses per second", rate(total)));
    all.push(column("hit%", 4, 100, "hits, percent", share(HITS, total)));
    all.push(column("ioh%", 4, 100, "hits on reads in flight, percent", share("iohits", total)));
    all.push(column("miss%", 5, 100, "misses, percent", share("misses", total)));
    for (prefix, spelled, sources, width, share_width, sum, sum_width) in KINDS {
        let of = |suffix: &str| sources.iter().map(|source| format!("{source}_{suffix}")).collect::<Vec<_>>().join("+");
        let whole = [of("hits"), of("iohits"), of("misses")].join("+");
        let parts = [("hit", "h", "hits"), ("ioh", "i", "iohits"), ("mis", "m", "misses")];
        for (end, _, suffix) in parts {
            let name = format!("{prefix}{end}");
            all.push(column(&name, width, 1000, &format!("{spelled} {suffix} per second"), rate(&of(suffix))));
        }
        all.push(column(sum, sum_width, 1000, &format!("{spelled} accesses per second"), rate(&whole)));
        for (_, letter, suffix) in parts {
            let name = format!("{prefix}{letter}%");
            all.push(column(&name, share_width, 100, &format!("{spelled} {suffix}, percent"), share(&of(suffix), &whole)));
        }
    }
    all
}

/// Columns of what the cache consists of: by structure, by type, by state.
fn breakdown() -> Vec<Column> {
    let mut all = Vec::new();
    let mut add = |name: String, source: String, whole: Option<&str>| {
        all.push(column(&name, name.len(), 1024, &source, Formula::Level(source.clone())));
        if let Some(whole) = whole {
            let formula = Formula::LevelShare(source.clone(), whole.to_string());
            all.push(column(&format!("{name}%"), name.len() + 1, 100, &format!("{source}, percent of {whole}"), formula));
        }
    };
    for (name, source) in STRUCTURES {
        add(format!("{name}sz"), format!("{source}_size"), Some("size"));
    }
    for (name, source) in [("data", "data"), ("meta", "metadata")] {
        add(format!("{name}tg"), format!("{source}_target"), Some("caches_size"));
        add(format!("{name}sz"), format!("{source}_size"), Some("caches_size"));
    }
    for (name, source, is_list) in STATES {
        for (end, suffix) in [("tg", "target"), ("dt", "data_target"), ("mt", "metadata_target")].into_iter().filter(|_| is_list) {
            add(format!("{name}{end}"), format!("{source}_{suffix}"), Some("caches_size"));
        }
        let parts = [("sz", "size"), ("da", "data"), ("me", "metadata"), ("ed", "evictable_data"), ("em", "evictable_metadata")];
        for (end, suffix) in parts {
            add(format!("{name}{end}"), format!("{source}_{suffix}"), Some("caches_size"));
        }
        for (end, suffix) in [("gsz", "ghost_size"), ("gd", "ghost_data"), ("gm", "ghost_metadata")].into_iter().filter(|_| is_list) {
            add(format!("{name}{end}"), format!("{source}_{suffix}"), None);
        }
    }
    all
}

/// Values of the statistics at one look: `arcstats`, `zfetchstats` (with `zfetch_` before each name) and what follows from them.
pub type Look = BTreeMap<String, f64>;

/// Number to be printed.
#[derive(Clone, Debug, PartialEq)]
pub enum Number {
    /// Text as it is.
    Text(String),
    /// Whole number.
    Whole(f64),
    /// Rate or share.
    Real(f64),
}

/// Adds what OpenZFS's script computes: the size of all lists and the targets of each (`arc_summary`, `arcstat`).
pub fn complete(look: &mut Look) {
    let get = |look: &Look, name: &str| look.get(name).copied().unwrap_or(0.0);
    let sizes = ["anon", "mfu", "mru", "uncached"].map(|list| get(look, &format!("{list}_data")) + get(look, &format!("{list}_metadata")));
    let all: f64 = sizes.iter().sum();
    let one = 4_294_967_296.0;
    let (meta, pd, pm) = (get(look, "meta"), get(look, "pd"), get(look, "pm"));
    let targets = [
        ("mfu_data_target", (one - pd) * (one - meta)),
        ("mfu_metadata_target", (one - pm) * meta),
        ("mru_data_target", pd * (one - meta)),
        ("mru_metadata_target", pm * meta),
    ]
    .map(|(name, share)| (name, share / one / one * all));
    look.extend(targets.map(|(name, value)| (name.to_string(), value)));
    let [(_, mfu_data), (_, mfu_metadata), (_, mru_data), (_, mru_metadata)] = targets;
    for (name, value) in [
        ("caches_size", all),
        ("data_target", mfu_data + mru_data),
        ("metadata_target", mfu_metadata + mru_metadata),
        ("mfu_target", mfu_data + mfu_metadata),
        ("mru_target", mru_data + mru_metadata),
    ] {
        look.insert(name.to_string(), value);
    }
}

fn sum(look: &Look, names: &str) -> f64 {
    names.split('+').map(|name| look.get(name).copied().unwrap_or(0.0)).sum()
}

impl Column {
    /// Value between two looks `seconds` apart; without an earlier look, since the daemon started.
    pub fn value(&self, now: &Look, old: &Look, seconds: f64, time: &str) -> Number {
        let growth = |names: &str| sum(now, names) - sum(old, names);
        let percent = |part: f64, whole: f64| if whole > 0.0 { Number::Real(100.0 * part / whole) } else { Number::Whole(0.0) };
        match &self.formula {
            Formula::Time => Number::Text(time.to_string()),
            Formula::Rate(names) => Number::Real(growth(names) / seconds),
            Formula::Share(part, whole) => percent(growth(part), growth(whole)),
            Formula::Level(names) => Number::Whole(sum(now, names)),
            Formula::LevelShare(part, whole) => percent(sum(now, part), sum(now, whole)),
            Formula::MayGrow => Number::Whole(if sum(now, "arc_no_grow") > 0.0 { 0.0 } else { 1.0 }),
        }
    }

    /// Heading, right-aligned.
    pub fn heading(&self) -> String {
        format!("{:>width$}", self.name, width = self.width)
    }

    /// Text of a number in the column's width: divided by its scale until it fits, with a decimal where there is room (`prettynum`).
    pub fn pretty(&self, number: &Number, seconds: f64) -> String {
        let mut value = match number {
            Number::Text(text) => return text.clone(),
            Number::Whole(value) | Number::Real(value) => *value,
        };
        let mut index = 0;
        while self.scale != 100 && value.abs() > f64::from(self.scale) && index < 5 {
            value /= f64::from(self.scale);
            index += 1;
        }
        let width = self.width - usize::from(index > 0);
        let is_whole = seconds == 1.0 && value.fract() == 0.0;
        let decimals = usize::from(!(is_whole || width < format!("{value:.0}").len() + 2));
        format!("{value:>width$.decimals$}{}", ["", "K", "M", "G", "T", "P"][index])
    }
}

impl Number {
    /// Text of the number in full (`-p`).
    pub fn exact(&self) -> String {
        match self {
            Number::Text(text) => text.clone(),
            Number::Whole(value) => format!("{value:.0}"),
            Number::Real(value) => format!("{value:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(values: &[(&str, f64)]) -> Look {
        values.iter().map(|(name, value)| (name.to_string(), *value)).collect()
    }

    fn shown(name: &str, now: &Look, old: &Look, seconds: f64) -> (String, String) {
        let column = columns().into_iter().find(|column| column.name == name).unwrap();
        let value = column.value(now, old, seconds, "12:34:56");
        (column.pretty(&value, seconds), value.exact())
    }

    /// Two columns of one name would hide one of them.
    #[test]
    fn names_are_unique() {
        let all = columns();
        let names: std::collections::BTreeSet<&str> = all.iter().map(|column| column.name.as_str()).collect();
        assert_eq!((names.len(), all.len()), (all.len(), 189));
    }

    /// Scripts that watch a cache read these columns; they must mean what OpenZFS's mean.
    #[test]
    fn values_are_rates_shares_and_levels() {
        let old = look(&[("demand_data_hits", 100.0), ("demand_data_misses", 0.0), ("hits", 0.0)]);
        let now = look(&[("demand_data_hits", 4100.0), ("demand_data_misses", 1000.0), ("hits", 12_345_678.0), ("c", 1_610_612_736.0)]);
        assert_eq!(shown("ddread", &now, &old, 1.0), ("    5K".into(), "5000.0".into()));
        assert_eq!(shown("ddread", &now, &old, 2.0), ("  2.5K".into(), "2500.0".into()));
        assert_eq!(shown("ddh%", &now, &old, 1.0), ("  80".into(), "80.0".into()));
        assert_eq!(shown("hits", &now, &old, 1.0), (" 12M".into(), "12345678.0".into()));
        assert_eq!(shown("c", &now, &old, 1.0), (" 1.5G".into(), "1610612736".into()));
        assert_eq!(shown("ph%", &now, &old, 1.0), ("  0".into(), "0".into()));
        assert_eq!(shown("time", &now, &old, 1.0).0, "12:34:56");
        assert_eq!(shown("grow", &now, &old, 1.0).0, "   1");
    }

    #[test]
    fn targets_share_the_lists_by_the_balances() {
        let half = 2_147_483_648.0;
        let mut now = look(&[("mfu_data", 600.0), ("mru_data", 200.0), ("meta", half), ("pd", half), ("pm", half)]);
        complete(&mut now);
        assert_eq!(shown("mfudt", &now, &Look::new(), 1.0).1, "200");
        assert_eq!(shown("datatg%", &now, &Look::new(), 1.0).1, "50.0");
    }
}
