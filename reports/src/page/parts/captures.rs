//! The batch sizes to capture a graph for.

use tuner::prediction::guide::{CaptureChoice, GuideCaptureList};

use crate::{
    charts::{self, Chart, axes::AxisMark, curve, palette::ColorRole},
    error::ReportError,
    figures, names,
    page::part::{Cell, PagePart, PartTable},
};

/// Marks of the lists in the chart, the chosen one first.
static MARKS: [AxisMark; 4] = [
    AxisMark::Ring(ColorRole::Chosen),
    AxisMark::Diamond(ColorRole::Default),
    AxisMark::Square(ColorRole::Baseline),
    AxisMark::Dot(ColorRole::Muted),
];

pub fn part(choices: &[CaptureChoice]) -> Result<Option<PagePart>, ReportError> {
    if choices.is_empty() {
        return Ok(None);
    }
    let mut charts = Vec::new();
    for choice in choices {
        charts.extend(chart(choice)?);
    }
    Ok(Some(PagePart {
        anchor: "captures".into(),
        title: "Capture sizes".into(),
        how: "A running batch is padded up to the next captured size: few graphs waste rows, many cost memory and startup time, and beyond the bend of the curve more graphs hardly help. Predicted.".into(),
        remarks: choices.iter().filter_map(remark).collect(),
        charts,
        tables: choices.iter().map(table).collect(),
    }))
}

fn remark(choice: &CaptureChoice) -> Option<String> {
    let (chosen, others) = choice.lists.split_first()?;
    let against = others.iter().filter(|list| list.seconds > 0.0).map(|list| {
        format!("{} against {} ({})", figures::gain(chosen.seconds / list.seconds), list.name, graphs(list))
    });
    Some(format!(
        "{}, {}: the {} list has {}; time of all rounds {}.",
        names::heading(choice.load),
        choice.configuration,
        chosen.name,
        graphs(chosen),
        against.collect::<Vec<_>>().join(", ")
    ))
    .filter(|_| !others.is_empty())
}

fn graphs(list: &GuideCaptureList) -> String {
    figures::counted(list.sizes.len(), "graph", "graphs")
}

fn chart(choice: &CaptureChoice) -> Result<Option<Chart>, ReportError> {
    let line: Vec<(f64, f64)> = choice.curve.iter().map(|point| (point.graphs as f64, point.seconds)).collect();
    let marked = || choice.lists.iter().zip(MARKS.iter().chain(std::iter::repeat(&MARKS[3])));
    let spots: Vec<curve::Spot> = marked()
        .map(|(list, mark)| curve::Spot {
            at: (list.sizes.len() as f64, list.seconds),
            mark: *mark,
            tip: format!(
                "{}: {}, {} s, {} of the rows are padding",
                list.name,
                graphs(list),
                figures::quantity(list.seconds),
                figures::share(list.padding)
            ),
        })
        .collect();
    let mut legend: Vec<(AxisMark, String)> = marked().map(|(list, mark)| (*mark, list.name.clone())).collect();
    legend.push((AxisMark::Line(ColorRole::Candidate), "best list of N sizes".to_owned()));
    let title = format!("Time over number of graphs, {}", choice.load);
    let frame = curve::Frame {
        title: &title,
        across: "graphs",
        up: "time of all rounds (s)",
        suffix: "",
        legend: &legend,
        level: None,
    };
    let name = format!("{}-captures", names::anchor(choice.load));
    let caption = format!(
        "Predicted for {}: minimum total round time with N graphs, and the commonly used lists.",
        choice.configuration
    );
    charts::chart(&name, &title, &caption, |format| curve::draw(&line, &spots, &frame, format))
}

fn table(choice: &CaptureChoice) -> PartTable {
    let chosen = choice.lists.first().map(|list| list.seconds);
    let row = |list: &GuideCaptureList| {
        vec![
            Cell::text(list.name.clone()),
            Cell::number(list.sizes.len() as f64, |number| format!("{number:.0}")),
            Cell::number(list.seconds, figures::quantity),
            Cell::number(chosen.map(|chosen| list.seconds / chosen), figures::gain),
            Cell::number(list.padding, figures::share),
            Cell::text(list.sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(" ")),
        ]
    };
    PartTable::new(
        format!("{}, {}", names::heading(choice.load), choice.configuration),
        &["list", "#graphs", "#time of all rounds (s)", "#against the first", "#padding rows", "sizes"],
        choice.lists.iter().map(row).collect(),
    )
}
