//! Aligned columns, or tabs for scripts.

use crate::color::{Color, paint};
use std::collections::BTreeMap;

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// To the left, for text.
    Left,
    /// To the right, for numbers.
    Right,
}

/// Column of a table.
#[derive(Clone, Debug)]
pub struct Column {
    /// Heading of the column.
    pub heading: String,
    /// Alignment of its cells.
    pub align: Align,
    /// Least width in characters, also when every cell is shorter.
    pub width_min: usize,
}

impl Column {
    /// Makes a column as wide as what it holds.
    pub fn new(heading: impl Into<String>, align: Align) -> Column {
        Column { heading: heading.into(), align, width_min: 0 }
    }
}

/// Table of rows under headings, two spaces apart; `scripted` (`-H`) prints neither headings nor padding, but tabs.
#[derive(Debug, Default)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
    /// Colour of the headings.
    headings: Option<Color>,
    /// Colours of cells, by row and column.
    colors: BTreeMap<(usize, usize), Color>,
}

impl Table {
    /// Makes a table with these headings.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Table {
        Table { columns: columns.into_iter().collect(), ..Table::default() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Gives the headings a colour, which scripts do not get.
    pub fn paint_headings(&mut self, color: Color) {
        self.headings = Some(color);
    }

    /// Gives a cell of the row that was added last a colour, which scripts do not get.
    pub fn paint(&mut self, column: usize, color: Color) {
        self.colors.insert((self.rows.len(), column), color);
    }

    /// True when the table has no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Text of the table.
    pub fn render(&self, scripted: bool) -> String {
        if scripted {
            return self.rows.iter().map(|row| row.join("\t") + "\n").collect();
        }
        let mut widths: Vec<usize> = self.columns.iter().map(|column| column.heading.chars().count().max(column.width_min)).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let titles: Vec<String> = self.columns.iter().map(|column| column.heading.clone()).collect();
        std::iter::once(&titles).chain(&self.rows).enumerate().map(|(number, row)| self.line((number, row), &widths)).collect()
    }

    /// Colour of a cell; the headings are row 0.
    fn color(&self, number: usize, column: usize) -> Option<Color> {
        if number == 0 { self.headings } else { self.colors.get(&(number, column)).copied() }
    }

    fn line(&self, (number, cells): (usize, &[String]), widths: &[usize]) -> String {
        let mut out = String::new();
        for (index, ((cell, width), column)) in cells.iter().zip(widths).zip(&self.columns).enumerate() {
            if index > 0 {
                out.push_str("  ");
            }
            let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
            let is_last = index + 1 == widths.len();
            let cell = paint(self.color(number, index), cell);
            match column.align {
                Align::Right => out.extend([padding.as_str(), &*cell]),
                Align::Left if is_last => out.push_str(&cell),
                Align::Left => out.extend([&*cell, padding.as_str()]),
            }
        }
        out.truncate(out.trim_end_matches(' ').len());
        out.push('\n');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_right_in_columns_of_five_and_the_last_text_is_not_padded() {
        let number = Column { heading: "USED".into(), align: Align::Right, width_min: 5 };
        let mut table = Table::new([Column::new("NAME", Align::Left), number, Column::new("MOUNTPOINT", Align::Left)]);
        table.row(["tank", "96K", "/tank"].map(String::from).to_vec());
        assert_eq!(table.render(false), "NAME   USED  MOUNTPOINT\ntank    96K  /tank\n");
        assert_eq!(table.render(true), "tank\t96K\t/tank\n", "scripts get tabs and no heading");
    }

    /// A file system that is nearly full would be told in the colour of another.
    #[test]
    fn a_colour_is_of_the_cell_that_was_given_it() {
        let mut table = Table::new(["NAME", "AVAIL"].map(|heading| Column::new(heading, Align::Left)));
        table.paint_headings(Color::Bold);
        for color in [None, Some(Color::Red)] {
            table.row(["tank", "96K"].map(String::from).to_vec());
            color.into_iter().for_each(|color| table.paint(1, color));
        }
        let colors = [(0, 0), (0, 1), (1, 1), (2, 0), (2, 1)].map(|(row, column)| table.color(row, column));
        assert_eq!(colors, [Some(Color::Bold), Some(Color::Bold), None, None, Some(Color::Red)]);
        assert_eq!(table.render(false), "NAME  AVAIL\ntank  96K\ntank  96K\n", "no terminal, no colours");
    }
}
