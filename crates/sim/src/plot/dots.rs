//! Dots in rows: a row for each of what is compared, panels beside each other, and in each panel
//! as many marks as a row has numbers there.

use super::{
    COLOURS, Drawn, FAINT, FONT, GRID, INK, SvgArea, draw_titles, number, svg, text, width,
};
use crate::error::Error;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

const HEAD: u32 = 72;
/// Above the rows: a panel's title and its legend.
const PANEL_HEAD: u32 = 54;
const ROW: u32 = 28;
/// Below the rows: the axis and what it shows.
const AXIS: u32 = 52;
const FOOT: u32 = 8;
/// What the names of rows may take.
const NAMES: u32 = 150;
/// Beside a panel.
const MARGIN: u32 = 16;
/// Behind the rows that stand out.
const BAND: RGBColor = RGBColor(0xe6, 0xf1, 0xf8);

/// One of those that are compared.
#[derive(Clone, Debug)]
pub struct DotRow {
    /// What it is called.
    pub name: String,
    /// Whether it is the one that others are compared with.
    pub stands_out: bool,
}

/// A number of every row.
#[derive(Clone, Debug)]
pub struct Marks {
    /// What the legend calls it.
    pub name: String,
    /// Row by row; `None` where there is none.
    pub values: Vec<Option<f64>>,
}

/// Numbers on the same axis.
#[derive(Clone, Debug)]
pub struct DotPanel {
    /// What it is about.
    pub title: String,
    /// What its axis shows, and the unit.
    pub x: String,
    /// Its numbers, three at most: there are as many kinds of marks.
    pub marks: Vec<Marks>,
    /// The least that its axis reaches up to.
    pub x_least: f64,
    /// Whether its axis has powers of ten, for numbers above zero that lie far apart.
    pub has_powers: bool,
    /// Digits behind the point of the numbers beside the marks; on an axis of powers of ten they have two digits at least.
    pub digits: usize,
}

impl DotPanel {
    /// Where a number lies on the axis.
    fn along(&self, value: f64) -> f64 {
        if self.has_powers { value.max(f64::MIN_POSITIVE).log10() } else { value }
    }

    /// The ends of the axis. Beyond the last mark there is room for its number.
    fn ends(&self) -> (f64, f64) {
        let values = || self.marks.iter().flat_map(|marks| &marks.values).flatten().copied();
        let highest = values().fold(self.x_least, f64::max).max(1e-9);
        if !self.has_powers {
            return (0.0, highest * 1.14);
        }
        let lowest = values().fold(highest, f64::min);
        let left = self.along(lowest).floor();
        (left, left + (self.along(highest) - left).max(1.0) * 1.14)
    }

    /// What is written at a place of the axis.
    fn label(&self, along: f64) -> String {
        if self.has_powers { rounded(10f64.powf(along)) } else { number(&along) }
    }

    /// What is written beside a mark.
    fn shown(&self, value: f64) -> String {
        if self.has_powers { rounded(value) } else { format!("{value:.*}", self.digits) }
    }
}

/// A number above zero with two digits at least, and a letter for its thousands.
fn rounded(value: f64) -> String {
    let (value, letter) = match value {
        value if value >= 9.95e5 => (value / 1e6, " M"),
        value if value >= 995.0 => (value / 1e3, " k"),
        value => (value, ""),
    };
    let digits = usize::from(value < 9.95 && (value - value.round()).abs() > 0.049);
    format!("{value:.digits$}{letter}")
}

/// A picture.
#[derive(Clone, Debug)]
pub struct Dots {
    /// What it shows.
    pub title: String,
    /// Of what.
    pub subtitle: String,
    /// From the top down.
    pub rows: Vec<DotRow>,
    /// From left to right.
    pub panels: Vec<DotPanel>,
}

/// The marks of a panel, in their order. They can be told apart without colour, and where they
/// lie upon each other.
#[derive(Clone, Copy)]
enum Shape {
    Ring,
    Disc,
    Stroke,
}

