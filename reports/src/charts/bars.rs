//! Groups of bars: several shares under each load.

use super::{
    ChartFormat, DrawnChart,
    axes::{self, AxisMark, SMALL, Scale},
    canvas::{self, Align, Area, Font, text_width},
    palette::ColorRole,
};
use crate::figures;

/// A group of bars.
pub struct BarGroup {
    /// Its label.
    pub name: String,
    /// The share of each series, 0 to 1; `None` if unknown.
    pub shares: Vec<Option<f64>>,
}

/// Draws the groups one below the other; `series` names the bars of each.
pub fn draw(
    groups: &[BarGroup],
    series: &[(String, ColorRole)],
    title: &str,
    axis: &str,
    format: ChartFormat,
) -> DrawnChart {
    if groups.iter().all(|group| group.shares.iter().all(Option::is_none)) {
        return Ok(None);
    }
    let legend: Vec<(AxisMark, String)> =
        series.iter().map(|(name, role)| (AxisMark::Box(*role), name.clone())).collect();
    let top = axes::legend_height(format.width(), &legend) + 8;
    let (bar, gap) = (14, 10);
    let height = bar * series.len() as i32 + gap;
    let widest = groups.iter().map(|group| text_width(&group.name, SMALL)).max().unwrap_or(0);
    let left = (widest + 14).min(format.width() / 2);
    let area = Area { left, top, right: format.width() - 56, bottom: top + height * groups.len() as i32 };
    let largest = groups.iter().flat_map(|group| &group.shares).flatten().copied().fold(0.01, f64::max);
    let scale = Scale::new((0.0, largest * 100.0), (area.left, area.right));
    let drawn = canvas::drawing(format, area.bottom + 44, title, |canvas| {
        axes::legend(canvas, (0, 0), &legend)?;
        axes::horizontal(canvas, area, scale, axis, "%")?;
        for (place, group) in groups.iter().enumerate() {
            let y = area.top + height * place as i32 + gap / 2;
            let middle = y + (height - gap) / 2;
            canvas.text((left - 10, middle), &group.name, Font::new(SMALL, ColorRole::Ink).align(Align::Right))?;
            for (number, (share, (name, role))) in group.shares.iter().zip(series).enumerate() {
                let Some(share) = share else { continue };
                let top = y + bar * number as i32;
                let end = scale.pixel(share * 100.0);
                canvas
                    .rectangle(Area { left, top: top + 1, right: end.max(left + 1), bottom: top + bar - 2 }, *role)?;
                let words = figures::share(*share);
                canvas.text((end + 6, top + bar / 2), &words, Font::new(SMALL - 1, ColorRole::Ink))?;
                let area = Area { left, top, right: format.width(), bottom: top + bar };
                canvas.tip(area, &format!("{} under {name}: {words}", group.name));
            }
        }
        Ok(())
    })?;
    Ok(Some(drawn))
}
