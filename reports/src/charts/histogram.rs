//! The distribution of accepted drafts per round.

use super::{
    ChartFormat, DrawnChart,
    axes::{self, AxisMark, SMALL, Scale},
    canvas::{self, Align, Area, Font, text_width},
    palette::ColorRole,
};
use crate::{
    figures, names,
    race::{Race, RaceEntry},
};

pub const CAPTION: &str = "Measured: the share of request-rounds in which exactly that many drafts were accepted (the bonus token, which every round adds, is not a draft).";

/// One configuration in a chart of acceptance.
pub struct Series<'a> {
    /// The configuration.
    pub entry: &'a RaceEntry,
    /// Its colour.
    pub role: ColorRole,
    /// Its label.
    pub name: String,
}

/// The best speculating configuration and the engine's default, if they have rounds.
pub fn series(race: &Race) -> Vec<Series<'_>> {
    let best = race.best_speculating();
    let default = race
        .engine_default()
        .filter(|entry| best.is_none_or(|best| best.ranked.configuration != entry.ranked.configuration));
    let best = best.map(|entry| (entry, ColorRole::Chosen, if entry.chosen { "chosen" } else { "best speculating" }));
    let default = default.map(|entry| (entry, ColorRole::Default, "engine's default"));
    let with_rounds = |entry: &RaceEntry| !entry.positions.is_empty();
    let named = |(entry, role, what): (_, _, &str)| {
        let entry: &RaceEntry = entry;
        let length = entry.ranked.accept_length.map_or(figures::MISSING.into(), figures::quantity);
        Series {
            entry,
            role,
            name: format!("{} ({what}), accept length {length}", names::short(&entry.ranked.configuration)),
        }
    };
    best.into_iter().chain(default).filter(|(entry, ..)| with_rounds(entry)).map(named).collect()
}

pub fn draw(race: &Race, format: ChartFormat) -> DrawnChart {
    let series = series(race);
    let shares: Vec<Vec<f64>> = series.iter().map(|series| shares(&series.entry.ranked.accept_histogram)).collect();
    let Some(places) = shares.iter().map(Vec::len).max() else { return Ok(None) };
    let largest = shares.iter().flatten().copied().fold(0.0, f64::max);

    let legend: Vec<(AxisMark, String)> =
        series.iter().map(|series| (AxisMark::Box(series.role), series.name.clone())).collect();
    let top = axes::legend_height(format.width(), &legend) + 22;
    let area = Area { left: 58, top, right: format.width() - 8, bottom: top + 190 };
    let scale = Scale::new((0.0, largest * 100.0), (area.bottom, area.top));
    let title = format!("Accepted drafts per round at {}", race.load);
    let drawn = canvas::drawing(format, area.bottom + 44, &title, |canvas| {
        axes::legend(canvas, (0, 0), &legend)?;
        axes::vertical(canvas, area, scale, "share of request-rounds", "%")?;
        let slot = area.width() / places as i32;
        let bar = ((slot - 8) / series.len() as i32).clamp(2, 46);
        for place in 0..places {
            let middle = area.left + slot * place as i32 + slot / 2;
            let font = Font::new(SMALL, ColorRole::Muted).align(Align::Middle);
            canvas.text((middle, area.bottom + 12), &place.to_string(), font)?;
            let start = middle - bar * series.len() as i32 / 2;
            for (number, (series, shares)) in series.iter().zip(&shares).enumerate() {
                let Some(share) = shares.get(place).copied() else { continue };
                let left = start + bar * number as i32;
                let column = Area { left, top: scale.pixel(share * 100.0), right: left + bar - 2, bottom: area.bottom };
                canvas.rectangle(column, series.role)?;
                let rounded = if share < 0.005 { String::new() } else { format!("{:.0}%", share * 100.0) };
                if text_width(&rounded, SMALL - 1) <= bar {
                    let font = Font::new(SMALL - 1, ColorRole::Ink).align(Align::Middle);
                    canvas.text(((column.left + column.right) / 2, column.top - 8), &rounded, font)?;
                }
                let words = figures::share(share);
                let tip =
                    format!("{}: {place} accepted in {words} of its request-rounds", series.entry.ranked.configuration);
                canvas.tip(Area { top: area.top, ..column }, &tip);
            }
        }
        canvas.line((area.left, area.bottom), (area.right, area.bottom), ColorRole::Muted, 1)?;
        let font = Font::new(SMALL, ColorRole::Ink).align(Align::Middle);
        canvas.text(((area.left + area.right) / 2, area.bottom + 32), "accepted drafts", font)
    })?;
    Ok(Some(drawn))
}

fn shares(histogram: &[u64]) -> Vec<f64> {
    let rounds: u64 = histogram.iter().sum();
    histogram.iter().map(|count| *count as f64 / rounds.max(1) as f64).collect()
}
