//! The content of a report, as text in display order. The templates add no content.

mod answer;
pub mod drafts;
mod overview;
pub mod part;
mod parts;
mod policy;
mod table;
mod tails;

use std::collections::BTreeSet;

use serde::Serialize;

use crate::{
    charts::{self, Chart},
    comparison::RunComparison,
    definitions,
    error::ReportError,
    figures,
    input::Sweep,
    names, order,
    race::Race,
    section::{self, ReportPlan, Section},
};

use self::answer::FlagRemarks;
use self::part::PagePart;
pub use self::{
    answer::{Answer, notes},
    part::PartTable,
    parts::versus,
};

/// The whole page.
#[derive(Serialize)]
pub struct Page {
    version: &'static str,
    /// The heading: models and machine.
    title: String,
    /// Machine, models, workload, dates.
    subject: Vec<PagePair>,
    /// The engine that was measured.
    whose: String,
    kind: &'static str,
    warnings: Vec<String>,
    comparison: Option<PagePart>,
    /// A comparison of the sections, if there are several.
    overview: Option<PartTable>,
    /// Which draft for which workload.
    workloads: Option<PartTable>,
    definitions: Vec<PagePair>,
    sections: Vec<SectionPage>,
}

/// A section: what was measured under one fingerprint.
#[derive(Serialize)]
struct SectionPage {
    number: usize,
    heading: String,
    subject: Vec<PagePair>,
    answers: Vec<Answer>,
    /// What must be known about the answers of all loads.
    cautions: Vec<String>,
    /// Remarks on the flags to paste, by engine.
    flag_remarks: Vec<FlagRemarks>,
    policy: Option<PartTable>,
    /// The best of each draft.
    drafts: Option<PartTable>,
    fingerprint: Vec<PagePair>,
    sweeps: Vec<SweepFacts>,
    trials: String,
    charts: Vec<Chart>,
    races: Vec<RacePage>,
    parts: Vec<PagePart>,
}

/// The part of the page about one load.
#[derive(Serialize)]
struct RacePage {
    heading: String,
    /// The answer in a short phrase.
    answer: String,
    mood: &'static str,
    /// What the rows are ordered by.
    order: String,
    /// Meaning of the bounds below the medians.
    ends: String,
    anchor: String,
    /// The best configurations with the main figures, shown as the page opens.
    first: Option<table::RankingTable>,
    /// All configurations with all figures.
    whole: Option<table::RankingTable>,
    /// Whether anything was ranked.
    ranked: bool,
    /// Number of measured configurations, in words.
    count: String,
    /// A remark about the figures of all rows.
    remark: Option<&'static str>,
    failed: Vec<table::Failed>,
    /// What its probes are, if it has any.
    probes: Option<&'static str>,
    tails: Option<PartTable>,
    charts: Vec<Chart>,
    noise: table::NoiseTable,
}

#[derive(Serialize)]
struct SweepFacts {
    name: String,
    facts: Vec<PagePair>,
    notices: Vec<String>,
}

#[derive(Serialize)]
struct PagePair {
    label: String,
    value: String,
}

impl Page {
    /// The page of these sections.
    ///
    /// # Errors
    /// When a chart cannot be drawn.
    pub fn new(
        sections: &[Section<'_>],
        sweeps: &[Sweep],
        comparison: Option<&RunComparison<'_>>,
    ) -> Result<Self, ReportError> {
        let labels = section::labels(sections);
        let pages: Result<Vec<_>, _> = sections
            .iter()
            .zip(&labels)
            .enumerate()
            .map(|(place, (section, label))| SectionPage::new(place + 1, section, label.clone()))
            .collect();
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            title: title(sections, &labels),
            subject: match sections {
                [only] => subject(only),
                _ => Vec::new(),
            },
            whose: whose(sections),
            overview: overview::table(sections, &labels),
            workloads: drafts::across_workloads(sections),
            kind: if sections.iter().any(|section| section.guide.is_some()) {
                definitions::KIND_WITH_PREDICTIONS
            } else {
                definitions::KIND
            },
            warnings: warnings(sections, sweeps),
            comparison: comparison.map(parts::versus::part).transpose()?,
            definitions: definitions::terms(section::loads(sections))
                .map(|(label, value)| PagePair::new(label, value))
                .collect(),
            sections: pages?,
        })
    }

    /// Every chart with its file name without extension.
    pub fn charts(&self) -> impl Iterator<Item = (String, &str)> {
        let many = self.sections.len() > 1;
        let compared = self.comparison.as_slice().iter().flat_map(|part| &part.charts);
        let own = self.sections.iter().flat_map(move |section| {
            // Sections may have the same loads, and then charts of the same names.
            let prefix = if many { format!("section-{}-", section.number) } else { String::new() };
            let of_races = section.races.iter().flat_map(|race| &race.charts);
            let charts =
                section.charts.iter().chain(of_races).chain(section.parts.iter().flat_map(|part| &part.charts));
            charts.map(move |chart| (format!("{prefix}{}", chart.name), chart.wide.as_str()))
        });
        compared.map(|chart| (chart.name.clone(), chart.wide.as_str())).chain(own)
    }
}

