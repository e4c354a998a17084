//! Tables of predicted and measured times. Errors are predicted / measured − 1: above zero, the
//! round was faster than predicted.

use std::{collections::BTreeSet, error::Error};

use engine::timing::TimingPoint;
use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};
use tuner::{
    prediction::latency::{LatencyMachine, Point, PrefillKind, RoundModel, TimedSample, design::among},
    statistics::median,
};

use crate::measured::{Measured, Timed};

/// A point with its prediction.
struct Line {
    point: Point,
    measured_ms: f64,
    predicted_ms: f64,
    outside: bool,
}

/// Prints all tables.
pub fn all(measured: &Measured, draws: usize) -> Result<(), Box<dyn Error>> {
    let model = fit(measured.machine, &measured.designed)?;
    let left_out = model.cross_validation().map_or(&[][..], |one| &one.left_out_ms);
    let mut designed = Vec::new();
    for (timed, predicted_ms) in measured.designed.iter().zip(left_out) {
        designed.push(Line::new(timed, *predicted_ms)?);
    }
    table("designed, each predicted from the others", &designed);
    let mut others = Vec::new();
    for (seed, held_out) in &measured.held_out {
        let lines = predicted(&model, held_out)?;
        table(&format!("held out by seed {seed}"), &lines);
        others.extend(lines);
    }
    by_quantity("held out", &others);
    timed_again(measured)?;
    if draws > 0 {
        drawn(measured, draws)?;
    }
    println!("{:?}", model.parameters());
    Ok(())
}

impl Line {
    fn new(timed: &Timed, predicted_ms: f64) -> Result<Self, Box<dyn Error>> {
        Ok(Self { point: timed.point(), measured_ms: timed.ms()?, predicted_ms, outside: false })
    }

    fn error(&self) -> f64 {
        self.predicted_ms / self.measured_ms - 1.0
    }
}

fn fit<'a>(machine: LatencyMachine, points: impl IntoIterator<Item = &'a Timed>) -> Result<RoundModel, Box<dyn Error>> {
    let samples: Vec<TimedSample> = points.into_iter().map(Timed::sample).collect();
    Ok(RoundModel::fit(machine, &samples)?)
}

fn predicted<'a>(model: &RoundModel, points: impl IntoIterator<Item = &'a Timed>) -> Result<Vec<Line>, Box<dyn Error>> {
    let line = |timed: &Timed| {
        let predicted = model.predict(&timed.point());
        Ok(Line { outside: predicted.kind != PrefillKind::Interpolated, ..Line::new(timed, predicted.ms)? })
    };
    points.into_iter().map(line).collect()
}

fn table(title: &str, lines: &[Line]) {
    println!("{title}\nshape     batch context  measured  predicted  error");
    for line in lines {
        let Point { shape, batch, context } = line.point;
        println!(
            "{:9} {batch:5} {context:7.0} {:9.3} {:10.3} {:+5.1}%{}",
            shape.to_string(),
            line.measured_ms,
            line.predicted_ms,
            100.0 * line.error(),
            if line.outside { "  extrapolated" } else { "" }
        );
    }
    println!("{title}: {}", summary(lines));
}

fn summary(lines: &[Line]) -> String {
    let mut errors: Vec<f64> = lines.iter().map(|line| line.error().abs()).collect();
    errors.sort_by(f64::total_cmp);
    let within = errors.iter().filter(|error| **error <= 0.05).count();
    let at = |share: f64| {
        let rank = (errors.len().saturating_sub(1) as f64 * share).round() as usize;
        100.0 * errors.get(rank).copied().unwrap_or_default()
    };
    let signed = median(lines.iter().map(Line::error).collect()).unwrap_or_default();
    format!(
        "{within} of {} within 5%; median {:.1}%, 90% {:.1}%, largest {:.1}%; signed median {:+.1}%",
        errors.len(),
        at(0.5),
        at(0.9),
        at(1.0),
        100.0 * signed
    )
}

