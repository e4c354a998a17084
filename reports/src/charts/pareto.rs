//! Total throughput against the speed that one user sees, over all loads.

use tuner::{
    results::selection::Interval,
    trials::{
        configuration::{Configuration, TrialLoad},
        record::CandidateRole as Part,
    },
};

use super::{
    ChartFormat, DrawnChart,
    axes::{self, AxisMark, SMALL, Scale},
    canvas::{self, Align, Area, Canvas, DrawError, Font},
    palette::ColorRole,
};
use crate::{
    figures, names,
    race::{Race, RaceEntry},
    section::Section,
};

/// One configuration at one load.
struct ParetoPoint<'a> {
    configuration: &'a Configuration,
    load: TrialLoad,
    part: Part,
    chosen: bool,
    colour: ColorRole,
    speed: Interval,
    throughput: Interval,
}

pub fn caption(section: &Section<'_>) -> String {
    let points = points(section);
    let frontier = frontier(&points).len();
    let line = if frontier > 1 {
        format!("The line joins the {frontier} that no other configuration beats on both axes. ")
    } else {
        "One configuration beats or equals all others on both axes, so there is no frontier line. ".to_owned()
    };
    format!(
        "Measured: {} with medians; bars: {}; up and to the right is better. Both axes are logarithmic. {line}Labels: \
         num_steps,topk,num_draft_tokens @ load.",
        figures::counted(points.len(), "configuration", "configurations"),
        figures::INTERVAL
    )
}

pub fn draw(section: &Section<'_>, format: ChartFormat) -> DrawnChart {
    let points = points(section);
    let across = axes::span_of_ratios(points.iter().flat_map(|point| [point.speed.low, point.speed.high]), 0.08);
    let up = axes::span_of_ratios(points.iter().flat_map(|point| [point.throughput.low, point.throughput.high]), 0.1);
    let (Some(across), Some(up)) = (across, up) else { return Ok(None) };

    let legend = legend(section);
    let top = axes::legend_height(format.width(), &legend) + 12;
    let bottom = top + if format.is_narrow() { 330 } else { 420 };
    let area = Area { left: if format.is_narrow() { 64 } else { 76 }, top, right: format.width() - 12, bottom };
    // Logarithmic: loads differ by factors, and with equal lengths for equal ratios each has room
    // for its labels.
    let across = Scale::new(across, (area.left, area.right)).logarithmic();
    let up = Scale::new(up, (area.bottom, area.top)).logarithmic();
    let drawn = canvas::drawing(format, bottom + 44, "Throughput against speed for one user", |canvas| {
        axes::legend(canvas, (0, 0), &legend)?;
        axes::horizontal(canvas, area, across, "output tokens/s for one user", "")?;
        axes::vertical(canvas, area, up, "output tokens/s per device", "")?;
        let places: Vec<(i32, i32)> =
            points.iter().map(|point| (across.pixel(point.speed.median), up.pixel(point.throughput.median))).collect();
        // Lines first: marks and labels must lie above them.
        let best = frontier(&points);
        let line: Vec<(i32, i32)> = best.iter().map(|number| places[*number]).collect();
        if line.len() > 1 {
            canvas.path(&line, ColorRole::Muted, 2)?;
        }
        // Kept as areas, so that labels can avoid them.
        let mut bars = Vec::with_capacity(2 * points.len());
        for (point, (x, y)) in points.iter().zip(&places) {
            let (left, right) = (across.pixel(point.speed.low), across.pixel(point.speed.high));
            let (top, bottom) = (up.pixel(point.throughput.high), up.pixel(point.throughput.low));
            canvas.faint_line((left, *y), (right, *y), point.colour)?;
            canvas.faint_line((*x, top), (*x, bottom), point.colour)?;
            bars.push(Area { left, top: *y, right, bottom: *y });
            bars.push(Area { left: *x, top, right: *x, bottom });
        }
        bars.extend(line.windows(2).flat_map(|ends| along(ends[0], ends[1])));
        for (point, place) in points.iter().zip(&places) {
            mark(canvas, point, *place)?;
            canvas.tip(Area::around(*place, 9), &tip(point));
        }
        label(canvas, area, &points, &places, &bars, &best)
    })?;
    Ok(Some(drawn))
}

fn points<'a>(section: &'a Section<'_>) -> Vec<ParetoPoint<'a>> {
    let of_race = |(place, race): (usize, &'a Race)| {
        let point = |entry: &'a RaceEntry| {
            Some(ParetoPoint {
                configuration: &entry.ranked.configuration,
                load: race.load,
                part: entry.ranked.role,
                chosen: entry.chosen,
                colour: ColorRole::load(place, section.races.len()),
                speed: entry.ranked.tokens_per_s_per_user?,
                throughput: entry.ranked.output_tokens_per_s?,
            })
        };
        race.measured().filter_map(point).collect::<Vec<_>>()
    };
    section.races.iter().enumerate().flat_map(of_race).collect()
}

