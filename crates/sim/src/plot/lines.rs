//! Panels of lines above each other.

use super::axis::Axis;
use super::{
    COLOURS, Drawn, FAINT, FONT, GRID, INK, SvgArea, WIDTH, draw_titles, number, svg, text, width,
};
use crate::error::Error;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

/// Above the panels: the titles, and so much for each row of the legend.
const TITLES: u32 = 66;
const LEGEND_ROW: u32 = 24;
const PANEL: u32 = 320;
const FOOT: u32 = 12;
/// Of the legend: a stroke, and what is left beside it and between two names.
const STROKE: i32 = 32;
const BESIDE: i32 = 8;
const BETWEEN: i32 = 20;
/// Pixels of a dash and of the gap behind it.
const DASHES: [(u32, u32); 3] = [(10, 6), (3, 4), (18, 4)];
/// Where lines lie upon each other, as near as this many pixels, dashes of this length take turns.
const NEAR_PIXELS: f64 = 1.0;
const SHARED_DASH: u32 = 12;
const AREA: RGBColor = RGBColor(0xd9, 0xdd, 0xe3);

/// A line of a panel. Lines of the same name look the same in all panels. Where all names have two
/// parts, as in `best-fit, off`, the second has a colour and the first a dash.
#[derive(Clone, Debug)]
pub struct Line {
    /// What the legend calls it.
    pub name: String,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
    /// Is it the grey area that others are compared with?
    pub area: bool,
}

/// Lines over the same axes.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What it is about, if the picture's title does not say it; stands above.
    pub title: String,
    /// What its vertical axis shows, and the unit.
    pub y: String,
    /// Its lines.
    pub lines: Vec<Line>,
    /// The least that its vertical axis reaches up to.
    pub y_least: f64,
}

/// A picture.
#[derive(Clone, Debug)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// Of what.
    pub subtitle: String,
    /// What all horizontal axes show, and the unit.
    pub x: String,
    /// How they show it.
    pub axis: Axis,
    /// Panels, from the top down.
    pub panels: Vec<Panel>,
}

/// What tells a line from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Look {
    colour: RGBColor,
    dash: Option<(u32, u32)>,
}

/// Which of the different values this one is.
fn place<'a>(all: impl Iterator<Item = &'a str>, value: &str) -> usize {
    let mut seen: Vec<&str> = Vec::new();
    for one in all.take_while(|one| *one != value) {
        if !seen.contains(&one) {
            seen.push(one);
        }
    }
    seen.len()
}

/// A line's points in stretches, and upon how many of the lines `before` it each stretch lies. They
/// share their ends.
fn stretches<'a>(line: &'a Line, before: &[Line], near: f64) -> Vec<(u32, &'a [(f64, f64)])> {
    let lies_upon = |other: &Line, at: usize| {
        let (own, there) = (line.points.get(at), other.points.get(at));
        own.zip(there).is_some_and(|(a, b)| a.0 == b.0 && (a.1 - b.1).abs() < near)
    };
    let beneath = |at: usize| {
        let lines = before.iter().filter(|other| !other.area);
        lines.filter(|other| lies_upon(other, at) && lies_upon(other, at + 1)).count() as u32
    };
    let mut all = Vec::new();
    let (mut from, mut last) = (0, beneath(0));
    let steps = line.points.len().saturating_sub(1);
    for at in 1..steps {
        let now = beneath(at);
        if now != last {
            all.push((last, &line.points[from..=at]));
            (from, last) = (at, now);
        }
    }
    all.push((last, &line.points[from..]));
    all
}

impl Chart {
    /// A picture of one panel, whose vertical axis reaches up to `y_least` at least.
    pub fn single(
        title: &str,
        subtitle: &str,
        x: &str,
        y: &str,
        y_least: f64,
        lines: Vec<Line>,
    ) -> Self {
        let panel = Panel { title: String::new(), y: y.into(), lines, y_least };
        Self {
            title: title.into(),
            subtitle: subtitle.into(),
            x: x.into(),
            axis: Axis::Number,
            panels: vec![panel],
        }
    }

    /// The picture as SVG.
    ///
    /// # Errors
    /// There is nothing to draw.
    pub fn svg(&self) -> Result<String, Error> {
        svg(self.head() + PANEL * self.panels.len() as u32 + FOOT, |root| self.draw(root))
    }

    /// All names of lines, the area's first.
    fn names(&self) -> Vec<(&str, bool)> {
        let mut names: Vec<(&str, bool)> = Vec::new();
        for line in self.panels.iter().flat_map(|panel| &panel.lines) {
            if !names.iter().any(|(name, _)| *name == line.name) {
                names.push((&line.name, line.area));
            }
        }
        names.sort_by_key(|name| !name.1);
        names
    }

