//! Tables for people: aligned columns, no lines.

use std::fmt::Write as _;

use leasehold_cli_common::sanitize::sanitize;

/// Rows under a head.
#[derive(Debug)]
pub(crate) struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[&'static str]) -> Self {
        Table { head: head.to_vec(), rows: Vec::new() }
    }

    /// Adds a row. Most of what is in one was written by others.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.head.len());
        self.rows.push(cells.iter().map(|cell| sanitize(cell).into_owned()).collect());
    }

    /// The table as text. Columns of numbers are aligned to the right.
    pub(crate) fn show(&self) -> String {
        let columns = self.head.len();
        let mut widths: Vec<usize> = self.head.iter().map(|cell| cell.chars().count()).collect();
        let mut numbers = vec![true; columns];
        let mut any_number = vec![false; columns];
        for row in &self.rows {
            for (at, cell) in row.iter().enumerate() {
                widths[at] = widths[at].max(cell.chars().count());
                let number = cell.parse::<f64>().is_ok();
                numbers[at] &= cell == "-" || number;
                any_number[at] |= number;
            }
        }
        let mut text = String::new();
        let head: Vec<String> = self.head.iter().map(|cell| (*cell).to_owned()).collect();
        for row in std::iter::once(&head).chain(&self.rows) {
            let mut line = String::new();
            for (at, cell) in row.iter().enumerate() {
                let gap = if at == 0 { "" } else { "  " };
                let width = widths[at];
                let _ = if numbers[at] && any_number[at] {
                    write!(line, "{gap}{cell:>width$}")
                } else {
                    write!(line, "{gap}{cell:<width$}")
                };
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right() {
        let mut table = Table::new(&["NAME", "SHARDS"]);
        table.row(vec!["a".into(), "5".into()]);
        table.row(vec!["long-name".into(), "-".into()]);
        assert_eq!(table.show(), "NAME       SHARDS\na               5\nlong-name       -\n");
    }
}
