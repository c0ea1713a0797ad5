//! Tables and sentences for terminals of any width.
//!
//! A table that fits has a line for each row, and breaks cells between words. A wider one is shown as records: a block
//! for each row, with a line for each column. No word is ever broken.

use super::{Stream, WIDTH};
use crate::say::text_stream;
use comfy_table::{
    Attribute, Cell, CellAlignment, ColumnConstraint, ContentArrangement, ContentLineStyle,
    LineStyle, TableStyle, Width,
};
use std::fmt::{self, Display};

/// What stands where there is no figure; why is said below the table.
pub const NOTHING: &str = "–";

/// Blanks beside a cell.
const PADDING: usize = 2;
/// Between two columns.
const GAP: usize = 1;
/// Stands for a blank at which no line is broken.
const GLUE: char = '\u{a0}';

/// One rule below the header, and no other lines.
const STYLE: TableStyle = TableStyle::new()
    .header_lines(ContentLineStyle::none())
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .content_lines(ContentLineStyle::none());

/// A table in the house style: the first column left, the rest right.
pub struct Table {
    stream: Stream,
    header: Vec<String>,
    /// Further columns that are aligned left.
    left: Vec<usize>,
    rows: Vec<(bool, Vec<String>)>,
}

/// An empty table, where text goes.
pub fn new(header: &[String]) -> Table {
    on(text_stream(), header)
}

/// An empty table.
pub fn on(stream: Stream, header: &[String]) -> Table {
    Table { stream, header: header.to_vec(), left: vec![0], rows: Vec::new() }
}

/// Aligns a further column left.
pub fn left(table: &mut Table, column: usize) {
    table.left.push(column);
}

/// Adds a row; those of Spandrel stand out on a terminal.
pub fn add(table: &mut Table, ours: bool, cells: Vec<String>) {
    table.rows.push((ours, cells));
}

impl Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.draw(self.stream.width(), self.stream.is_styled()))
    }
}

impl Table {
    fn draw(&self, width: usize, styled: bool) -> String {
        let Some(widths) = self.widths(width) else { return self.records(width, styled) };
        let cell = |text: &String, bold: bool| {
            let cell = Cell::new(glued(text));
            if bold { cell.add_attribute(Attribute::Bold) } else { cell }
        };
        let mut table = comfy_table::Table::new();
        table
            .load_style(STYLE)
            .force_no_tty()
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(width.try_into().unwrap_or(u16::MAX))
            .set_header(self.header.iter().map(|text| cell(text, true)));
        if styled {
            table.enforce_styling();
        }
        for (ours, cells) in &self.rows {
            table.add_row(cells.iter().map(|text| cell(text, *ours)));
        }
        for (at, (column, width)) in table.column_iter_mut().zip(widths).enumerate() {
            if !self.left.contains(&at) {
                column.set_cell_alignment(CellAlignment::Right);
            }
            let width = u16::try_from(width + PADDING).unwrap_or(u16::MAX);
            column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
        }
        table.to_string().replace(GLUE, " ")
    }

    /// The width of each column, or `None` where the longest words together are wider than the terminal.
    fn widths(&self, terminal: usize) -> Option<Vec<usize>> {
        let rows = self.rows.iter().map(|(_, cells)| cells).chain([&self.header]);
        let columns = rows.clone().map(Vec::len).max().unwrap_or(0);
        let longest = |at: usize, ends: &[char]| {
            let of = |text: &String| {
                glued(text).split(ends).map(|part| part.chars().count()).max().unwrap_or(0)
            };
            rows.clone().filter_map(|cells| cells.get(at)).map(of).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..columns).map(|at| longest(at, &[' ', '\n'])).collect();
        let natural: Vec<usize> = (0..columns).map(|at| longest(at, &['\n'])).collect();
        let taken = widths.iter().map(|width| width + PADDING + GAP).sum::<usize>();
        let room = (terminal + GAP).checked_sub(taken)?;
        // Column by column, what is left goes where most is missing.
        for _ in 0..room {
            let missing = |at: usize| natural[at] - widths[at];
            let Some(most) = (0..columns).max_by_key(|at| missing(*at)) else { break };
            if missing(most) == 0 {
                break;
            }
            widths[most] += 1;
        }
        Some(widths)
    }

