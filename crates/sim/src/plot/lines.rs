//! Panels of lines above each other.

use super::{
    COLOURS, Drawn, FAINT, FONT, GRID, INK, SvgArea, draw_titles, number, svg, text, width,
};
use crate::error::Error;
use crate::run::Outcome;
use crate::summary::Sample;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use spandrel_pages::{GIB, HEAP_PAGE_BYTES};

const HEAD: u32 = 96;
const PANEL: u32 = 320;
const FOOT: u32 = 12;
const AREA: RGBColor = RGBColor(0xd9, 0xdd, 0xe3);

/// A line of a panel. Lines of the same name have the same colour in all panels.
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
    /// What it is about, if the picture's title does not say it; stands inside.
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
    /// Panels, from the top down.
    pub panels: Vec<Panel>,
}

/// Live and resident memory over time, and below what is not used of it.
pub fn timeline(title: &str, subtitle: &str, outcomes: &[Outcome], settled_s: f64) -> Chart {
    let gib = |pages: u32| f64::from(pages) * HEAP_PAGE_BYTES as f64 / GIB as f64;
    let line = |outcome: &Outcome, value: &dyn Fn(&Sample) -> f64, from_s: f64| Line {
        name: outcome.policy.name().into(),
        points: (outcome.samples.iter().filter(|s| s.seconds >= from_s))
            .map(|sample| (sample.seconds, value(sample)))
            .collect(),
        area: false,
    };
    let mut memory = Vec::new();
    if let Some(first) = outcomes.first() {
        memory.push(Line { name: "live".into(), area: true, ..line(first, &|s| gib(s.live), 0.0) });
    }
    memory.extend(outcomes.iter().map(|o| line(o, &|s| gib(s.resident), 0.0)));
    let share = |part: u32, live: u32| 100.0 * f64::from(part) / f64::from(live.max(1));
    let overhead = outcomes.iter();
    let overhead =
        overhead.map(|o| line(o, &|s| share(s.resident.saturating_sub(s.live), s.live), settled_s));
    let coverage = outcomes.iter();
    let coverage = coverage.map(|o| line(o, &|s| share(s.covered, s.live), settled_s));
    let coverage: Vec<Line> = coverage.collect();
    let broken = coverage.iter().any(|line| line.points.iter().any(|point| point.1 < 99.95));
    let mut panels = vec![
        Panel { title: String::new(), y: "resident (GiB)".into(), lines: memory, y_least: 0.0 },
        Panel {
            title: String::new(),
            y: "backed, not live (% of live)".into(),
            lines: overhead.collect(),
            y_least: 1.0,
        },
    ];
    if broken {
        let y = "live on huge pages (%)".into();
        panels.push(Panel { title: String::new(), y, lines: coverage, y_least: 100.0 });
    }
    Chart { title: title.into(), subtitle: subtitle.into(), x: "simulated time (s)".into(), panels }
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
        Self { title: title.into(), subtitle: subtitle.into(), x: x.into(), panels: vec![panel] }
    }

    /// The picture as SVG.
    ///
    /// # Errors
    /// There is nothing to draw.
    pub fn svg(&self) -> Result<String, Error> {
        svg(HEAD + PANEL * self.panels.len() as u32 + FOOT, |root| self.draw(root))
    }

    /// All names of lines, the area's first; a line's colour is its place.
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

    fn colour(&self, name: &str) -> RGBColor {
        let names = self.names();
        let lines = names.iter().filter(|n| !n.1).map(|n| n.0);
        let at = lines.take_while(|n| *n != name).count();
        COLOURS[at % COLOURS.len()]
    }

    fn draw(&self, root: &SvgArea<'_>) -> Drawn {
        let (head, body) = root.split_vertically(HEAD);
        self.draw_head(&head)?;
        let (body, _) = body.split_vertically(PANEL * self.panels.len() as u32);
        for (area, panel) in body.split_evenly((self.panels.len(), 1)).iter().zip(&self.panels) {
            self.draw_panel(area, panel)?;
        }
        Ok(())
    }

    fn draw_head(&self, head: &SvgArea<'_>) -> Drawn {
        draw_titles(head, &self.title, &self.subtitle)?;
        let mut x = 24;
        for (name, area) in self.names() {
            let y = 76;
            if area {
                head.draw(&Rectangle::new([(x, y - 6), (x + 24, y + 6)], AREA.filled()))?;
                head.draw(&PathElement::new([(x, y - 6), (x + 24, y - 6)], FAINT.stroke_width(1)))?;
            } else {
                let style = self.colour(name).stroke_width(3);
                head.draw(&PathElement::new([(x, y), (x + 24, y)], style))?;
            }
            head.draw_text(name, &text(16, &INK, HPos::Left), (x + 32, y))?;
            x += 32 + width(name, 16) + 20;
        }
        Ok(())
    }

    fn draw_panel(&self, area: &SvgArea<'_>, panel: &Panel) -> Drawn {
        let highest = panel.lines.iter().flat_map(|l| &l.points).map(|p| p.1).fold(0.0, f64::max);
        let top = (highest * 1.06).max(panel.y_least * 1.02).max(1e-9);
        let right = panel.lines.iter().flat_map(|l| &l.points).map(|p| p.0).fold(0.0, f64::max);
        let right = if right > 0.0 { right } else { 1.0 };
        let mut chart = ChartBuilder::on(area)
            .margin_left(12)
            .margin_right(28)
            .margin_top(10)
            .x_label_area_size(50)
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..right, 0.0..top)?;
        let label = |size: u32| (FONT, size).into_font().color(&INK);
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(FAINT)
            .x_labels(11)
            .y_labels(6)
            .x_label_formatter(&number)
            .y_label_formatter(&number)
            .label_style(label(15))
            .axis_desc_style(label(16))
            .x_desc(&self.x)
            .y_desc(&panel.y)
            .draw()?;
        let style = (FONT, 16).into_font().color(&INK).pos(Pos::new(HPos::Right, VPos::Top));
        let (x, _) = chart.plotting_area().get_pixel_range();
        area.draw_text(&panel.title, &style, (x.end - area.get_pixel_range().0.start - 8, 16))?;
        for line in &panel.lines {
            let points = line.points.iter().copied();
            if line.area {
                chart.draw_series(AreaSeries::new(points, 0.0, AREA).border_style(FAINT))?;
            } else {
                let style = self.colour(&line.name).stroke_width(2);
                chart.draw_series(LineSeries::new(points, style))?;
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
        assert_eq!(chart.colour("a & b"), COLOURS[0]);
        assert!(chart.svg().is_ok());
    }
}