/// Warnings that must be read first.
fn warnings(sections: &[Section<'_>], sweeps: &[Sweep]) -> Vec<String> {
    let mut warnings = Vec::new();
    if sections.is_empty() {
        warnings.push("No trial has finished yet: there is nothing to rank.".to_owned());
    }
    if sections.len() > 1 {
        warnings.push(format!(
            "These trials have {} different fingerprints (device, engine, models or workload). Each has its own \
             section; they are not ranked against each other.",
            sections.len()
        ));
    }
    if sections.iter().any(Section::simulated) {
        warnings.push(
            "Acceptance was simulated in the trials marked as such: their times are real, but their texts are not, \
             and their accept lengths were given, not measured."
                .to_owned(),
        );
    }
    for section in sections {
        if section.sweeps.iter().any(|sweep| sweep.metric() != section.metric) {
            warnings.push(format!(
                "The sweeps of {} on {} have different objectives; all are ranked by that of {}.",
                section.fingerprint.engine, section.fingerprint.device_name, section.sweeps[0].name
            ));
        }
    }
    for ReportPlan { names, finished, planned } in sections.iter().flat_map(|section| &section.plans) {
        if finished < planned {
            warnings.push(format!(
                "{}: {finished} of {planned} planned trials have finished; the ranking may change when the remaining \
                 trials finish.",
                names.join(", ")
            ));
        }
    }
    for sweep in sweeps {
        let finished = sweep.records.len();
        if finished == 0 {
            let planned = sweep.planned().map_or(String::new(), |planned| format!(" of {planned} planned"));
            warnings.push(format!("{}: the journal holds no finished trial{planned}.", sweep.name));
        }
        if let Some(guide) = &sweep.guide
            && let Some(record) = sweep.records.first()
            && guide.fingerprint != record.fingerprint
        {
            warnings.push(format!(
                "{}: its predictions were made for a different setup and are not shown ({}).",
                sweep.name,
                guide.fingerprint.difference(&record.fingerprint)
            ));
        }
        warnings.extend(sweep.named_notices());
    }
    warnings.extend(sections.iter().filter_map(Section::pooling));
    warnings
}

/// The title of the report, for its heading and the window.
fn title(sections: &[Section<'_>], labels: &[String]) -> String {
    match sections {
        [] => "No trial has finished yet".into(),
        [only] => format!("{} on {}", only.models(), only.machine()),
        _ => {
            let models: Vec<String> = sections.iter().map(Section::models).collect();
            let same = models.windows(2).all(|pair| pair[0] == pair[1]);
            let what = if same { models[0].clone() } else { format!("{} sweeps", sections.len()) };
            format!("{what}: {}", labels.join("; "))
        }
    }
}

/// Machine, models, workload and dates.
fn subject(section: &Section<'_>) -> Vec<PagePair> {
    vec![
        PagePair::new("machine", &section.machine()),
        PagePair::new("models", &section.models()),
        PagePair::new("workload", &section.workload()),
        PagePair::new("measured", &format!("{}, {}", section.dates(), section.counted())),
    ]
}

/// Names the measured engine, so that its figures are not mistaken for another engine's.
fn whose(sections: &[Section<'_>]) -> String {
    let engines: BTreeSet<String> = sections.iter().map(Section::engine).collect();
    if engines.is_empty() {
        return String::new();
    }
    format!(
        "Measured with {}: another engine may rank the same shapes differently.",
        engines.into_iter().collect::<Vec<_>>().join(" and ")
    )
}

impl SectionPage {
    fn new(number: usize, section: &Section<'_>, heading: String) -> Result<Self, ReportError> {
        let print = section.fingerprint;
        let facts = [
            ("device", &print.device),
            ("device name", &print.device_name),
            ("driver", &print.driver),
            ("engine", &print.engine),
            ("target", &print.target),
            ("draft", &print.draft),
            ("workload", &print.workload),
            ("settings", &print.settings),
        ];
        let mut fingerprint: Vec<PagePair> = facts
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(label, value)| PagePair::new(label, value))
            .collect();
        let units = if print.device.starts_with("cuda") { "multiprocessors" } else { "threads" };
        // After the device's name, unless empty values before it were skipped.
        fingerprint.insert(2.min(fingerprint.len()), PagePair::new(units, &print.units.to_string()));
        let anchor = |race: &Race| format!("section-{number}-{}", names::anchor(race.load));
        let races: Result<Vec<_>, ReportError> = section
            .races
            .iter()
            .map(|race| {
                let answer = Answer::new(race, section, anchor(race));
                let ends = race.measured().flat_map(|entry| [entry.ranked.output_tokens_per_s, entry.ranked.speedup]);
                Ok(RacePage {
                    heading: names::heading(race.load),
                    answer: in_few_words(&answer, race),
                    mood: answer.mood,
                    order: order::words(race),
                    // Bounds without length are not printed, so they need no explanation.
                    ends: figures::ends_words(ends.flatten().filter(|ends| ends.low < ends.high)),
                    anchor: anchor(race),
                    first: table::first(race),
                    whole: table::whole(race),
                    ranked: race.measured().next().is_some(),
                    count: figures::counted(
                        race.measured().chain(race.measured_probes()).count(),
                        "configuration",
                        "configurations",
                    ),
                    remark: race.has_parts_apart().then_some(definitions::PARTS_APART),
                    failed: table::failed(race),
                    probes: race.measured_probes().next().map(|_| definitions::PROBES),
                    tails: tails::table(race),
                    charts: charts::for_race(race, section.agreement(race).as_ref())?,
                    noise: table::noise(race),
                })
            })
            .collect();
        let answers: Vec<Answer> = section.races.iter().map(|race| Answer::new(race, section, anchor(race))).collect();
        Ok(Self {
            number,
            heading,
            subject: subject(section),
            cautions: section.cautions(),
            flag_remarks: answer::flag_remarks(&answers),
            answers,
            policy: policy::table(section),
            drafts: drafts::table(section),
            fingerprint,
            sweeps: section.sweeps.iter().map(|sweep| SweepFacts::new(sweep)).collect(),
            trials: section.counted(),
            charts: charts::for_section(section)?,
            races: races?,
            parts: parts::for_section(section, &format!("section-{number}-"))?,
        })
    }
}

/// What to run under a load, how much faster it is, and the number of compared configurations.
fn in_few_words(answer: &Answer, race: &Race) -> String {
    let count = figures::counted(race.measured().count(), "configuration", "configurations");
    if answer.mood == "unknown" {
        return format!("unknown whether speculation pays; {count}");
    }
    let gain = match answer.gain.text.as_str() {
        // No speculation compared with itself, or with nothing, is no gain.
        "±0%" | figures::MISSING => String::new(),
        gain => format!(", {gain}"),
    };
    format!("{}{gain}; {count}", answer.winner)
}

impl SweepFacts {
    fn new(sweep: &Sweep) -> Self {
        Self {
            name: sweep.name.clone(),
            facts: sweep.facts().iter().map(|(label, value)| PagePair::new(label, value)).collect(),
            notices: sweep.notices.clone(),
        }
    }
}

impl PagePair {
    fn new(label: &str, value: &str) -> Self {
        Self { label: label.to_owned(), value: value.to_owned() }
    }
}
