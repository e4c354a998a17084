//! The parts of the page.

use schemas::training_record::{Evaluation, HeadComparison, RatioInterval, TrainingRecord};
use tuner::results::selection::{Interval, RangeKind};

use crate::{
    charts::{
        self, Chart,
        axes::AxisMark,
        curve::{self, Spot},
        palette::ColorRole,
        spans,
    },
    error::ReportError,
    figures,
    page::part::{Cell, PagePart, PartTable},
};

/// A change with its interval: `+6.1% (+4.0% to +8.3%)`.
pub fn change(ratio: &RatioInterval) -> String {
    // The upper end of an interval over too few prompts.
    if ratio.high == f64::MAX {
        return format!("{} (too few prompts for an interval)", figures::gain(ratio.ratio));
    }
    format!("{} ({} to {})", figures::gain(ratio.ratio), figures::gain(ratio.low), figures::gain(ratio.high))
}

fn two_decimals(value: f64) -> String {
    format!("{value:.2}")
}

fn three_decimals(value: f64) -> String {
    format!("{value:.3}")
}

fn all(record: &TrainingRecord) -> impl Iterator<Item = &HeadComparison> {
    record.judged.iter().chain(&record.general)
}

pub fn before_and_after(record: &TrainingRecord) -> Result<Option<PagePart>, ReportError> {
    if record.judged.is_empty() {
        return Ok(None);
    }
    let predicted = all(record).any(|one| one.before.predicted_tokens_per_s.is_some());
    let mut headings = vec!["prompts", "#texts", "#accept length before", "#after", "#change (95% interval)"];
    if predicted {
        headings.extend(["#predicted tok/s before", "#after"]);
    }
    let row = |one: &HeadComparison| {
        let mut cells = vec![
            Cell::text(one.name.clone()),
            Cell::number(one.prompts as f64, |count| figures::count(count as u64)),
            Cell::number(one.before.accept_length(), two_decimals),
            Cell::number(one.after.accept_length(), two_decimals),
            Cell { text: change(&one.ratio), value: Some(one.ratio.ratio) },
        ];
        if predicted {
            cells.push(Cell::number(one.before.predicted_tokens_per_s, figures::quantity));
            cells.push(Cell::number(one.after.predicted_tokens_per_s, figures::quantity));
        }
        cells
    };
    let mut remarks = vec![sentence_of_step(record)];
    if predicted {
        remarks.push(
            "Predicted: accept length times the batch over the time of a round, which was measured once; both heads \
             have the same shape, so their rounds take equally long."
                .into(),
        );
    }
    Ok(Some(PagePart {
        anchor: "before-and-after".into(),
        title: "Before and after".into(),
        how: "Replayed on prompts that neither trained nor chose a checkpoint: exact for these texts. The interval is bootstrapped over prompts and estimates the result on other prompts of the same kind.".into(),
        remarks,
        charts: ratios(record)?.into_iter().collect(),
        tables: vec![PartTable::new("Accept lengths", &headings, all(record).map(row).collect())],
    }))
}

fn sentence_of_step(record: &TrainingRecord) -> String {
    match record.verdict.step {
        0 => "No checkpoint was chosen, so both sides are the previous head.".into(),
        step => format!(
            "After: the checkpoint of step {step}, which had the longest accept length on the choosing prompts."
        ),
    }
}

fn ratios(record: &TrainingRecord) -> Result<Option<Chart>, ReportError> {
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let rows: Vec<spans::SpanRow> = all(record)
        // An interval without an end cannot be drawn.
        .filter(|one| one.ratio.high < f64::MAX)
        .map(|one| spans::SpanRow {
            name: one.name.clone(),
            interval: Interval {
                median: percent(one.ratio.ratio),
                low: percent(one.ratio.low),
                high: percent(one.ratio.high),
                kind: RangeKind::Confidence,
                coverage: one.ratio.coverage,
            },
            role: if one.ratio.low > 1.0 { ColorRole::Chosen } else { ColorRole::Candidate },
            second: None,
            figure: figures::gain(one.ratio.ratio),
            tip: format!("{}: {} on {} prompts", one.name, change(&one.ratio), one.prompts),
        })
        .collect();
    let frame = spans::SpanFrame {
        title: "Change of the accept length",
        axis: "change of the accept length",
        suffix: "%",
        line: Some(0.0),
        legend: &[],
    };
    charts::chart(
        "change",
        "Change of the accept length",
        "By kind of prompts, with the interval. The line marks no change.",
        |format| spans::draw(&rows, &frame, format),
    )
}

