//! A picture of several parts below each other, as one SVG.

use spandrel_sim::{Chart, Dots};

/// One of the parts.
pub enum Part {
    /// Dots in rows.
    Dots(Dots),
    /// Lines.
    Chart(Chart),
}

/// The parts, from the top down.
pub struct Picture(pub Vec<Part>);

impl Picture {
    /// The picture as SVG, or why there is none.
    pub fn svg(&self) -> Result<String, String> {
        let parts = self.0.iter().map(|part| {
            let svg = match part {
                Part::Dots(dots) => dots.svg(),
                Part::Chart(chart) => chart.svg(),
            };
            svg.map_err(|why| why.to_string())
        });
        let mut parts: Vec<String> = parts.collect::<Result<_, _>>()?;
        match parts.len() {
            1 => Ok(parts.remove(0)),
            _ => stack(&parts).ok_or_else(|| "a plot: its parts have no size".into()),
        }
    }
}

/// SVG may contain SVG: each part is moved down by those above it.
fn stack(parts: &[String]) -> Option<String> {
    let (mut width, mut height, mut inside) = (0, 0, String::new());
    for part in parts {
        inside.push_str(&part.replacen("<svg ", &format!("<svg x=\"0\" y=\"{height}\" "), 1));
        width = width.max(number(part, "width")?);
        height += number(part, "height")?;
    }
    Some(format!(
        "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         xmlns=\"http://www.w3.org/2000/svg\">\n{inside}</svg>\n"
    ))
}

/// The first attribute of this name, a whole number.
fn number(svg: &str, name: &str) -> Option<u32> {
    let (_, rest) = svg.split_once(&format!("{name}=\""))?;
    rest.split('"').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_sim::Line;

    fn part(title: &str) -> Part {
        let line = Line { name: "line".into(), points: vec![(0.0, 1.0), (1.0, 2.0)], area: false };
        Part::Chart(Chart::single(title, "", "x", "y", 0.0, vec![line]))
    }

    #[test]
    fn parts_are_below_each_other() {
        let alone = Picture(vec![part("one")]).svg().unwrap();
        let height = number(&alone, "height").unwrap();
        let both = Picture(vec![part("one"), part("two")]).svg().unwrap();
        assert_eq!(number(&both, "height"), Some(2 * height));
        assert!(both.contains(&format!("y=\"{height}\"")) && both.contains("two"));
        assert_eq!(both.matches("<svg ").count(), 3);
        assert_eq!(alone.matches("<svg ").count(), 1);
    }
}
