//! Steps × topk: the best of each pair over num_draft_tokens.

use std::collections::{BTreeMap, BTreeSet};

use tuner::prediction::guide::Prediction;

use super::{
    ChartFormat, DrawnChart,
    axes::SMALL,
    canvas::{self, Align, Area, Canvas, DrawError, Font},
    palette::{ColorRole, HEAT_STEPS},
};
use crate::{
    figures,
    race::{Race, RaceEntry},
};

/// The figure of each pair of steps and topk.
pub struct Grid {
    title: String,
    /// Whether figures are relative to no speculation.
    relative: bool,
    /// Whether they are predicted, which the drawing then states.
    predicted: bool,
    cells: BTreeMap<(usize, usize), HeatCell>,
}

enum HeatCell {
    Figure { figure: f64, nodes: usize, outlined: bool, tip: String },
    Failed { tip: String },
}

/// How figures are mapped to colours.
struct Colours {
    relative: bool,
    predicted: bool,
    /// The figure in the middle of the scale, and the factor from there to either end.
    middle: f64,
    reach: f64,
}

pub fn caption(race: &Race) -> String {
    let meaning = if race.baseline().is_some() {
        "speed-up over no speculation; blue is faster than no speculation, orange slower"
    } else {
        "output tokens/s; the baseline without speculation was not measured, so the middle colour is the median cell"
    };
    format!(
        "Measured: {meaning}. Each cell is the best over num_draft_tokens (N, the root included). A dashed cell was \
         not measured or failed. Outlined: the chosen configuration."
    )
}

/// The measurements under a load.
pub fn measured(race: &Race) -> Grid {
    // Entries are ordered best first, so the first one of a pair is shown.
    let entries = || race.entries.iter().filter(|entry| !entry.is_off() && entry.ranked.configuration.table.is_empty());
    let relative = race.baseline().is_some()
        // All or none: speed-ups and rates on one scale could not be compared.
        && entries().filter(|entry| entry.rank.is_some()).all(|entry| entry.ranked.speedup.is_some());
    let mut cells = BTreeMap::new();
    for entry in entries() {
        let shape = entry.ranked.configuration.shape;
        cells.entry((shape.num_steps, shape.topk)).or_insert_with(|| measured_cell(entry, relative));
    }
    let title = format!("Best result for each num_steps and topk at {}", race.load);
    Grid { title, relative, predicted: false, cells }
}

/// The predictions under a load: output tokens per second, relative to the prediction without
/// speculation if there is one. `chosen` is outlined.
pub fn predicted(predictions: &[&Prediction], chosen: Option<&RaceEntry>, title: String) -> Grid {
    let rate = |one: &Prediction| one.output_tokens_per_s;
    let plain = |one: &&&Prediction| one.configuration.is_off() && one.configuration.is_plain();
    let base = predictions.iter().find(plain).map(|one| rate(one)).filter(|rate| *rate > 0.0);
    let mut best: Vec<&Prediction> = predictions.to_vec();
    best.retain(|one| !one.configuration.is_off() && one.configuration.table.is_empty());
    // Best first, as entries of a race are, so that the first one of a pair is shown here too.
    best.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
    let mut cells = BTreeMap::new();
    for one in best {
        let shape = one.configuration.shape;
        cells.entry((shape.num_steps, shape.topk)).or_insert_with(|| HeatCell::Figure {
            figure: rate(one) / base.unwrap_or(1.0),
            nodes: shape.num_draft_tokens,
            outlined: chosen.is_some_and(|chosen| chosen.ranked.configuration == one.configuration),
            tip: format!(
                "{}, predicted{}: {} output tokens/s",
                one.configuration,
                if one.extrapolated.is_some() { " (extrapolated)" } else { "" },
                figures::quantity(rate(one))
            ),
        });
    }
    Grid { title, relative: base.is_some(), predicted: true, cells }
}

fn measured_cell(entry: &RaceEntry, relative: bool) -> HeatCell {
    let configuration = &entry.ranked.configuration;
    let interval = if relative { entry.ranked.speedup } else { entry.ranked.output_tokens_per_s };
    match interval.filter(|_| entry.rank.is_some()) {
        None => HeatCell::Failed {
            tip: format!("{configuration} failed: {}", entry.ranked.failure.as_deref().unwrap_or("no figure")),
        },
        Some(interval) => {
            let throughput = entry.ranked.output_tokens_per_s.map_or(String::new(), |figure| {
                format!(
                    "\n{} output tokens/s ({})",
                    figures::quantity(figure.median),
                    figures::range(figure, figures::quantity)
                )
            });
            HeatCell::Figure {
                figure: interval.median,
                nodes: configuration.shape.num_draft_tokens,
                outlined: entry.chosen,
                tip: format!("{configuration}: {}{throughput}", write(interval.median, relative)),
            }
        }
    }
}

