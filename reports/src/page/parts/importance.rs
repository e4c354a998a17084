//! Parameter importance.

use crate::{
    charts::{self, bars, palette::ColorRole},
    error::ReportError,
    figures,
    importance::Importance,
    names,
    page::part::{Cell, PagePart, PartTable},
    race::Race,
    section::Section,
};

pub fn part(section: &Section<'_>) -> Result<Option<PagePart>, ReportError> {
    let found: Vec<(&Race, Importance)> = section.importances();
    let mut parameters: Vec<&str> = Vec::new();
    for (name, _) in found.iter().flat_map(|(_, importance)| &importance.shares) {
        if !parameters.contains(&name.as_str()) {
            parameters.push(name);
        }
    }
    if parameters.is_empty() {
        return Ok(None);
    }
    let share = |importance: &Importance, parameter: &str| {
        importance.shares.iter().find(|(name, _)| name == parameter).map(|(_, share)| *share)
    };
    let groups: Vec<bars::BarGroup> = parameters
        .iter()
        .map(|parameter| bars::BarGroup {
            name: (*parameter).to_owned(),
            shares: found.iter().map(|(_, importance)| share(importance, parameter)).collect(),
        })
        .collect();
    let colour = |race: &Race| section.races.iter().position(|other| other.load == race.load).unwrap_or_default();
    let series: Vec<(String, ColorRole)> = found
        .iter()
        .map(|(race, _)| (race.load.to_string(), ColorRole::load(colour(race), section.races.len())))
        .collect();
    let title = "Parameter importance";
    let caption = "Share of the variance of the objective's logarithm that each parameter explains by itself.";
    let chart = charts::chart("importance", title, caption, |format| {
        bars::draw(&groups, &series, title, "share of the variance", format)
    })?;
    let mut remarks: Vec<String> = found.iter().filter_map(|(race, importance)| remark(race, importance)).collect();
    remarks.push(
        "Parameters that go together (a larger tree needs more steps or branches) share what they explain, so shares \
         need not add up to 100%; the rest is interaction and noise. The share expected by chance is \
         subtracted."
            .into(),
    );
    Ok(Some(PagePart {
        anchor: "importance".into(),
        title: title.into(),
        how: "A long bar: choosing this parameter well decides most of the outcome among configurations that speculate; a bar near 0: take the simplest value.".into(),
        remarks,
        charts: chart.into_iter().collect(),
        tables: vec![table(&found)],
    }))
}

fn remark(race: &Race, importance: &Importance) -> Option<String> {
    let (name, share) = importance.shares.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(format!(
        "{}: {name} explains most by itself, {}; over {} {} configurations.",
        names::heading(race.load),
        figures::share(*share),
        figures::count(importance.configurations as u64),
        if importance.predicted { "predicted" } else { "measured" },
    ))
}

/// One row per parameter and load, because the number of loads varies and headings are fixed.
fn table(found: &[(&Race, Importance)]) -> PartTable {
    let of_race = |(race, importance): &(&Race, Importance)| {
        let kind = if importance.predicted { "predicted" } else { "measured" };
        let load = race.load.to_string();
        let count = importance.configurations as f64;
        let row = move |(name, share): &(String, f64)| {
            vec![
                Cell::text(load.clone()),
                Cell::text(name.clone()),
                Cell::number(*share, figures::share),
                Cell::text(kind),
                Cell::number(count, |count| figures::with_decimals(count, 0)),
            ]
        };
        importance.shares.iter().map(row).collect::<Vec<_>>()
    };
    PartTable::new(
        "Shares by load",
        &["load", "parameter", "#share of the variance", "figures", "#configurations"],
        found.iter().flat_map(of_race).collect(),
    )
    .folded()
}
