//! The ranking, as medians with intervals.

use tuner::{results::selection::Interval, trials::record::CandidateRole as Part};

use super::{
    ChartFormat, DrawnChart,
    axes::{self, SMALL, Scale},
    canvas::{self, Align, Area, Canvas, DrawError, Font},
    palette::ColorRole,
};
use crate::{
    figures, names,
    race::{Race, RaceEntry},
};

/// Maximum number of rows, in addition to the rows that are always shown.
const ROWS: usize = 14;

pub fn caption(race: &Race) -> String {
    let (shown, all) = (rows(race).len(), race.measured().count());
    let extent = if shown < all { format!(" The best {shown} of {all}.") } else { String::new() };
    let against = if race.baseline().is_some() {
        "relative to no speculation (the line at 1×), paired by repeat"
    } else {
        "output tokens/s; the baseline without speculation was not measured, so there is nothing to compare with"
    };
    format!(
        "Measured: {against}. Dot: median over repeats. Bar: {}. ≈ marks configurations not significantly different \
         from the best.{extent}",
        figures::INTERVAL
    )
}

pub fn draw(race: &Race, format: ChartFormat) -> DrawnChart {
    let rows = rows(race);
    let relative = race.baseline().is_some() && rows.iter().any(|entry| entry.ranked.speedup.is_some());
    let figure = |entry: &RaceEntry| if relative { entry.ranked.speedup } else { entry.ranked.output_tokens_per_s };
    let ends = rows.iter().filter_map(|entry| figure(entry)).flat_map(|interval| [interval.low, interval.high]);
    // The line of no speculation is on the axis even if all intervals are on one side of it.
    let Some((low, high)) = axes::span(ends.chain(relative.then_some(1.0)), 0.06) else { return Ok(None) };

    let narrow = format.is_narrow();
    let row_height = 24;
    let (left, right) = if narrow { (112, format.width() - 58) } else { (196, format.width() - 150) };
    let area = Area { left, top: 8, right, bottom: 8 + row_height * rows.len() as i32 };
    let scale = Scale::new((low, high), (left, right));
    let title = format!("Ranking at {} with intervals", race.load);
    let drawn = canvas::drawing(format, area.bottom + 44, &title, |canvas| {
        let name = if relative { "speed-up over no speculation" } else { "output tokens/s" };
        let write = if relative { figures::ratio } else { figures::quantity };
        axes::horizontal(canvas, area, scale, name, if relative { "×" } else { "" })?;
        if relative {
            canvas.line((scale.pixel(1.0), area.top), (scale.pixel(1.0), area.bottom), ColorRole::Muted, 2)?;
        }
        for (place, entry) in rows.iter().enumerate() {
            let y = area.top + row_height * place as i32 + row_height / 2;
            label(canvas, entry, y)?;
            let Some(interval) = figure(entry) else { continue };
            bar(canvas, scale, y, interval, colour(entry))?;
            let throughput = entry.ranked.output_tokens_per_s.map(|figure| figures::quantity(figure.median));
            let throughput = throughput.unwrap_or_else(|| figures::MISSING.into());
            let figure = if narrow || !relative { write(interval.median) } else { figures::ratio(interval.median) };
            canvas.text((right + 10, y), &figure, Font::new(SMALL, ColorRole::Ink).bold())?;
            if !narrow && relative {
                let font = Font::new(SMALL, ColorRole::Muted).align(Align::Right);
                canvas.text((format.width() - 4, y), &format!("{throughput} tok/s"), font)?;
            }
            let area = Area { left: 0, top: y - row_height / 2, right: format.width(), bottom: y + row_height / 2 };
            canvas.tip(area, &tip(entry, interval, write));
        }
        Ok(())
    })?;
    Ok(Some(drawn))
}

/// The best entries, and always the chosen one, no speculation and the engine's default.
fn rows(race: &Race) -> Vec<&RaceEntry> {
    let kept = race.measured().filter(|entry| {
        entry.rank.is_some_and(|rank| rank <= ROWS) || entry.chosen || entry.ranked.role != Part::Candidate
    });
    kept.collect()
}

fn label(canvas: &mut Canvas<'_>, entry: &RaceEntry, y: i32) -> Result<(), DrawError> {
    let narrow = canvas.format.is_narrow();
    let rank = entry.rank.map_or(String::new(), |rank| rank.to_string());
    let shape = names::short(&entry.ranked.configuration);
    let font = Font::new(SMALL, ColorRole::Muted);
    canvas.text((22, y), &rank, font.align(Align::Right))?;
    let font = Font { bold: entry.chosen, role: if entry.chosen { ColorRole::Chosen } else { ColorRole::Ink }, ..font };
    canvas.text((30, y), &shape, font)?;
    let note = match (entry.chosen, entry.ranked.role) {
        (true, _) => "chosen",
        (_, Part::EngineDefault) => "default",
        (_, Part::Current) => "runs now",
        (_, Part::NoSpeculation) if !narrow => "no speculation",
        _ => "",
    };
    let tie = if entry.ranked.tied_with_best && !entry.chosen { "≈" } else { "" };
    let words = if narrow { tie.to_owned() } else { format!("{note} {tie}").trim().to_owned() };
    let x = if narrow { 100 } else { 94 };
    canvas.text((x, y), &words, Font::new(SMALL, colour(entry)))
}

fn bar(canvas: &mut Canvas<'_>, scale: Scale, y: i32, interval: Interval, role: ColorRole) -> Result<(), DrawError> {
    let (low, middle, high) = (scale.pixel(interval.low), scale.pixel(interval.median), scale.pixel(interval.high));
    canvas.line((low, y), (high, y), role, 2)?;
    for end in [low, high] {
        canvas.line((end, y - 4), (end, y + 4), role, 2)?;
    }
    canvas.dot((middle, y), 5, role)
}

fn colour(entry: &RaceEntry) -> ColorRole {
    match (entry.chosen, entry.ranked.role) {
        (true, _) => ColorRole::Chosen,
        (_, Part::EngineDefault) => ColorRole::Default,
        (_, Part::NoSpeculation) => ColorRole::Baseline,
        (_, Part::Candidate | Part::Current | Part::Probe) => ColorRole::Candidate,
    }
}

fn tip(entry: &RaceEntry, interval: Interval, write: fn(f64) -> String) -> String {
    let throughput = entry.ranked.output_tokens_per_s.map_or(String::new(), |figure| {
        format!(
            "\n{} output tokens/s ({})",
            figures::quantity(figure.median),
            figures::range(figure, figures::quantity)
        )
    });
    let tie = if entry.ranked.tied_with_best { "\nnot significantly different from the best" } else { "" };
    format!(
        "{}\n{} ({}){throughput}\n{}{tie}",
        entry.ranked.configuration,
        write(interval.median),
        figures::range(interval, write),
        figures::counted(entry.ranked.repeats, "repeat", "repeats")
    )
}
