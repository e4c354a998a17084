//! Acceptance by position in the draft.

use super::{
    ChartFormat, DrawnChart,
    axes::{self, AxisMark, SMALL, Scale},
    canvas::{self, Align, Area, Font},
    histogram,
    palette::ColorRole,
};
use crate::{figures, names, race::Race};

pub const CAPTION: &str = "Measured: the share of request-rounds in which the draft at that depth, and so every draft before it, was accepted. The sum over positions plus one is the number of tokens per round.";

pub fn draw(race: &Race, format: ChartFormat) -> DrawnChart {
    let series = histogram::series(race);
    let Some(places) = series.iter().map(|series| series.entry.positions.len()).max() else { return Ok(None) };

    let legend: Vec<(AxisMark, String)> = series
        .iter()
        .map(|series| (AxisMark::Line(series.role), names::short(&series.entry.ranked.configuration)))
        .collect();
    let top = axes::legend_height(format.width(), &legend) + 14;
    let area = Area { left: 58, top, right: format.width() - 24, bottom: top + 190 };
    let across = Scale::new((0.5, places as f64 + 0.5), (area.left, area.right));
    let up = Scale::new((0.0, 100.0), (area.bottom, area.top));
    let title = format!("Acceptance by position at {}", race.load);
    let drawn = canvas::drawing(format, area.bottom + 44, &title, |canvas| {
        axes::legend(canvas, (0, 0), &legend)?;
        axes::vertical(canvas, area, up, "share of request-rounds", "%")?;
        for place in 1..=places {
            let font = Font::new(SMALL, ColorRole::Muted).align(Align::Middle);
            canvas.text((across.pixel(place as f64), area.bottom + 12), &place.to_string(), font)?;
        }
        canvas.line((area.left, area.bottom), (area.right, area.bottom), ColorRole::Muted, 1)?;
        for (number, one) in series.iter().enumerate() {
            let positions = &one.entry.positions;
            let points: Vec<(i32, i32)> = positions
                .iter()
                .enumerate()
                .map(|(place, share)| (across.pixel(place as f64 + 1.0), up.pixel(*share * 100.0)))
                .collect();
            canvas.path(&points, one.role, 2)?;
            for (place, (point, share)) in points.iter().zip(positions).enumerate() {
                if number == 0 {
                    // The label is on the side away from the other line.
                    let other = series.get(1).and_then(|other| other.entry.positions.get(place));
                    let side = if other.is_some_and(|other| other > share) { 14 } else { -14 };
                    let font = Font::new(SMALL - 1, one.role).align(Align::Middle);
                    canvas.text((point.0, point.1 + side), &format!("{:.0}%", share * 100.0), font)?;
                    canvas.dot(*point, 5, one.role)?;
                } else {
                    canvas.diamond(*point, 6, one.role)?;
                }
                let tip = format!(
                    "{}: position {} accepted in {} of its request-rounds",
                    one.entry.ranked.configuration,
                    place + 1,
                    figures::share(*share)
                );
                canvas.tip(Area::around(*point, 10), &tip);
            }
        }
        let font = Font::new(SMALL, ColorRole::Ink).align(Align::Middle);
        canvas.text(((area.left + area.right) / 2, area.bottom + 32), "position in the draft", font)
    })?;
    Ok(Some(drawn))
}
