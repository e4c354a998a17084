//! The time of a round, by part.

use tuner::trials::record::CandidateRole as Part;

use super::{
    ChartFormat, DrawnChart,
    axes::{self, AxisMark, SMALL, Scale},
    canvas::{self, Align, Area, Canvas, DrawError, Font, text_width},
    palette::ColorRole,
};
use crate::{
    definitions, figures, names,
    race::{Race, RaceEntry},
};

/// Maximum number of rows, in addition to the rows that are always shown.
const ROWS: usize = 8;

/// How to read it.
pub fn caption(race: &Race) -> String {
    let apart = if race.has_parts_apart() { format!(" {}", definitions::PARTS_APART) } else { String::new() };
    format!(
        "Measured: median wall time of a round and of its parts (the draft's steps, the target's verify pass, the \
         extension of the draft's cache). The rest is time of the round outside these parts. A grey bar alone: the \
         parts were not measured.{apart}"
    )
}

pub fn draw(race: &Race, format: ChartFormat) -> DrawnChart {
    let rows: Vec<(&RaceEntry, f64)> = race
        .measured()
        .filter(|entry| {
            entry.rank.is_some_and(|rank| rank <= ROWS) || entry.chosen || entry.ranked.role != Part::Candidate
        })
        .filter_map(|entry| Some((entry, entry.ranked.round_ms?.median)))
        .collect();
    // Medians of parts may add up to more than the median of the whole.
    let longest =
        rows.iter().map(|(entry, total)| parts(entry, *total).iter().map(|part| part.1).sum()).fold(0.0, f64::max);
    if !longest.is_finite() || longest <= 0.0 {
        return Ok(None);
    }
    let narrow = format.is_narrow();
    let row_height = 28;
    let legend = [
        ("draft", ColorRole::Draft),
        ("verify", ColorRole::Verify),
        ("extend", ColorRole::Extend),
        ("rest", ColorRole::Rest),
    ]
    .map(|(word, role)| (AxisMark::Box(role), word.to_owned()));
    let top = axes::legend_height(format.width(), &legend) + 10;
    let area = Area {
        left: if narrow { 76 } else { 150 },
        top,
        right: format.width() - 72,
        bottom: top + row_height * rows.len() as i32,
    };
    let scale = Scale::new((0.0, longest), (area.left, area.right));
    let title = format!("Parts of a round at {}", race.load);
    let drawn = canvas::drawing(format, area.bottom + 44, &title, |canvas| {
        axes::legend(canvas, (0, 0), &legend)?;
        axes::horizontal(canvas, area, scale, "ms per round", "")?;
        for (place, (entry, total)) in rows.iter().enumerate() {
            let y = area.top + row_height * place as i32;
            row(canvas, entry, *total, scale, (y, row_height), area.left)?;
        }
        Ok(())
    })?;
    Ok(Some(drawn))
}

fn row(
    canvas: &mut Canvas<'_>,
    entry: &RaceEntry,
    total: f64,
    scale: Scale,
    (y, height): (i32, i32),
    left: i32,
) -> Result<(), DrawError> {
    let middle = y + height / 2;
    let shape = names::short(&entry.ranked.configuration);
    let note = match (entry.chosen, entry.ranked.role) {
        _ if canvas.format.is_narrow() => "",
        (true, _) => "chosen",
        (_, Part::EngineDefault) => "default",
        (_, Part::NoSpeculation) => "no spec.",
        (_, Part::Current) => "runs now",
        (_, Part::Candidate | Part::Probe) => "",
    };
    let font = Font::new(SMALL, if entry.chosen { ColorRole::Chosen } else { ColorRole::Ink }).align(Align::Right);
    canvas.text((left - 10, middle), &shape, Font { bold: entry.chosen, ..font })?;
    canvas.text((4, middle), note, Font::new(SMALL, ColorRole::Muted))?;
    let mut until = 0.0;
    for (name, part, role, text) in parts(entry, total) {
        let (start, end) = (scale.pixel(until), scale.pixel(until + part));
        until += part;
        if end <= start {
            continue;
        }
        let area = Area { left: start, top: y + 4, right: end, bottom: y + height - 4 };
        canvas.rectangle(area, role)?;
        let words = figures::quantity(part);
        if text_width(&words, SMALL - 1) + 8 <= area.width() {
            canvas.text(((start + end) / 2, middle), &words, Font::new(SMALL - 1, text).align(Align::Middle))?;
        }
        canvas.tip(
            area,
            &format!("{}: {name} {words} ms of {} ms", entry.ranked.configuration, figures::quantity(total)),
        );
    }
    let words = format!("{} ms", figures::quantity(total));
    canvas.text((scale.pixel(until) + 8, middle), &words, Font::new(SMALL, ColorRole::Ink).bold())
}

/// Label, ms, colour and text colour of each part. Medians of parts need not add up to the median
/// of the whole, so a small difference is omitted.
fn parts(entry: &RaceEntry, total: f64) -> Vec<(&'static str, f64, ColorRole, ColorRole)> {
    let Some(split) = entry.split else { return vec![("round", total, ColorRole::Rest, ColorRole::Ink)] };
    let mut parts = Vec::new();
    parts.extend(split.draft.map(|draft| ("draft", draft, ColorRole::Draft, ColorRole::DraftText)));
    parts.push(("verify", split.verify, ColorRole::Verify, ColorRole::Surface));
    parts.extend(split.extend.map(|extend| ("extend", extend, ColorRole::Extend, ColorRole::Surface)));
    let rest = total - parts.iter().map(|part| part.1).sum::<f64>();
    if rest > total * 0.01 {
        parts.push(("rest", rest, ColorRole::Rest, ColorRole::Ink));
    }
    parts
}
