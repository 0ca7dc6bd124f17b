//! The text of `zpool iostat`: headings, rows and histograms from two pictures of the counters, in OpenZFS's layout
//! (`zpool_main.c`: `print_iostat_*`, `print_vdev_stats`).

use super::columns::Group;
use crate::scripts::Columns;
use cli::number::{nice_count, nice_time_ns};
use control_api::{IostatVdev, VDEV_CLASSES};
use std::fmt::Write;
use std::rc::Rc;

/// Width of a column of numbers for people, in characters.
const NICE_WIDTH: usize = 5;
/// Power of two in bytes below which request sizes are not shown.
const FIRST_SIZE_BUCKET: usize = 9;

/// Style of what is printed.
#[derive(Clone, Debug, Default)]
pub struct Style {
    /// Groups of columns from left to right; a histogram stands alone.
    pub groups: Vec<Group>,
    /// True for exact numbers: `-p`.
    pub exact: bool,
    /// True for scripts: `-H`.
    pub scripted: bool,
    /// True with `-v`, or when vdevs were named.
    pub verbose: bool,
    /// Names of the only vdevs that are shown; empty shows all.
    pub only: Vec<String>,
    /// Width of the column of names in characters.
    pub name_width: usize,
    /// Columns of `-c`: what scripts say of devices.
    pub scripts: Option<Rc<Columns>>,
}

/// Counters of one vdev at two moments.
#[derive(Clone, Copy)]
pub struct Span<'a> {
    /// Name of the pool.
    pub pool: &'a str,
    /// Counters now.
    pub now: &'a IostatVdev,
    /// Counters before; None for the whole life of the pool.
    pub old: Option<&'a IostatVdev>,
    /// Nanoseconds between them.
    pub elapsed_ns: u64,
}

impl Span<'_> {
    fn counted(&self, field: fn(&IostatVdev) -> u64) -> u64 {
        field(self.now).wrapping_sub(self.old.map_or(0, field))
    }

    fn extended(&self, name: &str, cumulative: bool) -> Vec<u64> {
        let mut values = self.now.extended.get(name).cloned().unwrap_or_default();
        if let Some(old) = self.old.and_then(|old| old.extended.get(name)).filter(|_| cumulative) {
            values.iter_mut().zip(old).for_each(|(value, old)| *value = value.wrapping_sub(*old));
        }
        values
    }

    fn per_second(&self) -> f64 {
        if self.elapsed_ns == 0 { 1.0 } else { 1e9 / self.elapsed_ns as f64 }
    }
}