pub fn positions(record: &TrainingRecord) -> Result<Option<PagePart>, ReportError> {
    let Some(whole) = record.judged.first() else { return Ok(None) };
    let (before, after) = (whole.before.by_position(), whole.after.by_position());
    let places = before.len().max(after.len());
    if places == 0 {
        return Ok(None);
    }
    let row = |at: usize| {
        let share = |from: &[f64]| from.get(at).copied();
        vec![
            Cell::number((at + 1) as f64, |place| format!("{place:.0}")),
            Cell::number(share(&before), figures::share),
            Cell::number(share(&after), figures::share),
        ]
    };
    let points = |shares: &[f64]| -> Vec<(f64, f64)> {
        shares.iter().enumerate().map(|(at, share)| ((at + 1) as f64, share * 100.0)).collect()
    };
    let spots: Vec<Spot> = points(&before)
        .into_iter()
        .map(|at| Spot {
            at,
            mark: AxisMark::Diamond(ColorRole::Default),
            tip: format!("before, position {}: {:.1}%", at.0, at.1),
        })
        .collect();
    let legend = [
        (AxisMark::Line(ColorRole::Candidate), "after".to_owned()),
        (AxisMark::Diamond(ColorRole::Default), "before".to_owned()),
    ];
    let frame = curve::Frame {
        title: "Acceptance by position",
        across: "position in the draft",
        up: "share of rounds",
        suffix: "%",
        legend: &legend,
        level: None,
    };
    let line = points(&after);
    let chart = charts::chart(
        "positions",
        "Acceptance by position",
        "The share of rounds in which the draft at that depth, and so every draft before it, is accepted.",
        |format| curve::draw(&line, &spots, &frame, format),
    )?;
    let headings = ["#position", "#before", "#after"];
    Ok(Some(PagePart {
        anchor: "positions".into(),
        title: "By position".into(),
        how: "On all judging prompts: how deep acceptance reaches.".into(),
        remarks: Vec::new(),
        charts: chart.into_iter().collect(),
        tables: vec![PartTable::new("Share of rounds", &headings, (0..places).map(row).collect())],
    }))
}

pub fn course(record: &TrainingRecord) -> Result<Option<PagePart>, ReportError> {
    let Some(first) = record.evaluations.first() else { return Ok(None) };
    let points: Vec<(f64, f64)> = record.evaluations.iter().map(|one| (one.step as f64, one.accept_length)).collect();
    // Step 0 is the previous head: then no checkpoint was chosen.
    let chosen = record.evaluations.iter().find(|one| one.step == record.verdict.step && one.step > 0);
    let spots: Vec<Spot> = chosen
        .map(|one| Spot {
            at: (one.step as f64, one.accept_length),
            mark: AxisMark::Ring(ColorRole::Chosen),
            tip: format!("step {}: accept length {:.3}", one.step, one.accept_length),
        })
        .into_iter()
        .collect();
    let legend = [
        (AxisMark::Line(ColorRole::Candidate), "accept length on the choosing prompts".to_owned()),
        (AxisMark::Ring(ColorRole::Chosen), "chosen".to_owned()),
    ];
    let frame = curve::Frame {
        title: "Accept length while training",
        across: "step",
        up: "accept length",
        suffix: "",
        legend: &legend,
        // The first evaluation is of the head before training.
        level: Some(first.accept_length),
    };
    let lengths = charts::chart(
        "accept-length",
        "Accept length while training",
        "Replayed at each evaluation. The grey line is the previous head.",
        |format| curve::draw(&points, &spots, &frame, format),
    )?;
    let losses: Vec<(f64, f64)> =
        record.curve.iter().filter_map(|point| Some((point.step as f64, *point.loss.first()?))).collect();
    let frame =
        curve::Frame { title: "Loss", across: "step", up: "nats per token", suffix: "", legend: &[], level: None };
    let loss = charts::chart(
        "loss",
        "Loss while training",
        "Of the first draft token, mean since the previous point. The checkpoint is chosen by accept length, not by \
         loss.",
        |format| curve::draw(&losses, &[], &frame, format),
    )?;
    Ok(Some(PagePart {
        anchor: "course".into(),
        title: "How training went".into(),
        how: "Evaluations on the choosing prompts, and the curve of training.".into(),
        remarks: vec![format!("Training stopped: {}.", record.stopped)],
        charts: [lengths, loss].into_iter().flatten().collect(),
        tables: vec![evaluations(record), curve_table(record)],
    }))
}