/// Indices of the points that no other point beats on both axes, in order of falling speed.
fn frontier(points: &[ParetoPoint<'_>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by(|first, second| {
        let (first, second) = (&points[*first], &points[*second]);
        second
            .speed
            .median
            .total_cmp(&first.speed.median)
            // Of equally fast ones the one with the higher throughput comes first, and so excludes
            // the others.
            .then(second.throughput.median.total_cmp(&first.throughput.median))
    });
    let mut highest = f64::NEG_INFINITY;
    order.retain(|number| {
        let better = points[*number].throughput.median > highest;
        highest = highest.max(points[*number].throughput.median);
        better
    });
    order
}

/// Small areas along a straight line, so that labels avoid it.
fn along(from: (i32, i32), to: (i32, i32)) -> impl Iterator<Item = Area> {
    // A slanted line is no rectangle, so it is covered by small ones.
    const PIECES: i32 = 60;
    (0..=PIECES).map(move |piece| {
        let at = |from: i32, to: i32| from + (to - from) * piece / PIECES;
        Area::around((at(from.0, to.0), at(from.1, to.1)), 2)
    })
}

fn mark(canvas: &mut Canvas<'_>, point: &ParetoPoint<'_>, place: (i32, i32)) -> Result<(), DrawError> {
    match point.part {
        Part::NoSpeculation => canvas.square(place, 5, point.colour)?,
        Part::EngineDefault => canvas.diamond(place, 7, point.colour)?,
        Part::Candidate | Part::Current | Part::Probe => canvas.dot(place, 4, point.colour)?,
    }
    if point.chosen { canvas.ring(place, 9, ColorRole::Ink) } else { Ok(()) }
}

/// Labels the points of the frontier and the chosen ones where the label covers no mark and no
/// other label; otherwise omits it.
fn label(
    canvas: &mut Canvas<'_>,
    area: Area,
    points: &[ParetoPoint<'_>],
    places: &[(i32, i32)],
    bars: &[Area],
    frontier: &[usize],
) -> Result<(), DrawError> {
    let chosen = (0..points.len()).filter(|number| points[*number].chosen);
    // The chosen ones are labelled first: they may take the best places.
    let rest = frontier.iter().copied().filter(|number| !points[*number].chosen);
    let mut taken: Vec<Area> = points
        .iter()
        .zip(places)
        .map(|(point, place)| Area::around(*place, if point.chosen { 11 } else { 6 }))
        .collect();
    for number in chosen.chain(rest) {
        let (point, (x, y)) = (&points[number], places[number]);
        // A batch alone is written as its number; a load with contexts needs its whole name.
        let load = point.load.batch_size().filter(|_| point.load.contexts().is_none());
        let load = load.map_or_else(|| point.load.to_string(), |size| size.to_string());
        let text = format!("{} @ {load}", names::short(point.configuration));
        let font = Font { bold: point.chosen, ..Font::new(SMALL - 1, ColorRole::Ink) };
        // In order of preference: beside the mark the eye finds a label most easily.
        let offsets = [
            (13, 0, Align::Left),
            (10, -14, Align::Left),
            (10, 14, Align::Left),
            (0, -19, Align::Middle),
            (0, 19, Align::Middle),
            (-13, 0, Align::Right),
            (-10, -14, Align::Right),
            (-10, 14, Align::Right),
        ];
        let find = |bars: &[Area]| {
            offsets.into_iter().find_map(|(right, down, align)| {
                let (at, font) = ((x + right, y + down), font.align(align));
                let ground = Area::around_text(at, &text, font);
                let covers = taken.iter().chain(bars).any(|other| other.meets(ground));
                (area.holds(ground) && !covers).then_some((at, font, ground))
            })
        };
        // A label may cover the bar of an interval rather than be omitted.
        let free = find(bars).or_else(|| find(&[]));
        if let Some((at, font, ground)) = free {
            canvas.text(at, &text, font)?;
            taken.push(ground);
        }
    }
    Ok(())
}

fn legend(section: &Section<'_>) -> Vec<(AxisMark, String)> {
    let races = section.races.iter().enumerate().filter(|(_, race)| race.measured().next().is_some());
    let mut entries: Vec<(AxisMark, String)> = races
        .map(|(place, race)| (AxisMark::Dot(ColorRole::load(place, section.races.len())), race.load.to_string()))
        .collect();
    entries.extend([
        (AxisMark::Square(ColorRole::Muted), "no speculation".to_owned()),
        (AxisMark::Diamond(ColorRole::Muted), "engine's default".to_owned()),
        (AxisMark::Ring(ColorRole::Ink), "chosen".to_owned()),
        (AxisMark::Line(ColorRole::Muted), "frontier".to_owned()),
    ]);
    entries
}

fn tip(point: &ParetoPoint<'_>) -> String {
    let part = match point.part {
        Part::NoSpeculation => " (no speculation)",
        Part::EngineDefault => " (engine's default)",
        Part::Current => " (runs now)",
        Part::Candidate | Part::Probe => "",
    };
    format!(
        "{}{part} at {}\n{} output tokens/s for one user ({})\n{} output tokens/s ({})",
        point.configuration,
        point.load,
        figures::quantity(point.speed.median),
        figures::range(point.speed, figures::quantity),
        figures::quantity(point.throughput.median),
        figures::range(point.throughput, figures::quantity)
    )
}
