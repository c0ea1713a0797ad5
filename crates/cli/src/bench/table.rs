//! Tables for a terminal of 100 columns.

use super::cases::{Case, Unit};
use super::contender::Role;
use comfy_table::{
    Attribute, Cell, CellAlignment, ContentArrangement, ContentLineStyle, LineStyle, Table,
    TableStyle,
};
use spandrel_report::numbers::{Summary, bytes, count, time};

/// Columns where the output is no terminal.
const WIDTH: u16 = 100;

/// What stands where there is no figure; why is said below the table.
pub const NOTHING: &str = "–";

/// One rule below the header, and no other lines.
const STYLE: TableStyle = TableStyle::new()
    .header_lines(ContentLineStyle::none())
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .content_lines(ContentLineStyle::none());

/// An empty table in the house style: the first column left, the rest right.
pub fn new(header: &[String]) -> Table {
    let mut table = Table::new();
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header.iter().map(|text| Cell::new(text).add_attribute(Attribute::Bold)));
    if table.width().is_none() {
        table.set_width(WIDTH);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Aligns a further column left.
pub fn left(table: &mut Table, column: usize) {
    if let Some(column) = table.column_mut(column) {
        column.set_cell_alignment(CellAlignment::Left);
    }
}

/// Breaks a sentence into lines, all but the first indented further.
pub fn wrap(text: &str) -> String {
    let (mut lines, mut line) = (Vec::new(), String::from(" "));
    for word in text.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > WIDTH.into() {
            lines.push(std::mem::replace(&mut line, "   ".into()));
        }
        line.push(' ');
        line.push_str(word);
    }
    lines.push(line);
    lines.join("\n")
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

/// Adds a row; those of Spandrel stand out on a terminal.
pub fn add(table: &mut Table, ours: bool, cells: Vec<String>) {
    table.add_row(cells.into_iter().map(|text| {
        let cell = Cell::new(text);
        if ours { cell.add_attribute(Attribute::Bold) } else { cell }
    }));
}

/// One case in full.
pub fn detail(case: &Case) -> String {
    let measure = match case.unit {
        Unit::CpuNs => "CPU time",
        Unit::NsPerPair => "per pair",
    };
    let header =
        [case.name.as_str(), measure, "from – to", "× sys", "× best peer", "peak memory", "faults"];
    let mut table = new(&header.map(String::from));
    for row in &case.rows {
        let summary = |text: fn(&Summary) -> String| {
            row.summary.as_ref().map_or_else(|| NOTHING.to_string(), text)
        };
        let cells = vec![
            row.allocator.clone(),
            summary(|s| time(s.median)),
            summary(|s| format!("{} – {}", time(s.min), time(s.max))),
            ratio(row.to_system),
            ratio(row.to_best_peer),
            row.peak_rss.map_or_else(String::new, bytes),
            row.faults.map_or_else(String::new, |faults| count(faults as u64)),
        ];
        add(&mut table, row.role == Role::Ours, cells);
    }
    table.to_string()
}

/// Several cases side by side: ratios to the system's allocator, which itself is
/// shown in time.
pub fn matrix(cases: &[Case]) -> String {
    let mut header = vec!["CPU time, × sys".to_string()];
    header.extend(cases.iter().map(|case| case.name.clone()));
    let memory: Vec<&Case> = cases.iter().filter(|case| has_object(case)).collect();
    header.extend(memory.iter().map(|case| format!("RSS/size\n{}", case.name)));
    let mut table = new(&header);
    // Not every case has a floor: rows are found by name.
    for first in cases.first().map_or(&[][..], |case| &case.rows) {
        let mut cells = vec![first.allocator.clone()];
        cells.extend(cases.iter().map(|case| {
            let Some(row) = case.row(&first.allocator) else { return String::new() };
            match (&row.summary, row.to_system) {
                (Some(summary), _) if row.allocator == "sys" => time(summary.median),
                (Some(summary), Some(to_system)) => {
                    format!("{to_system:.2} ±{:.0}%", summary.spread() * 100.0)
                }
                _ => NOTHING.into(),
            }
        }));
        cells.extend(
            memory
                .iter()
                .map(|case| ratio(case.row(&first.allocator).and_then(|row| row.rss_per_byte))),
        );
        add(&mut table, first.role == Role::Ours, cells);
    }
    table.to_string()
}

/// Whether memory per byte says something: for small objects it is the
/// program's own memory.
fn has_object(case: &Case) -> bool {
    const OWN_SHARE_MAX: f64 = 0.1;
    let system = case.row("sys");
    system.and_then(|row| row.rss_per_byte).is_some_and(|ratio| (ratio - 1.0).abs() < OWN_SHARE_MAX)
        && case.name.ends_with("GiB")
}

fn ratio(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| format!("{value:.2}"))
}

#[cfg(test)]
mod tests {
    use super::{share, wrap};

    #[test]
    fn long_sentences_are_broken() {
        assert_eq!(wrap("short"), "  short");
        let text = wrap(&"word ".repeat(40));
        assert!(text.lines().count() == 3 && text.lines().all(|line| line.len() <= 100));
        assert_eq!(text.matches("word").count(), 40);
    }

    #[test]
    fn shares() {
        assert_eq!(share(0, 0), "0%");
        assert_eq!(share(1, 2), "50.0%");
        assert_eq!(share(1, 1_000_000), "<0.1%");
    }
}