    /// A block for each row.
    fn records(&self, width: usize, styled: bool) -> String {
        let bold = |text: &str| if styled { format!("\x1b[1m{text}\x1b[0m") } else { text.into() };
        let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let labels: Vec<String> = self.header.iter().map(|text| one_line(text)).collect();
        let widest = labels.iter().skip(1).map(|label| label.chars().count()).max().unwrap_or(0);
        let mut lines = Vec::new();
        if let Some(first) = labels.first() {
            lines.push(format!(" {}", bold(first)));
            lines.push("─".repeat(width));
        }
        for (ours, cells) in &self.rows {
            let first = cells.first().map(|text| one_line(text)).unwrap_or_default();
            lines.push(format!(" {}", if *ours { bold(&first) } else { first }));
            for (label, value) in labels.iter().zip(cells).skip(1) {
                let value = one_line(value);
                if value.is_empty() {
                    continue;
                }
                let line = format!("   {label:<widest$}  {value}");
                if line.chars().count() <= width {
                    lines.push(line);
                } else {
                    lines.extend(broken(label, width, "   ", "   "));
                    lines.extend(broken(&value, width, "     ", "     "));
                }
            }
        }
        lines.join("\n")
    }
}

/// A text whose numbers stay beside their units.
fn glued(text: &str) -> String {
    let mut glued = String::with_capacity(text.len());
    let mut after_digit = false;
    let mut rest = text.chars().peekable();
    while let Some(letter) = rest.next() {
        let is_unit = rest.peek().is_some_and(|next| next.is_alphabetic());
        glued.push(if letter == ' ' && after_digit && is_unit { GLUE } else { letter });
        after_digit = letter.is_ascii_digit();
    }
    glued
}

/// Breaks a sentence into lines, where text goes; all but the first are indented further.
pub fn wrap(text: &str) -> String {
    wrap_on(text_stream(), text)
}

/// Breaks a sentence into lines, all but the first indented further.
pub fn wrap_on(stream: Stream, text: &str) -> String {
    broken(text, stream.width().min(WIDTH), "  ", "    ").join("\n")
}

fn broken(text: &str, width: usize, first: &str, further: &str) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::from(first));
    let mut is_empty = true;
    let text = glued(text);
    for word in text.split([' ', '\n']).filter(|word| !word.is_empty()) {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::replace(&mut line, further.into()));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(&word.replace(GLUE, " "));
        is_empty = false;
    }
    lines.push(line);
    lines
}

/// A percentage; what exists is never shown as nothing.
pub fn share(part: u64, whole: u64) -> String {
    match (part, whole) {
        (0, _) | (_, 0) => "0%".into(),
        (part, whole) => match part as f64 * 100.0 / whole as f64 {
            percent if percent < 0.1 => "<0.1%".into(),
            percent => format!("{percent:.1}%"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let header = ["allocator", "CPU time", "from – to", "× sys", "peak\nmemory", "faults"];
        let mut table = new(&header.map(String::from));
        for (ours, name) in [(false, "jemalloc-5.3.1"), (true, "spandrel switch=sys,point=64KiB")] {
            let cells = [name, "1.25 ms", "1.20 ms – 1.31 ms", "0.97", "12.5 MiB", ""];
            add(&mut table, ours, cells.map(String::from).to_vec());
        }
        table
    }

    #[test]
    fn no_word_is_broken_at_any_width() {
        let table = table();
        let words = ["jemalloc-5.3.1", "spandrel", "switch=sys,point=64KiB", "1.31 ms", "12.5 MiB"];
        for width in 20..=200 {
            let text = table.draw(width, false);
            assert!(words.iter().all(|word| text.contains(word)), "{width}:\n{text}");
            // A word that is wider than the terminal has a line of its own.
            let most = width.max("spandrel switch=sys,point=64KiB".len() + 1);
            assert!(text.lines().all(|line| line.chars().count() <= most), "{width}:\n{text}");
        }
    }

    #[test]
    fn wide_tables_have_a_line_for_each_row_and_narrow_ones_are_records() {
        let wide = table().draw(120, false);
        assert_eq!(wide.lines().count(), 5, "a header of two lines, a rule, rows:\n{wide}");
        let narrow = table().draw(40, false);
        assert!(narrow.contains("\n jemalloc-5.3.1\n   CPU time     1.25 ms\n"), "{narrow}");
        assert!(!narrow.contains("faults"), "there is no figure: {narrow}");
        assert!(!table().draw(40, false).contains('\x1b'));
        assert!(table().draw(40, true).contains("\x1b[1mspandrel"));
        assert!(
            table().draw(120, true).contains('\x1b') && !table().draw(120, false).contains('\x1b')
        );
    }

    #[test]
    fn long_sentences_are_broken() {
        assert_eq!(wrap("short"), "  short");
        let text = wrap(&"word ".repeat(40));
        assert!(text.lines().count() == 3 && text.lines().all(|line| line.len() <= 100));
        assert_eq!(text.matches("word").count(), 40);
        let narrow = broken(&"word ".repeat(40), 40, "  ", "    ");
        assert!(narrow.iter().all(|line| line.len() <= 40) && narrow.len() == 6, "{narrow:?}");
    }

    #[test]
    fn shares() {
        assert_eq!(share(0, 0), "0%");
        assert_eq!(share(1, 2), "50.0%");
        assert_eq!(share(1, 1_000_000), "<0.1%");
    }
}