/// A quantity of a point, with its name.
type Quantity = (&'static str, fn(&Point) -> usize);

/// Shows where the model is biased: errors of points with the same value of one quantity.
fn by_quantity(title: &str, lines: &[Line]) {
    let quantities: [Quantity; 6] = [
        ("verified rows to", |point| point.verified_rows().next_power_of_two()),
        ("draft rows to", |point| point.draft_rows().next_power_of_two()),
        ("batch", |point| point.batch),
        ("steps", |point| point.shape.num_steps),
        ("topk", |point| point.shape.topk),
        // The contexts of timed rounds are close to the requested one.
        ("context about", |point| (point.context / 100.0).round() as usize * 100),
    ];
    for (name, quantity) in quantities {
        let mut values: Vec<usize> = lines.iter().map(|line| quantity(&line.point)).collect();
        values.sort_unstable();
        values.dedup();
        for value in values {
            let errors: Vec<f64> =
                lines.iter().filter(|line| quantity(&line.point) == value).map(|line| 100.0 * line.error()).collect();
            let (points, signed) = (errors.len(), median(errors).unwrap_or_default());
            println!("{title}, {name} {value:5}: {points:3} points, signed median {signed:+5.1}%");
        }
    }
}

/// Changes of the designed points' times between the start and the end.
fn timed_again(measured: &Measured) -> Result<(), Box<dyn Error>> {
    let (mut wall, mut device) = (Vec::new(), Vec::new());
    println!("timed again\nshape     batch context  first at     ms  again at     ms  change  device's");
    for (first, again) in measured.designed.iter().zip(&measured.designed_again) {
        let Point { shape, batch, context } = first.point();
        let (before, after) = (first.ms()?, again.ms()?);
        wall.push(100.0 * (after / before - 1.0));
        device.push(100.0 * (again.device_ms()? / first.device_ms()? - 1.0));
        println!(
            "{:9} {batch:5} {context:7.0} {:7.1}s {before:7.3} {:8.1}s {after:7.3} {:+6.1}% {:+6.1}%",
            shape.to_string(),
            first.at_s,
            again.at_s,
            wall[wall.len() - 1],
            device[device.len() - 1],
        );
    }
    let absolute = |values: &[f64]| median(values.iter().map(|value: &f64| value.abs()).collect()).unwrap_or_default();
    let signed = |values: &[f64]| median(values.to_vec()).unwrap_or_default();
    println!(
        "timed again: changed by {:+.1}% in the median ({:.1}% either way), the device's work by {:+.1}% ({:.1}%)",
        signed(&wall),
        absolute(&wall),
        signed(&device),
        absolute(&device)
    );
    Ok(())
}

/// Draws a third of the held-out points, fits as many of the other points as were designed, and
/// predicts the drawn ones.
fn drawn(measured: &Measured, draws: usize) -> Result<(), Box<dyn Error>> {
    let mut random = StdRng::seed_from_u64(1);
    let every_point = measured.every_point();
    let timed = |points: &[TimingPoint]| points.iter().filter_map(|point| every_point.get(point).copied()).collect();
    let held_out: BTreeSet<TimingPoint> = measured.held_out.values().flatten().map(Timed::requested).collect();
    let mut held_out: Vec<TimingPoint> = held_out.into_iter().collect();
    let mut all = Vec::new();
    for draw in 1..=draws {
        held_out.shuffle(&mut random);
        let drawn = &held_out[..held_out.len() / 3];
        let others: Vec<TimingPoint> = every_point.keys().copied().filter(|point| !drawn.contains(point)).collect();
        let fitted: Vec<&Timed> = timed(&among(&others, measured.designed.len()));
        let drawn: Vec<&Timed> = timed(drawn);
        let lines = predicted(&fit(measured.machine, fitted)?, drawn)?;
        println!("drawn {draw}: {}", summary(&lines));
        all.extend(lines);
    }
    println!("drawn, all: {}", summary(&all));
    by_quantity("drawn", &all);
    Ok(())
}