pub fn draw(grid: &Grid, format: ChartFormat) -> DrawnChart {
    let Some(colours) = Colours::new(grid) else { return Ok(None) };
    let steps: BTreeSet<usize> = grid.cells.keys().map(|(steps, _)| *steps).collect();
    let topks: BTreeSet<usize> = grid.cells.keys().map(|(_, topk)| *topk).collect();

    let narrow = format.is_narrow();
    let (left, top, row_height) = (52, 44, if narrow { 42 } else { 48 });
    // Cells do not grow with the chart: few columns would become bars.
    let room = format.width() - left - 6;
    let column_width = (room / topks.len() as i32).min(if narrow { 96 } else { 132 });
    let bottom = top + row_height * steps.len() as i32;
    let drawn = canvas::drawing(format, bottom + if narrow { 74 } else { 58 }, &grid.title, |canvas| {
        let middle = left + column_width * topks.len() as i32 / 2;
        let font = Font::new(SMALL, ColorRole::Ink).align(Align::Middle);
        canvas.text((middle, 10), "topk", font)?;
        canvas.upright_text((10, (top + bottom) / 2), "num_steps", font)?;
        for (column, topk) in topks.iter().enumerate() {
            let x = left + column_width * column as i32 + column_width / 2;
            canvas.text((x, 30), &topk.to_string(), Font { role: ColorRole::Muted, ..font })?;
        }
        for (row, step) in steps.iter().enumerate() {
            let y = top + row_height * row as i32;
            let font = Font::new(SMALL, ColorRole::Muted).align(Align::Right);
            canvas.text((left - 10, y + row_height / 2), &step.to_string(), font)?;
            for (column, topk) in topks.iter().enumerate() {
                let x = left + column_width * column as i32;
                let area = Area { left: x + 2, top: y + 2, right: x + column_width - 2, bottom: y + row_height - 2 };
                cell(canvas, area, grid.cells.get(&(*step, *topk)), &colours)?;
            }
        }
        legend(canvas, (left, bottom + 16), &colours)
    })?;
    Ok(Some(drawn))
}

impl Colours {
    fn new(grid: &Grid) -> Option<Self> {
        let figures: Vec<f64> = grid
            .cells
            .values()
            .filter_map(|cell| if let HeatCell::Figure { figure, .. } = cell { Some(*figure) } else { None })
            .filter(|figure| figure.is_finite() && *figure > 0.0)
            .collect();
        let middle = if grid.relative { 1.0 } else { crate::statistics::median(figures.clone())? };
        // The scale is symmetric, so the same shade means the same factor on both sides of the
        // middle.
        let factors = figures.iter().map(|figure| (figure / middle).max(middle / figure));
        // At least 5%: on a scale fitted to less, noise would get the strongest colours.
        let reach = factors.filter(|factor| factor.is_finite()).fold(1.05, f64::max);
        (!figures.is_empty()).then_some(Self { relative: grid.relative, predicted: grid.predicted, middle, reach })
    }

    fn step(&self, figure: f64) -> i32 {
        // By logarithms: half as fast is as far from the middle as twice as fast.
        let share = (figure / self.middle).ln() / self.reach.ln();
        ((share * f64::from(HEAT_STEPS)).round() as i32).clamp(-HEAT_STEPS, HEAT_STEPS)
    }

    fn write(&self, figure: f64) -> String {
        write(figure, self.relative)
    }
}

fn write(figure: f64, relative: bool) -> String {
    if relative { figures::ratio(figure) } else { figures::quantity(figure) }
}

fn cell(canvas: &mut Canvas<'_>, area: Area, cell: Option<&HeatCell>, colours: &Colours) -> Result<(), DrawError> {
    let middle = ((area.left + area.right) / 2, (area.top + area.bottom) / 2);
    let empty = Font::new(SMALL, ColorRole::Muted).align(Align::Middle);
    let (figure, nodes, outlined, tip) = match cell {
        Some(HeatCell::Figure { figure, nodes, outlined, tip }) if *figure > 0.0 => (*figure, *nodes, *outlined, tip),
        Some(HeatCell::Failed { tip }) => {
            canvas.dashed_frame(area, ColorRole::Default)?;
            canvas.text(middle, "failed", Font { role: ColorRole::Default, ..empty })?;
            canvas.tip(area, tip);
            return Ok(());
        }
        _ => {
            canvas.dashed_frame(area, ColorRole::Candidate)?;
            return canvas.text(middle, figures::MISSING, empty);
        }
    };
    let step = colours.step(figure);
    canvas.rectangle(area, ColorRole::Heat(step))?;
    if outlined {
        canvas.frame(
            Area { left: area.left + 1, top: area.top + 1, right: area.right - 1, bottom: area.bottom - 1 },
            ColorRole::Ink,
            3,
        )?;
    }
    let font = Font::new(SMALL + 1, ColorRole::HeatText(step)).align(Align::Middle).bold();
    canvas.text((middle.0, middle.1 - 8), &colours.write(figure), font)?;
    let font = Font::new(SMALL - 1, ColorRole::HeatText(step)).align(Align::Middle);
    canvas.text((middle.0, middle.1 + 9), &format!("N {nodes}"), font)?;
    canvas.tip(area, tip);
    Ok(())
}

fn legend(canvas: &mut Canvas<'_>, (left, top): (i32, i32), colours: &Colours) -> Result<(), DrawError> {
    let narrow = canvas.format.is_narrow();
    let width = if narrow { 24 } else { 30 };
    for (place, step) in (-HEAT_STEPS..=HEAT_STEPS).enumerate() {
        let x = left + 2 + width * place as i32;
        canvas.rectangle(Area { left: x, top, right: x + width, bottom: top + 12 }, ColorRole::Heat(step))?;
    }
    let whole = width * (2 * HEAT_STEPS + 1);
    let ends = [
        (left + 2, colours.middle / colours.reach, Align::Left),
        (left + 2 + whole / 2, colours.middle, Align::Middle),
        (left + 2 + whole, colours.middle * colours.reach, Align::Right),
    ];
    for (x, figure, align) in ends {
        canvas.text((x, top + 24), &colours.write(figure), Font::new(SMALL - 1, ColorRole::Muted).align(align))?;
    }
    let unit = if colours.relative { "speed-up" } else { "tok/s" };
    let name = if colours.predicted { format!("{unit}, predicted") } else { unit.to_owned() };
    let place = if narrow { (left + 2, top + 44) } else { (left + whole + 12, top + 6) };
    canvas.text(place, &name, Font::new(SMALL, ColorRole::Muted))
}