    /// How lines of this name look.
    fn look(&self, name: &str) -> Look {
        let names = self.names();
        let names: Vec<&str> = names.iter().filter(|name| !name.1).map(|name| name.0).collect();
        let parts: Option<Vec<(&str, &str)>> =
            names.iter().map(|name| name.split_once(", ")).collect();
        let (colour, dash) = match (parts, name.split_once(", ")) {
            (Some(parts), Some((first, second))) => (
                place(parts.iter().map(|part| part.1), second),
                place(parts.iter().map(|part| part.0), first),
            ),
            _ => {
                let at = place(names.iter().copied(), name);
                (at, at / COLOURS.len())
            }
        };
        Look {
            colour: COLOURS[colour % COLOURS.len()],
            dash: dash.checked_sub(1).map(|at| DASHES[at % DASHES.len()]),
        }
    }

    /// Where names stand in the legend: across, and in which row.
    fn legend(&self) -> Vec<(&str, bool, i32, u32)> {
        let (mut x, mut row) = (24, 0);
        let mut entry = |(name, area)| {
            let wide = STROKE + BESIDE + width(name, 16) + BETWEEN;
            if x + wide > WIDTH as i32 && x > 24 {
                (x, row) = (24, row + 1);
            }
            x += wide;
            (name, area, x - wide, row)
        };
        self.names().into_iter().map(&mut entry).collect()
    }

    /// Pixels above the panels.
    fn head(&self) -> u32 {
        let rows = self.legend().last().map_or(0, |entry| entry.3 + 1);
        TITLES + LEGEND_ROW * rows + FOOT / 2
    }

    fn draw(&self, root: &SvgArea<'_>) -> Drawn {
        let (head, body) = root.split_vertically(self.head());
        self.draw_head(&head)?;
        let (body, _) = body.split_vertically(PANEL * self.panels.len() as u32);
        for (area, panel) in body.split_evenly((self.panels.len(), 1)).iter().zip(&self.panels) {
            self.draw_panel(area, panel)?;
        }
        Ok(())
    }

    fn draw_head(&self, head: &SvgArea<'_>) -> Drawn {
        draw_titles(head, &self.title, &self.subtitle)?;
        for (name, area, x, row) in self.legend() {
            let y = (TITLES + LEGEND_ROW * row) as i32 + 10;
            let end = x + STROKE;
            if area {
                head.draw(&Rectangle::new([(x, y - 6), (end, y + 6)], AREA.filled()))?;
                head.draw(&PathElement::new([(x, y - 6), (end, y - 6)], FAINT.stroke_width(1)))?;
            } else {
                let look = self.look(name);
                let style = look.colour.stroke_width(3);
                match look.dash {
                    None => head.draw(&PathElement::new([(x, y), (end, y)], style))?,
                    Some((dash, gap)) => {
                        let row = [(x, y), (end, y)];
                        head.draw(&DashedPathElement::new(row, dash, gap, style))?;
                    }
                }
            }
            head.draw_text(name, &text(16, &INK, HPos::Left), (end + BESIDE, y))?;
        }
        Ok(())
    }

