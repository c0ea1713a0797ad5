//! Pictures: each is one SVG that needs nothing else. Here is what all have in common.

mod axis;
mod dots;
mod lines;
mod timeline;

pub use axis::Axis;
pub use dots::{DotPanel, DotRow, Dots, Marks};
pub use lines::{Chart, Line, Panel};
pub use timeline::{Course, timeline};

use crate::error::Error;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Pixels across.
const WIDTH: u32 = 1000;
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const FAINT: RGBColor = RGBColor(0x66, 0x66, 0x66);
const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);
/// Colours that people with any colour vision can tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
];

type SvgArea<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>>;

/// A picture of this height as SVG.
fn svg(height: u32, draw: impl FnOnce(&SvgArea<'_>) -> Drawn) -> Result<String, Error> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        let drawn = root.fill(&WHITE).and_then(|()| draw(&root)).and_then(|()| root.present());
        drawn.map_err(|why| Error::new(format!("a plot: {why}")))?;
    }
    Ok(svg)
}

/// Text whose anchor is at this end of it, halfway up.
fn text(size: u32, colour: &RGBColor, end: HPos) -> TextStyle<'static> {
    (FONT, size).into_font().color(colour).pos(Pos::new(end, VPos::Center))
}

/// How many pixels a text is wide: letters are a little narrower than half of their height, on
/// average.
fn width(text: &str, size: u32) -> i32 {
    (text.chars().count() as f64 * f64::from(size) * 0.47) as i32
}

/// What the picture shows, and of what.
fn draw_titles(head: &SvgArea<'_>, title: &str, subtitle: &str) -> Drawn {
    head.draw_text(title, &text(24, &INK, HPos::Left), (24, 24))?;
    head.draw_text(subtitle, &text(16, &FAINT, HPos::Left), (24, 48))
}

/// A number as an axis shows it: no more digits than it needs.
fn number(value: &f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    let (digits, rest) = text.split_once('.').unwrap_or((text, ""));
    let mut spaced = String::new();
    for (at, digit) in digits.chars().enumerate() {
        let before_three = at > 0 && (digits.len() - at).is_multiple_of(3);
        if before_three && !digits.starts_with('-') {
            spaced.push(',');
        }
        spaced.push(digit);
    }
    if rest.is_empty() { spaced } else { format!("{spaced}.{rest}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_on_axes() {
        let shown = [0.0, 0.25, 10.0, 12345.0, -3.5].map(|n| number(&n));
        assert_eq!(shown, ["0", "0.25", "10", "12,345", "-3.5"]);
    }
}