impl Style {
    fn title(&self) -> &'static str {
        match self.groups.first() {
            Some(group) if group.is_histogram() => group.title(),
            _ if !self.only.is_empty() => "vdev",
            _ => "pool",
        }
    }

    fn width(&self, group: Group) -> usize {
        if self.exact { group.exact_width() } else { NICE_WIDTH }
    }

    /// Line of dashes below headings and between pools.
    pub fn separator(&self) -> String {
        self.dashes(None)
    }

    fn dashes(&self, forced: Option<usize>) -> String {
        let mut line = "-".repeat(self.title().len().max(self.name_width));
        for &group in &self.groups {
            let column = "-".repeat(forced.unwrap_or_else(|| self.width(group)).min(20));
            group.bottom().iter().for_each(|_| line.extend(["  ", &column]));
        }
        line.extend(self.scripts.iter().map(|columns| columns.heading(true)));
        line
    }

    /// Lines of headings, three.
    pub fn header(&self) -> String {
        self.header_of(None, None)
    }

    fn header_of(&self, name: Option<&str>, forced: Option<usize>) -> String {
        let width = self.title().len().max(self.name_width).max(name.map_or(0, |name| name.chars().count()));
        let mut lines = [format!("{:width$}", name.unwrap_or_default()), format!("{:width$}", self.title())];
        for &group in &self.groups {
            let column = forced.unwrap_or_else(|| self.width(group));
            group.top().iter().for_each(|&(text, columns)| label(&mut lines[0], text, columns, column));
            group.bottom().iter().for_each(|text| label(&mut lines[1], text, 1, column));
        }
        let scripts = self.scripts.as_ref().map(|columns| columns.heading(false)).unwrap_or_default();
        format!("{}\n{}{scripts}\n{}\n", lines[0], lines[1], self.dashes(forced))
    }

    /// Adds the lines of a vdev and, when verbose, those below it; returns how many vdevs were printed.
    pub fn vdev(&self, out: &mut String, span: Span<'_>, name_of: &dyn Fn(&IostatVdev) -> String, depth: usize) -> usize {
        let name = name_of(span.now);
        let named = self.only.contains(&name);
        let mut printed = 0;
        if self.only.is_empty() || named {
            self.one(out, span, &name, if named { 0 } else { depth });
            printed += 1;
        }
        if self.verbose {
            printed += self.children(out, span, name_of, depth + 2);
        }
        printed
    }

    /// Adds the lines of the vdevs below one: those of each class, and caches, behind the others, with a line above them.
    fn children(&self, out: &mut String, span: Span<'_>, name_of: &dyn Fn(&IostatVdev) -> String, depth: usize) -> usize {
        // A vdev that was not there at the last look has nothing to be compared with, and waits for the next.
        let before = |child: &IostatVdev| span.old.map(|old| old.children.iter().find(|was| was.guid == child.guid));
        let is_known = |child: &IostatVdev| before(child).is_none_or(|was| was.is_some());
        let is_table = !self.scripted && self.only.is_empty() && !self.groups.iter().any(|group| group.is_histogram());
        let mut printed = 0;
        for class in std::iter::once(None).chain(VDEV_CLASSES.map(Some)).chain([Some("cache")]) {
            let mut list = span.now.children.iter().filter(|child| child.class() == class && is_known(child)).peekable();
            if let Some(class) = class.filter(|_| is_table && list.peek().is_some()) {
                out.push_str(&self.class_line(class));
            }
            for child in list {
                let old = before(child).flatten();
                printed += self.vdev(out, Span { now: child, old, ..span }, name_of, depth);
            }
        }
        printed
    }

    /// Line above the vdevs of a class.
    fn class_line(&self, class: &str) -> String {
        let mut line = format!("{class:width$}", width = self.title().len().max(self.name_width).max(class.len()));
        for &group in &self.groups {
            let width = self.width(group);
            group.bottom().iter().for_each(|_| line.push_str(&format!("  {:>width$}", "-")));
        }
        line + "\n"
    }

    fn one(&self, out: &mut String, span: Span<'_>, name: &str, depth: usize) {
        if let [group] = self.groups.as_slice()
            && group.is_histogram()
        {
            out.push('\n');
            return self.histogram(out, span, name, *group);
        }
        if self.scripted {
            out.push_str(name);
        } else {
            let indented = format!("{:depth$}{name}", "");
            let _ = write!(out, "{indented:width$}", width = self.name_width);
        }
        for &group in &self.groups {
            let width = self.width(group);
            self.cells(span, group).iter().for_each(|cell| self.cell(out, cell, width));
        }
        out.extend(self.scripts.iter().map(|columns| columns.cells(span.pool, &span.now.name)));
        out.push('\n');
    }

    fn cell(&self, out: &mut String, text: &str, width: usize) {
        if self.scripted {
            out.extend(["\t", text]);
        } else {
            let _ = write!(out, "  {:>width$.width$}", text);
        }
    }

    fn number(&self, value: u64) -> String {
        if self.exact { value.to_string() } else { nice_count(value) }
    }

    fn cells(&self, span: Span<'_>, group: Group) -> Vec<String> {
        match group {
            Group::Default => self.default_cells(span),
            Group::Latency => {
                let mean = |name: &&str| average(&span.extended(name, true));
                let text = |value: u64| if self.exact && value > 0 { value.to_string() } else { nice_time_ns(value) };
                group.sources().iter().map(mean).map(text).collect()
            }
            _ => group.sources().iter().map(|name| self.number(span.extended(name, false).first().copied().unwrap_or(0))).collect(),
        }
    }

    fn default_cells(&self, span: Span<'_>) -> Vec<String> {
        let rate = |field: fn(&IostatVdev) -> u64| self.number((span.counted(field) as f64 * span.per_second()) as u64);
        let mut cells = match (span.now.allocated_bytes, span.now.free_bytes) {
            (Some(allocated), Some(free)) if allocated + free > 0 => vec![self.number(allocated), self.number(free)],
            _ => vec![if self.exact { "0" } else { "-" }.to_string(); 2],
        };
        cells.extend([
            rate(|vdev| vdev.read_operations),
            rate(|vdev| vdev.write_operations),
            rate(|vdev| vdev.read_bytes),
            rate(|vdev| vdev.written_bytes),
        ]);
        cells
    }

    fn histogram(&self, out: &mut String, span: Span<'_>, name: &str, group: Group) {
        let columns: Vec<Vec<u64>> = group.sources().iter().map(|source| span.extended(source, true)).collect();
        let largest = columns.iter().flatten().copied().max().unwrap_or(0);
        let width = if self.exact { largest.to_string().len().max(NICE_WIDTH) } else { NICE_WIDTH };
        let name_width = self.name_width.max(group.title().len());
        if self.scripted {
            let _ = writeln!(out, "{name}");
        } else {
            out.push_str(&self.header_of(Some(name), Some(width)));
        }
        // Without an interval the counts are those of the pool's whole life, not rates.
        let scale = if span.old.is_none() { 1.0 } else { span.per_second() };
        let is_latency = group == Group::LatencyHistogram;
        let buckets = columns.iter().map(Vec::len).max().unwrap_or(0);
        for bucket in if is_latency { 0 } else { FIRST_SIZE_BUCKET }..buckets {
            let value = if is_latency { (2u64 << bucket) - 1 } else { 1 << bucket };
            let text = if is_latency { nice_time_ns(value) } else { nice_count(value) };
            if self.scripted {
                let _ = write!(out, "{value}");
            } else {
                let _ = write!(out, "{text:name_width$}");
            }
            for column in &columns {
                let count = column.get(bucket).copied().unwrap_or(0);
                self.cell(out, &self.number((count as f64 * scale) as u64), width);
            }
            out.push('\n');
        }
        if !self.scripted {
            let _ = writeln!(out, "{}", "-".repeat(name_width + (width + 2) * group.bottom().len()));
        }
    }
}

/// Adds a heading in the middle of its columns, as OpenZFS computes the middle.
fn label(line: &mut String, text: &str, columns: usize, column_width: usize) {
    let whole = column_width * columns + 2 * (columns - 1);
    let start = (whole / columns).saturating_sub(text.len() / columns);
    let end = whole.saturating_sub(start + text.len());
    line.extend(["  ", &" ".repeat(start), text, &" ".repeat(end)]);
}

/// Mean of a histogram over powers of two, from the middle of each bucket.
fn average(histogram: &[u64]) -> u64 {
    let middle = |bucket: usize| (1u128 << bucket) + (1u128 << bucket) / 2;
    let total: u128 = histogram.iter().enumerate().map(|(bucket, &count)| u128::from(count) * middle(bucket)).sum();
    let count: u128 = histogram.iter().map(|&count| u128::from(count)).sum();
    total.checked_div(count).unwrap_or(0) as u64
}