    fn draw_panel(&self, area: &SvgArea<'_>, panel: &Panel) -> Drawn {
        let highest = panel.lines.iter().flat_map(|l| &l.points).map(|p| p.1).fold(0.0, f64::max);
        let top = (highest * 1.06).max(panel.y_least * 1.02).max(1e-9);
        let across = self.axis.across(panel.lines.iter().flat_map(|l| &l.points).map(|p| p.0));
        let mut chart = ChartBuilder::on(area)
            .margin_left(12)
            .margin_right(28)
            .margin_top(if panel.title.is_empty() { 10 } else { 34 })
            .x_label_area_size(50)
            .y_label_area_size(72)
            .build_cartesian_2d(across, 0.0..top)?;
        let label = |size: u32| (FONT, size).into_font().color(&INK);
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(FAINT)
            .x_labels(11)
            .y_labels(6)
            .x_label_formatter(&|place| self.axis.label(*place))
            .y_label_formatter(&number)
            .label_style(label(15))
            .axis_desc_style(label(16))
            .x_desc(&self.x)
            .y_desc(&panel.y)
            .draw()?;
        let (x, _) = chart.plotting_area().get_pixel_range();
        let title_at = (x.start - area.get_pixel_range().0.start, 20);
        area.draw_text(&panel.title, &text(16, &INK, HPos::Left), title_at)?;
        let near = top * NEAR_PIXELS / f64::from(PANEL);
        for (at, line) in panel.lines.iter().enumerate() {
            if line.area {
                let points = line.points.iter().map(|(x, y)| (self.axis.place(*x), *y));
                chart.draw_series(AreaSeries::new(points, 0.0, AREA).border_style(FAINT))?;
                continue;
            }
            let look = self.look(&line.name);
            let style = look.colour.stroke_width(2);
            for (beneath, points) in stretches(line, &panel.lines[..at], near) {
                let dash = match beneath {
                    0 => look.dash,
                    // As much of each of them as of this one.
                    beneath => Some((SHARED_DASH, SHARED_DASH * beneath)),
                };
                let points = points.iter().map(|(x, y)| (self.axis.place(*x), *y));
                match dash {
                    None => chart.draw_series(LineSeries::new(points, style))?,
                    Some((dash, gap)) => {
                        chart.draw_series(DashedLineSeries::new(points, dash, gap, style))?
                    }
                };
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        let line = |name: &str, area| Line {
            name: name.into(),
            points: vec![(0.0, 1.0), (2.0, 3.0)],
            area,
        };
        let panel = Panel {
            title: String::new(),
            y: "memory (GiB)".into(),
            lines: vec![line("a & b", false), line("live", true)],
            y_least: 0.0,
        };
        Chart {
            title: "T".into(),
            subtitle: String::new(),
            x: "time (s)".into(),
            axis: Axis::Number,
            panels: vec![panel],
        }
    }

    #[test]
    fn a_picture_is_one_file_with_all_that_it_needs() {
        let svg = chart().svg().unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for part in ["memory (GiB)", "time (s)", "a &amp; b", "live", "#0072B2"] {
            assert!(svg.contains(part), "{part}");
        }
        assert!(!svg.contains("href"));
    }

    #[test]
    fn names_keep_their_colours() {
        let mut chart = chart();
        assert_eq!(chart.names(), [("live", true), ("a & b", false)]);
        chart.panels.push(Panel {
            title: String::new(),
            y: String::new(),
            lines: Vec::new(),
            y_least: 1.0,
        });
        assert_eq!(chart.look("a & b"), Look { colour: COLOURS[0], dash: None });
        assert!(chart.svg().is_ok());
    }

    /// A chart of lines with these names.
    fn named(names: &[String]) -> Chart {
        let line = |name: &String| Line {
            name: name.clone(),
            points: vec![(0.0, 1.0), (50.0, 2.0)],
            area: false,
        };
        Chart::single("T", "", "x", "y", 0.0, names.iter().map(line).collect())
    }

    #[test]
    fn no_two_lines_look_alike() {
        let many: Vec<String> = (0..24).map(|n| format!("line {n}")).collect();
        let pairs: Vec<String> =
            (0..24).map(|n| format!("policy {}, release {}", n / 6, n % 6)).collect();
        for names in [many, pairs.clone()] {
            let chart = named(&names);
            let looks: Vec<Look> = names.iter().map(|name| chart.look(name)).collect();
            for (at, look) in looks.iter().enumerate() {
                assert!(!looks[..at].contains(look), "{}", names[at]);
            }
        }
        let chart = named(&pairs);
        let (first, other) = (chart.look(&pairs[2]), chart.look(&pairs[8]));
        assert_eq!(first.colour, other.colour);
        assert_eq!((first.dash, other.dash), (None, Some(DASHES[0])));
        assert!(chart.svg().is_ok());
    }

    #[test]
    fn the_legend_has_as_many_rows_as_it_needs() {
        let names: Vec<String> =
            (0..9).map(|n| format!("range-then-allocations, rate={n}")).collect();
        let chart = named(&names);
        let legend = chart.legend();
        assert!(
            legend
                .iter()
                .all(|(name, _, x, _)| { x + STROKE + BESIDE + width(name, 16) <= WIDTH as i32 })
        );
        assert!(legend.iter().map(|entry| entry.3).eq([0, 0, 0, 1, 1, 1, 2, 2, 2]), "{legend:?}");
        assert_eq!(chart.head() - named(&names[..1]).head(), 2 * LEGEND_ROW);
    }

    #[test]
    fn lines_that_lie_upon_others_take_turns() {
        let line = |values: &[f64]| Line {
            name: String::new(),
            points: values.iter().enumerate().map(|(x, y)| (x as f64, *y)).collect(),
            area: false,
        };
        let before = [line(&[1.0, 1.0, 1.0, 5.0, 1.0]), line(&[1.0, 1.0, 1.0, 1.0, 1.0])];
        let upon = line(&[1.0, 1.0, 1.01, 1.0, 3.0]);
        let found = stretches(&upon, &before, 0.1);
        let found: Vec<(u32, usize)> = found.iter().map(|(n, points)| (*n, points.len())).collect();
        assert_eq!(found, [(2, 3), (1, 2), (0, 2)]);
        assert_eq!(stretches(&upon, &[], 0.1), [(0, &upon.points[..])]);
        let area = Line { area: true, ..line(&[1.0, 1.0]) };
        assert_eq!(stretches(&line(&[1.0, 1.0]), &[area], 0.1)[0].0, 0);
        for few in [&[][..], &[1.0]] {
            assert_eq!(stretches(&line(few), &before, 0.1).len(), 1);
        }
    }
}
