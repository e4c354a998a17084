//! Steps × topk: the best of each pair over num_draft_tokens.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Drawn, Format,
    axes::SMALL,
    canvas::{self, Align, Area, Canvas, DrawError, Font},
    palette::{HEAT_STEPS, Role},
};
use crate::{
    batch::{Batch, Entry},
    figures,
};

/// What is known of a pair of steps and topk.
enum Cell<'a> {
    Measured(&'a Entry),
    Failed(&'a Entry),
}

/// The figures behind the colours.
struct Colours {
    relative: bool,
    /// The figure in the middle of the scale, and the factor to either end.
    middle: f64,
    reach: f64,
}

pub fn caption(batch: &Batch) -> String {
    let meaning = if batch.baseline().is_some() {
        "speed-up over no speculation; blue is faster than no speculation, orange slower"
    } else {
        "output tokens a second; no speculation was not measured, so the middle colour is the median cell"
    };
    format!(
        "Measured: {meaning}. Each cell is the best over num_draft_tokens (N, the root included). A dashed cell was not measured or failed. Outlined: the chosen configuration."
    )
}

pub fn draw(batch: &Batch, format: Format) -> Drawn {
    let cells = cells(batch);
    let Some(colours) = Colours::new(batch, &cells) else { return Ok(None) };
    let steps: BTreeSet<usize> = cells.keys().map(|(steps, _)| *steps).collect();
    let topks: BTreeSet<usize> = cells.keys().map(|(_, topk)| *topk).collect();

    let narrow = format.is_narrow();
    let (left, top, row_height) = (52, 44, if narrow { 42 } else { 48 });
    let room = format.width() - left - 6;
    let column_width = (room / topks.len() as i32).min(if narrow { 96 } else { 132 });
    let bottom = top + row_height * steps.len() as i32;
    let title = format!("Best figure of each number of steps and topk at batch size {}", batch.batch_size);
    let drawn = canvas::drawing(format, bottom + 58, &title, |canvas| {
        let middle = left + column_width * topks.len() as i32 / 2;
        let font = Font::new(SMALL, Role::Ink).align(Align::Middle);
        canvas.text((middle, 10), "topk", font)?;
        canvas.upright_text((10, (top + bottom) / 2), "num_steps", font)?;
        for (column, topk) in topks.iter().enumerate() {
            let x = left + column_width * column as i32 + column_width / 2;
            canvas.text((x, 30), &topk.to_string(), Font { role: Role::Muted, ..font })?;
        }
        for (row, step) in steps.iter().enumerate() {
            let y = top + row_height * row as i32;
            let font = Font::new(SMALL, Role::Muted).align(Align::Right);
            canvas.text((left - 10, y + row_height / 2), &step.to_string(), font)?;
            for (column, topk) in topks.iter().enumerate() {
                let x = left + column_width * column as i32;
                let area = Area { left: x + 2, top: y + 2, right: x + column_width - 2, bottom: y + row_height - 2 };
                cell(canvas, area, cells.get(&(*step, *topk)), &colours)?;
            }
        }
        legend(canvas, (left, bottom + 16), &colours)
    })?;
    Ok(Some(drawn))
}

fn cells(batch: &Batch) -> BTreeMap<(usize, usize), Cell<'_>> {
    let mut cells = BTreeMap::new();
    // Best first, failed last: the first entry of a pair is the one to show.
    for entry in batch.entries.iter().filter(|entry| !entry.ranked.configuration.shape.is_off()) {
        let pair = (entry.ranked.configuration.shape.num_steps, entry.ranked.configuration.shape.topk);
        let cell = if entry.rank.is_some() { Cell::Measured(entry) } else { Cell::Failed(entry) };
        cells.entry(pair).or_insert(cell);
    }
    cells
}

impl Colours {
    fn new(batch: &Batch, cells: &BTreeMap<(usize, usize), Cell<'_>>) -> Option<Self> {
        let measured =
            || cells.values().filter_map(|cell| if let Cell::Measured(entry) = cell { Some(*entry) } else { None });
        let relative = batch.baseline().is_some() && measured().all(|entry| entry.ranked.speedup.is_some());
        let mut colours = Self { relative, middle: 1.0, reach: 1.05 };
        let figures: Vec<f64> = measured().filter_map(|entry| colours.figure(entry)).collect();
        if !relative {
            colours.middle = crate::comparison::median(figures.clone())?;
        }
        let factors = figures.iter().map(|figure| (figure / colours.middle).max(colours.middle / figure));
        colours.reach = factors.filter(|factor| factor.is_finite()).fold(colours.reach, f64::max);
        (!figures.is_empty()).then_some(colours)
    }