fn evaluations(record: &TrainingRecord) -> PartTable {
    let headings = [
        "#step",
        "#accept length",
        "by kind",
        "#loss",
        "#loss on general prompts",
        "#accept length on general prompts",
    ];
    let row = |one: &Evaluation| {
        let kinds: Vec<String> = one.by_set.iter().map(|(name, length)| format!("{name} {length:.2}")).collect();
        vec![
            Cell::number(one.step as f64, |step| figures::count(step as u64)),
            Cell::number(one.accept_length, three_decimals),
            Cell::text(kinds.join(", ")),
            Cell::number(one.loss, three_decimals),
            Cell::number(one.general_loss, three_decimals),
            Cell::number(one.general_accept_length, three_decimals),
        ]
    };
    PartTable::new("Evaluations", &headings, record.evaluations.iter().map(row).collect()).folded()
}

fn curve_table(record: &TrainingRecord) -> PartTable {
    let headings =
        ["#step", "#loss by draft step", "#agreement by draft step", "#learning rate", "#gradient", "#rows/s"];
    let list = |values: &[f64], write: fn(f64) -> String| {
        let text: Vec<String> = values.iter().map(|value| write(*value)).collect();
        Cell { text: text.join(" "), value: values.first().copied() }
    };
    let rows = record.curve.iter().map(|point| {
        vec![
            Cell::number(point.step as f64, |step| figures::count(step as u64)),
            list(&point.loss, three_decimals),
            list(&point.agreement, figures::share),
            Cell { text: format!("{:.2e}", point.learning_rate), value: Some(point.learning_rate) },
            Cell::number(point.gradient, figures::quantity),
            Cell::number(point.rows_per_s, figures::quantity),
        ]
    });
    PartTable::new("The curve", &headings, rows.collect()).folded()
}

pub fn prompts(record: &TrainingRecord) -> PagePart {
    let headings = ["prompts", "#train", "#choose", "#judge", "#answer tokens for training", "#repeated, skipped"];
    let count = |value: u64| Cell::number(value as f64, |value| figures::count(value as u64));
    let rows = record.sets.iter().map(|set| {
        vec![
            Cell::text(set.name.clone()),
            count(set.training as u64),
            count(set.choosing as u64),
            count(set.judging as u64),
            count(set.training_tokens),
            count(set.repeated as u64),
        ]
    });
    PagePart {
        anchor: "prompts".into(),
        title: "Prompts".into(),
        how: "Answers are the target's own. Each prompt is used for exactly one purpose: training, choosing a checkpoint, or the final comparison.".into(),
        remarks: Vec::new(),
        charts: Vec::new(),
        tables: vec![PartTable::new("Prompts by kind", &headings, rows.collect())],
    }
}

pub fn cost(record: &TrainingRecord) -> PagePart {
    let cost = &record.cost;
    let per_second = |count: f64, seconds: f64| (seconds > 0.0).then(|| count / seconds);
    let row = |name: &str, seconds: f64, what: String| {
        vec![Cell::text(name), Cell { text: figures::duration(seconds), value: Some(seconds) }, Cell::text(what)]
    };
    let rate = per_second(cost.rows as f64, cost.training_s);
    let flops = per_second(cost.flops, cost.training_s).map(|rate| rate / 1e9);
    let rows = vec![
        row("answers of the target", cost.answers_s, format!("{} tokens", figures::count(cost.answer_tokens))),
        row("states of the target", cost.states_s, "captured once where memory suffices, never on disk".into()),
        row(
            "training",
            cost.training_s,
            format!(
                "{} rows, {} rows/s, {} GFLOP/s in matrix products",
                figures::count(cost.rows),
                rate.map_or_else(|| figures::MISSING.into(), figures::quantity),
                flops.map_or_else(|| figures::MISSING.into(), figures::quantity)
            ),
        ),
        row("evaluations and judgement", cost.evaluation_s, format!("{} evaluations", record.evaluations.len())),
    ];
    PagePart {
        anchor: "cost".into(),
        title: "What it took".into(),
        how: "Wall-clock time, measured. A row is one position of a text in one step of the optimiser.".into(),
        remarks: Vec::new(),
        charts: Vec::new(),
        tables: vec![PartTable::new("Time", &["part", "#time", "of what"], rows)],
    }
}