const SHAPES: [Shape; 3] = [Shape::Ring, Shape::Disc, Shape::Stroke];

impl Dots {
    /// The picture as SVG.
    ///
    /// # Errors
    /// There is nothing to draw, or a panel has more marks than there are kinds of them.
    pub fn svg(&self) -> Result<String, Error> {
        let marks = || self.panels.iter().flat_map(|panel| &panel.marks);
        if !marks().any(|marks| marks.values.iter().any(Option::is_some)) {
            return Err(Error::new("a plot: there is no number to draw"));
        }
        if let Some(panel) = self.panels.iter().find(|panel| panel.marks.len() > SHAPES.len()) {
            return Err(Error::new(format!(
                "a plot: '{}' has {} marks in a row; {} can be told apart",
                panel.title,
                panel.marks.len(),
                SHAPES.len()
            )));
        }
        let height = HEAD + PANEL_HEAD + ROW * self.rows.len() as u32 + AXIS + FOOT;
        svg(height, |root| self.draw(root))
    }

    fn draw(&self, root: &SvgArea<'_>) -> Drawn {
        let (head, body) = root.split_vertically(HEAD);
        draw_titles(&head, &self.title, &self.subtitle)?;
        let (body, _) = body.split_vertically(PANEL_HEAD + ROW * self.rows.len() as u32 + AXIS);
        for (at, row) in self.rows.iter().enumerate() {
            let y = (PANEL_HEAD + ROW * at as u32) as i32;
            let (width, _) = body.dim_in_pixel();
            if row.stands_out {
                let ends = [(MARGIN as i32, y), ((width - MARGIN / 2) as i32, y + ROW as i32)];
                body.draw(&Rectangle::new(ends, BAND.filled()))?;
            }
            let style = text(16, &colour(row), HPos::Left);
            let font = match row.stands_out {
                true => style.font.clone().style(FontStyle::Bold),
                false => style.font.clone(),
            };
            body.draw_text(&row.name, &TextStyle { font, ..style }, (24, y + ROW as i32 / 2))?;
        }
        let (_, panels) = body.split_horizontally(NAMES);
        let areas = panels.split_evenly((1, self.panels.len()));
        for (area, panel) in areas.iter().zip(&self.panels) {
            self.draw_panel(area, panel)?;
        }
        Ok(())
    }

    fn draw_panel(&self, area: &SvgArea<'_>, panel: &DotPanel) -> Drawn {
        draw_legend(area, panel)?;
        let rows = self.rows.len();
        let (begin, end) = panel.ends();
        let mut chart = ChartBuilder::on(area)
            .margin_left(MARGIN)
            .margin_right(MARGIN)
            .margin_top(PANEL_HEAD)
            .x_label_area_size(AXIS)
            .build_cartesian_2d(begin..end, 0.0..rows as f64)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(FAINT)
            .x_labels(if panel.has_powers { (end - begin) as usize + 1 } else { 6 })
            .x_label_formatter(&|along| panel.label(*along))
            .label_style((FONT, 14).into_font().color(&INK))
            .axis_desc_style((FONT, 15).into_font().color(&INK))
            .x_desc(&panel.x)
            .draw()?;
        let (left, top) = (area.get_pixel_range().0.start, area.get_pixel_range().1.start);
        for (at, row) in self.rows.iter().enumerate() {
            let at_axis = |along: f64| {
                let (x, y) = chart.backend_coord(&(along, rows as f64 - at as f64 - 0.5));
                (x - left, y - top)
            };
            let place = |value: f64| at_axis(panel.along(value));
            let of = |marks: &Marks| marks.values.get(at).copied().flatten();
            let values = panel.marks.iter().map(of);
            let marks: Vec<_> =
                values.zip(SHAPES).filter_map(|(value, shape)| Some((value?, shape))).collect();
            let (least, most) = marks
                .iter()
                .fold((f64::MAX, f64::MIN), |(least, most), m| (least.min(m.0), most.max(m.0)));
            if marks.is_empty() {
                let style = text(13, &FAINT, HPos::Left);
                let (x, y) = at_axis(begin);
                area.draw_text("not measured", &style, (x + 10, y))?;
                continue;
            }
            let style = colour(row).mix(0.4).stroke_width(2);
            area.draw(&PathElement::new([place(least), place(most)], style))?;
            for (value, shape) in marks {
                draw_mark(area, place(value), shape, &colour(row))?;
            }
            let shown = |value: f64| panel.shown(value);
            let (x, y) = place(most);
            area.draw_text(&shown(most), &text(13, &colour(row), HPos::Left), (x + 11, y))?;
            let (x, y) = place(least);
            let fits = x - 11 - width(&shown(least), 16) > at_axis(begin).0;
            if fits && shown(least) != shown(most) {
                area.draw_text(&shown(least), &text(13, &colour(row), HPos::Right), (x - 11, y))?;
            }
        }
        Ok(())
    }
}

