//! Aligned columns, or tabs for scripts.

/// How a column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// Prints rows under headings, two spaces apart; `scripted` (`-H`) prints neither headings nor padding, but tabs.
#[derive(Debug, Default)]
pub struct Table {
    headings: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    pub fn new(headings: impl IntoIterator<Item = (String, Align)>) -> Table {
        Table { headings: headings.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The text.
    pub fn render(&self, scripted: bool) -> String {
        if scripted {
            return self.rows.iter().map(|row| row.join("\t") + "\n").collect();
        }
        let mut widths: Vec<usize> = self.headings.iter().map(|(text, _)| text.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let titles: Vec<String> = self.headings.iter().map(|(text, _)| text.clone()).collect();
        std::iter::once(&titles).chain(&self.rows).map(|row| self.line(row, &widths)).collect()
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let mut out = String::new();
        for (index, ((cell, width), (_, align))) in cells.iter().zip(widths).zip(&self.headings).enumerate() {
            if index > 0 {
                out.push_str("  ");
            }
            let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
            let is_last = index + 1 == widths.len();
            match align {
                Align::Right => out.extend([padding.as_str(), cell]),
                Align::Left if is_last => out.push_str(cell),
                Align::Left => out.extend([cell, padding.as_str()]),
            }
        }
        out.push('\n');
        out
    }
}
