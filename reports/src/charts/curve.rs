//! A line through points that are counted (steps, positions, trials), with some points marked.

use super::{
    ChartFormat, DrawnChart,
    axes::{self, AxisMark, Scale},
    canvas::{self, Area},
    palette::ColorRole,
};

/// A marked point.
pub struct Spot {
    /// Its x and y values.
    pub at: (f64, f64),
    /// Its symbol and colour, as in the legend.
    pub mark: AxisMark,
    /// Its tooltip.
    pub tip: String,
}

/// Texts of the drawing.
pub struct Frame<'a> {
    /// Text for screen readers.
    pub title: &'a str,
    /// Label of the x axis.
    pub across: &'a str,
    /// Label of the y axis.
    pub up: &'a str,
    /// Suffix of the numbers at the y axis.
    pub suffix: &'a str,
    /// Legend of the marks.
    pub legend: &'a [(AxisMark, String)],
    /// A y value marked by a separate line.
    pub level: Option<f64>,
}

/// Draws a line through `line` (none if empty), and the marked points over it.
pub fn draw(line: &[(f64, f64)], spots: &[Spot], frame: &Frame<'_>, format: ChartFormat) -> DrawnChart {
    let all = || line.iter().copied().chain(spots.iter().map(|spot| spot.at));
    let across = axes::span(all().map(|(x, _)| x), 0.04);
    let up = axes::span(all().map(|(_, y)| y).chain(frame.level), 0.1);
    let (Some(across), Some(up)) = (across, up) else { return Ok(None) };
    let top = axes::legend_height(format.width(), frame.legend) + 12;
    let area =
        Area { left: if format.is_narrow() { 64 } else { 76 }, top, right: format.width() - 16, bottom: top + 220 };
    let across = Scale::new(across, (area.left, area.right)).counting();
    let up = Scale::new(up, (area.bottom, area.top));
    let drawn = canvas::drawing(format, area.bottom + 44, frame.title, |canvas| {
        axes::legend(canvas, (0, 0), frame.legend)?;
        axes::horizontal(canvas, area, across, frame.across, "")?;
        axes::vertical(canvas, area, up, frame.up, frame.suffix)?;
        if let Some(level) = frame.level {
            canvas.line((area.left, up.pixel(level)), (area.right, up.pixel(level)), ColorRole::Muted, 1)?;
        }
        let finite = |(x, y): &(f64, f64)| x.is_finite() && y.is_finite();
        let place = |(x, y): (f64, f64)| (across.pixel(x), up.pixel(y));
        let points: Vec<(i32, i32)> = line.iter().copied().filter(finite).map(place).collect();
        if points.len() > 1 {
            canvas.path(&points, ColorRole::Candidate, 2)?;
        }
        for point in &points {
            canvas.dot(*point, 2, ColorRole::Candidate)?;
        }
        for spot in spots.iter().filter(|spot| finite(&spot.at)) {
            let at = place(spot.at);
            match spot.mark {
                AxisMark::Diamond(role) => canvas.diamond(at, 6, role)?,
                AxisMark::Square(role) => canvas.square(at, 5, role)?,
                AxisMark::Ring(role) => canvas.ring(at, 6, role)?,
                AxisMark::Dot(role) | AxisMark::Box(role) | AxisMark::Line(role) => canvas.dot(at, 4, role)?,
            }
            canvas.tip(Area::around(at, 8), &spot.tip);
        }
        Ok(())
    })?;
    Ok(Some(drawn))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_tick_is_between_two_positions() {
        let frame =
            Frame { title: "positions", across: "position", up: "share", suffix: "%", legend: &[], level: None };
        let drawn = draw(&[(1.0, 80.0), (2.0, 61.0)], &[], &frame, ChartFormat::Wide);
        let drawn = drawn.expect("nothing fails").expect("two points");
        let shown = |text: &str| drawn.contains(&format!("\n{text}\n")) || drawn.contains(&format!(">{text}<"));
        assert!(shown("1") && shown("2") && !shown("1.5") && !shown("1.50"), "{drawn}");
    }
}