fn colour(row: &DotRow) -> RGBColor {
    if row.stands_out { COLOURS[0] } else { INK }
}

/// A panel's title, and below it what the marks are.
fn draw_legend(area: &SvgArea<'_>, panel: &DotPanel) -> Drawn {
    let mut x = MARGIN as i32;
    area.draw_text(&panel.title, &text(16, &INK, HPos::Left), (x, 10))?;
    for (marks, shape) in panel.marks.iter().zip(SHAPES) {
        draw_mark(area, (x + 6, 34), shape, &FAINT)?;
        area.draw_text(&marks.name, &text(14, &FAINT, HPos::Left), (x + 17, 34))?;
        x += 17 + width(&marks.name, 16) + 16;
    }
    Ok(())
}

fn draw_mark(area: &SvgArea<'_>, at: (i32, i32), shape: Shape, colour: &RGBColor) -> Drawn {
    match shape {
        Shape::Ring => {
            area.draw(&Circle::new(at, 6, WHITE.filled()))?;
            area.draw(&Circle::new(at, 6, colour.stroke_width(2)))
        }
        Shape::Disc => area.draw(&Circle::new(at, 4, colour.filled())),
        Shape::Stroke => {
            let ends = [(at.0, at.1 - 9), (at.0, at.1 + 9)];
            area.draw(&PathElement::new(ends, colour.stroke_width(3)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dots(values: Vec<Option<f64>>) -> Dots {
        let row = |name: &str, stands_out| DotRow { name: name.into(), stands_out };
        let panel = DotPanel {
            title: "Memory".into(),
            x: "resident bytes per live byte".into(),
            marks: vec![Marks { name: "idle".into(), values }],
            x_least: 1.0,
            has_powers: false,
            digits: 2,
        };
        Dots {
            title: "T".into(),
            subtitle: String::new(),
            rows: vec![row("theirs", false), row("ours", true)],
            panels: vec![panel],
        }
    }

    #[test]
    fn every_row_is_named_and_has_its_number() {
        let svg = dots(vec![Some(2.64), Some(1.296)]).svg().unwrap();
        for part in ["resident bytes per live byte", "theirs", "ours", "idle", "2.64", "1.30"] {
            assert!(svg.contains(part), "{part}");
        }
        assert!(svg.contains("#0072B2") && !svg.contains("not measured"));
    }

    #[test]
    fn what_was_not_measured_is_said() {
        assert!(dots(vec![None, Some(1.0)]).svg().unwrap().contains("not measured"));
        // A list may end early.
        assert!(dots(vec![Some(1.0)]).svg().unwrap().contains("not measured"));
        let error = dots(vec![None, None]).svg().unwrap_err();
        assert!(error.message.contains("no number"), "{error}");
    }

    #[test]
    fn more_marks_than_can_be_told_apart_are_refused() {
        let mut dots = dots(vec![Some(1.0)]);
        let marks = dots.panels[0].marks[0].clone();
        dots.panels[0].marks.extend([marks.clone(), marks.clone()]);
        assert!(dots.svg().is_ok());
        dots.panels[0].marks.push(marks);
        assert!(dots.svg().unwrap_err().message.contains("4 marks"));
    }
}