    fn figure(&self, entry: &Entry) -> Option<f64> {
        let interval = if self.relative { entry.ranked.speedup } else { entry.ranked.output_tokens_per_s };
        interval.map(|interval| interval.median).filter(|figure| *figure > 0.0)
    }

    fn step(&self, figure: f64) -> i32 {
        let share = (figure / self.middle).ln() / self.reach.ln();
        ((share * f64::from(HEAT_STEPS)).round() as i32).clamp(-HEAT_STEPS, HEAT_STEPS)
    }

    fn write(&self, figure: f64) -> String {
        if self.relative { figures::ratio(figure) } else { figures::quantity(figure) }
    }
}

fn cell(canvas: &mut Canvas<'_>, area: Area, cell: Option<&Cell<'_>>, colours: &Colours) -> Result<(), DrawError> {
    let middle = ((area.left + area.right) / 2, (area.top + area.bottom) / 2);
    let empty = Font::new(SMALL, Role::Muted).align(Align::Middle);
    let entry = match cell {
        Some(Cell::Measured(entry)) => *entry,
        Some(Cell::Failed(entry)) => {
            canvas.dashed_frame(area, Role::Default)?;
            canvas.text(middle, "failed", Font { role: Role::Default, ..empty })?;
            canvas.tip(
                area,
                &format!(
                    "{} failed: {}",
                    entry.ranked.configuration.shape,
                    entry.ranked.failure.as_deref().unwrap_or("")
                ),
            );
            return Ok(());
        }
        None => {
            canvas.dashed_frame(area, Role::Candidate)?;
            return canvas.text(middle, figures::MISSING, empty);
        }
    };
    let Some(figure) = colours.figure(entry) else { return canvas.dashed_frame(area, Role::Candidate) };
    let step = colours.step(figure);
    canvas.rectangle(area, Role::Heat(step))?;
    if entry.chosen {
        canvas.frame(
            Area { left: area.left + 1, top: area.top + 1, right: area.right - 1, bottom: area.bottom - 1 },
            Role::Ink,
            3,
        )?;
    }
    let font = Font::new(SMALL + 1, Role::HeatText(step)).align(Align::Middle).bold();
    canvas.text((middle.0, middle.1 - 8), &colours.write(figure), font)?;
    let font = Font { size: SMALL - 1, bold: false, ..font };
    let nodes = format!("N {}", entry.ranked.configuration.shape.num_draft_tokens);
    canvas.text((middle.0, middle.1 + 9), &nodes, font)?;
    let throughput = entry.ranked.output_tokens_per_s.map_or(String::new(), |figure| {
        format!(
            "\n{} output tokens/s ({})",
            figures::quantity(figure.median),
            figures::range(figure, figures::quantity)
        )
    });
    canvas.tip(area, &format!("{}: {}{throughput}", entry.ranked.configuration.shape, colours.write(figure)));
    Ok(())
}

fn legend(canvas: &mut Canvas<'_>, (left, top): (i32, i32), colours: &Colours) -> Result<(), DrawError> {
    let width = if canvas.format.is_narrow() { 24 } else { 30 };
    for (place, step) in (-HEAT_STEPS..=HEAT_STEPS).enumerate() {
        let x = left + 2 + width * place as i32;
        canvas.rectangle(Area { left: x, top, right: x + width, bottom: top + 12 }, Role::Heat(step))?;
    }
    let whole = width * (2 * HEAT_STEPS + 1);
    let ends = [
        (left + 2, colours.middle / colours.reach, Align::Left),
        (left + 2 + whole / 2, colours.middle, Align::Middle),
        (left + 2 + whole, colours.middle * colours.reach, Align::Right),
    ];
    for (x, figure, align) in ends {
        canvas.text((x, top + 24), &colours.write(figure), Font::new(SMALL - 1, Role::Muted).align(align))?;
    }
    let name = if colours.relative { "speed-up" } else { "tok/s" };
    canvas.text((left + whole + 12, top + 6), name, Font::new(SMALL, Role::Muted))
}
