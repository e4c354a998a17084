//! Predicted against measured figures: points and the diagonal.

use super::{
    ChartFormat, DrawnChart,
    axes::{self, AxisMark, Scale},
    canvas::{self, Area},
    palette::ColorRole,
};

/// Ratio of the largest to the smallest beyond which the axes are logarithmic.
const FAR: f64 = 30.0;

/// A point that was predicted and measured.
pub struct ScatterPoint {
    /// The prediction.
    pub predicted: f64,
    /// The measurement.
    pub measured: f64,
    /// Its colour.
    pub role: ColorRole,
    /// Whether it is extrapolated; then it is drawn hollow.
    pub hollow: bool,
    /// Its tooltip.
    pub tip: String,
}

/// Draws points on two axes with the same scale, logarithmic if they are far apart; `unit` is that
/// of both.
pub fn draw(
    points: &[ScatterPoint],
    title: &str,
    unit: &str,
    legend: &[(AxisMark, String)],
    format: ChartFormat,
) -> DrawnChart {
    let ends = || points.iter().flat_map(|point| [point.predicted, point.measured]).filter(|value| value.is_finite());
    let (smallest, largest) = (ends().fold(f64::INFINITY, f64::min), ends().fold(0.0, f64::max));
    let wide = smallest > 0.0 && largest > FAR * smallest;
    let span = if wide { Some((smallest * 0.8, largest * 1.25)) } else { axes::span(ends(), 0.06) };
    let Some((low, high)) = span.map(|(low, high)| (low.max(0.0), high)) else { return Ok(None) };
    let top = axes::legend_height(format.width(), legend) + 12;
    let bottom = top + if format.is_narrow() { 300 } else { 400 };
    let area = Area { left: if format.is_narrow() { 64 } else { 76 }, top, right: format.width() - 12, bottom };
    let scale = |ends| {
        let scale = Scale::new((low, high), ends);
        if wide { scale.logarithmic() } else { scale }
    };
    let (across, up) = (scale((area.left, area.right)), scale((area.bottom, area.top)));
    let drawn = canvas::drawing(format, bottom + 44, title, |canvas| {
        axes::legend(canvas, (0, 0), legend)?;
        axes::horizontal(canvas, area, across, &format!("predicted ({unit})"), "")?;
        axes::vertical(canvas, area, up, &format!("measured ({unit})"), "")?;
        canvas.line((area.left, area.bottom), (area.right, area.top), ColorRole::Muted, 1)?;
        let finite = |point: &&ScatterPoint| point.predicted.is_finite() && point.measured.is_finite();
        for point in points.iter().filter(finite) {
            let place = (across.pixel(point.predicted), up.pixel(point.measured));
            if point.hollow {
                canvas.ring(place, 5, point.role)?
            } else {
                canvas.dot(place, 4, point.role)?
            }
            canvas.tip(Area::around(place, 8), &point.tip);
        }
        Ok(())
    })?;
    Ok(Some(drawn))
}
