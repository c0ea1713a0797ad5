//! The plots of a page. Their colours are the page's: each is a CSS variable, so that one plot serves
//! light, dark and paper.

use crate::numbers;
use crate::run::{Layer, Run, Sample};
use crate::stats::{Requests, Stats};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Pixels across; the page scales it.
const WIDTH: u32 = 1000;
const FONT: &str = "sans-serif";

/// Colours that stand for the page's variables until the plot is drawn.
const INK: RGBColor = RGBColor(1, 1, 1);
const FAINT: RGBColor = RGBColor(1, 1, 2);
const GRID: RGBColor = RGBColor(1, 1, 3);

/// How many colours a page has for what is told apart.
pub const COLOURS: usize = 8;

/// The page's colours of the layers of memory, and of everything else.
pub const LAYER_COLOURS: [usize; Layer::ALL.len() + 1] = [0, 1, 5, 3, 7];

/// The page's colour of an allocator.
pub fn colour_of(backend: &str) -> usize {
    match backend {
        "native" => 0,
        "mmap" => 1,
        "mimalloc" => 2,
        "jemalloc" => 3,
        "tcmalloc" => 4,
        "sys" => 7,
        _ => 6,
    }
}

/// What stands for the page's `at`th colour.
fn colour(at: usize) -> RGBColor {
    RGBColor(1, 2, (at % COLOURS) as u8)
}

type SvgArea<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>>;

/// A plot, or nothing where it cannot be drawn: the page has the numbers as well.
fn svg(height: u32, draw: impl FnOnce(&SvgArea<'_>) -> Drawn) -> Option<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        draw(&root).and_then(|()| root.present()).ok()?;
    }
    let variable = |of: RGBColor, name: &str| {
        (format!("#{:02X}{:02X}{:02X}", of.0, of.1, of.2), name.to_owned())
    };
    let mut variables = vec![
        variable(INK, "var(--ink)"),
        variable(FAINT, "var(--faint)"),
        variable(GRID, "var(--grid)"),
    ];
    variables.extend((0..COLOURS).map(|at| variable(colour(at), &format!("var(--c{at})"))));
    for (stands_for, name) in &variables {
        svg = svg.replace(stands_for, name);
    }
    Some(svg)
}

fn label(size: u32) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK)
}

/// Resident memory over time, and what the library knows of it.
pub fn memory(run: &Run) -> Option<String> {
    let last = run.samples.last().filter(|last| last.ms > 0 && run.samples.len() > 2)?;
    let highest = run.samples.iter().map(|s| s.resident_bytes.max(s.layers.iter().sum())).max()?;
    let (unit, name) = unit(highest);
    let seconds = |ms: u64| ms as f64 / 1e3;
    svg(350, |root| {
        let top = (highest as f64 / unit * 1.06).max(1e-9);
        let mut chart = ChartBuilder::on(root)
            .margin_top(8)
            .margin_right(16)
            .x_label_area_size(50)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..seconds(last.ms), 0.0..top)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(FAINT)
            .x_labels(10)
            .y_labels(6)
            .x_label_formatter(&numbers::plain)
            .y_label_formatter(&numbers::plain)
            .label_style(label(14))
            .axis_desc_style(label(14))
            .x_desc("seconds since the start")
            .y_desc(name)
            .draw()?;
        let mut below = vec![0u64; run.samples.len()];
        for (at, colour) in LAYER_COLOURS.into_iter().enumerate() {
            // Beyond the layers: everything else.
            let part =
                |sample: &Sample| sample.layers.get(at).copied().unwrap_or(sample.others_bytes());
            let above: Vec<u64> = below
                .iter()
                .zip(&run.samples)
                .map(|(below, sample)| below + part(sample))
                .collect();
            let point =
                |(bytes, sample): (&u64, &Sample)| (seconds(sample.ms), *bytes as f64 / unit);
            let mut outline: Vec<_> = below.iter().zip(&run.samples).map(point).collect();
            outline.extend(above.iter().zip(&run.samples).map(point).rev());
            if above != below {
                chart.draw_series([Polygon::new(outline, self::colour(colour))])?;
            }
            below = above;
        }
        let resident = run.samples.iter();
        let resident = resident.map(|s| (seconds(s.ms), s.resident_bytes as f64 / unit));
        chart.draw_series(LineSeries::new(resident, INK.stroke_width(2)))?;
        Ok(())
    })
}

/// The unit for this many bytes.
fn unit(bytes: u64) -> (f64, &'static str) {
    match bytes {
        n if n >= 4 << 30 => (f64::from(1 << 30), "GiB"),
        n if n >= 4 << 20 => (f64::from(1 << 20), "MiB"),
        _ => (f64::from(1 << 10), "KiB"),
    }
}

/// What of a row is shown.
type Count = fn(&Requests) -> u64;

/// What is requested by size: each size's part of all requests, and of all bytes.
pub fn requests(stats: &Stats, backends: &[&str]) -> Option<String> {
    let rows: Vec<_> = stats.requests.iter().filter(|row| row.count() > 0).collect();
    let exponent = |bytes: u64| bytes.max(1).ilog2();
    let first = rows.iter().map(|row| exponent(row.from)).min()?;
    let last = rows.iter().map(|row| exponent(row.from)).max()?;
    let all = |of: Count| rows.iter().map(|row| of(row)).sum::<u64>();
    let (count, bytes) = (all(Requests::count), all(Requests::bytes));
    svg(460, |root| {
        let halves = root.split_evenly((2, 1));
        let panels: [(&str, u64, Count); 2] = [
            ("% of requests", count, Requests::count),
            ("% of bytes requested", bytes, Requests::bytes),
        ];
        for (area, (title, whole, of)) in halves.iter().zip(panels) {
            let share = |row: &Requests| 100.0 * of(row) as f64 / whole.max(1) as f64;
            let mut columns = vec![0.0; (last - first + 1) as usize];
            for row in &rows {
                columns[(exponent(row.from) - first) as usize] += share(row);
            }
            let highest = columns.iter().copied().fold(1e-9, f64::max);
            let mut chart = ChartBuilder::on(area)
                .margin_top(8)
                .margin_right(36)
                .x_label_area_size(34)
                .y_label_area_size(64)
                .build_cartesian_2d(f64::from(first)..f64::from(last + 1), 0.0..highest * 1.06)?;
            chart
                .configure_mesh()
                .disable_x_mesh()
                .light_line_style(TRANSPARENT)
                .bold_line_style(GRID)
                .axis_style(FAINT)
                .x_labels(0)
                .y_labels(5)
                .y_label_formatter(&numbers::plain)
                .label_style(label(14))
                .axis_desc_style(label(14))
                .y_desc(title)
                .draw()?;
            let mut filled = vec![0.0; columns.len()];
            for backend in backends {
                for row in rows.iter().filter(|row| row.backend == *backend) {
                    let size = exponent(row.from);
                    let below = filled[(size - first) as usize];
                    let above = below + share(row);
                    filled[(size - first) as usize] = above;
                    let x = f64::from(size);
                    let bar = [(x + 0.1, below), (x + 0.9, above)];
                    chart
                        .draw_series([Rectangle::new(bar, colour(colour_of(backend)).filled())])?;
                }
            }
            // Sizes stand at the borders between columns.
            let (_, pixels) = chart.plotting_area().get_pixel_range();
            let style = label(13).pos(Pos::new(HPos::Center, VPos::Top));
            for size in (first..=last + 1).filter(|size| (last - first) < 12 || size % 2 == 0) {
                let (x, _) = chart.backend_coord(&(f64::from(size), 0.0));
                let (left, top) = (area.get_pixel_range().0.start, area.get_pixel_range().1.start);
                area.draw_text(
                    &numbers::whole(1u64.checked_shl(size).unwrap_or(u64::MAX)),
                    &style,
                    (x - left, pixels.end - top + 6),
                )?;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(backend: &str, from: u64, allocs: u64) -> Requests {
        let (backend, to) = (backend.into(), 2 * from - 1);
        Requests { backend, from, to, allocs, alloc_bytes: allocs * from, ..Requests::default() }
    }

    #[test]
    fn plots_have_the_colours_of_the_page_only() {
        let requests = vec![row("native", 16, 10), row("mmap", 1 << 20, 1), row("native", 32, 0)];
        let stats = Stats { requests, ..Stats::default() };
        let svg = requests_plot(&stats);
        assert!(svg.contains("var(--c0)") && svg.contains("var(--c1)") && svg.contains("1 MiB"));
        let mut run = Run::new(vec!["x".into()], "auto".into(), 0, 30.0);
        run.samples = (0..3)
            .map(|n| Sample {
                ms: 10 * n,
                processes: 1,
                resident_bytes: 9 << 20,
                layers: [5 << 20, 0, 1, 0],
            })
            .collect();
        let memory = memory(&run).unwrap();
        assert!(memory.contains("MiB") && memory.contains("var(--c7)"));
        for svg in [svg, memory] {
            assert!(svg.starts_with("<svg") && !svg.contains("\"#0"), "{svg}");
        }
    }

    fn requests_plot(stats: &Stats) -> String {
        requests(stats, &["mmap", "native"]).unwrap()
    }

    #[test]
    fn without_anything_to_show_there_is_no_plot() {
        assert_eq!(requests(&Stats::default(), &[]), None);
        assert_eq!(memory(&Run::new(Vec::new(), String::new(), 0, 0.0)), None);
    }
}
