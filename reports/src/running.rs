//! The report of running servers: what each does under the loads asked for, its configuration as
//! far as it is told, what the linter says of it, and for two servers their paired ratios. Nothing
//! is ranked.

mod tables;
mod text;

use std::path::{Path, PathBuf};

use serde::Serialize;
use tuner::{
    files::date,
    running::{
        journal::RunningContents,
        record::{PrefixCacheUse, RunningHeader, RunningServer},
        result::{self, FIGURES, RunningSummary},
    },
    statistics::{Interval, RangeKind},
};

use crate::{
    error::ReportError,
    figures, files, names,
    page::part::{PagePart, PartTable},
    render,
};

pub use self::text::terminal;

/// Content of the page.
#[derive(Serialize)]
struct RunningPage {
    version: &'static str,
    title: String,
    subject: Vec<RunningFact>,
    lead: String,
    warnings: Vec<String>,
    cards: Vec<Card>,
    parts: Vec<PagePart>,
}

#[derive(Serialize)]
struct RunningFact {
    label: String,
    value: String,
}

/// What a server does under a load.
#[derive(Serialize)]
struct Card {
    load: String,
    server: String,
    throughput: String,
    throughput_range: String,
    figures: Vec<CardFigure>,
    remarks: Vec<String>,
}

#[derive(Serialize)]
struct CardFigure {
    label: String,
    value: String,
    range: String,
}

/// The data of the report, for programs.
#[derive(Serialize)]
struct RunningData<'a> {
    format: &'static str,
    version: u32,
    generator: String,
    header: &'a RunningHeader,
    /// Lines of the journal that cannot be read, from one.
    #[serde(skip_serializing_if = "<[usize]>::is_empty")]
    damaged_lines: &'a [usize],
    trials: Vec<DataTrial<'a>>,
}

#[derive(Serialize)]
struct DataTrial<'a> {
    #[serde(flatten)]
    record: &'a tuner::running::record::RunningRecord,
    cache: Option<PrefixCacheUse>,
    excluded: Option<String>,
}

/// Version of the data's format.
const VERSION: u32 = 1;

/// Writes the report of a measurement into a folder and returns the files written, `report.html`
/// first. Each is replaced atomically.
///
/// # Errors
/// When a file cannot be written.
pub fn write(contents: &RunningContents, out_dir: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let page = page(contents);
    let trial = |record| DataTrial {
        record,
        cache: record.figures().map(|figures| figures.cache()),
        excluded: record.exclusion(),
    };
    let data = serde_json::to_string(&RunningData {
        format: "spectune-running",
        version: VERSION,
        generator: concat!("spectune ", env!("CARGO_PKG_VERSION")).to_owned(),
        header: &contents.header,
        damaged_lines: &contents.damaged,
        trials: contents.records.iter().map(trial).collect(),
    })?;
    let outputs: [(&str, Vec<u8>); 4] = [
        ("report.html", render::html(&render::RUNNING, &page, &data)?.into_bytes()),
        ("report.md", render::markdown(&render::RUNNING, &page)?.into_bytes()),
        ("report.json", data.into_bytes()),
        ("trials.csv", text::csv(contents).into_bytes()),
    ];
    // After everything is rendered, so that an error leaves no part of a report.
    files::folder(out_dir)?;
    outputs.into_iter().map(|(name, bytes)| files::write(&out_dir.join(name), &bytes)).collect()
}

fn page(contents: &RunningContents) -> RunningPage {
    let RunningHeader { servers, requested, .. } = &contents.header;
    let summaries = result::summaries(&contents.records);
    let paired = if servers.len() == 2 { result::paired(&contents.records) } else { Vec::new() };
    let mut parts = Vec::new();
    if servers.len() == 2 {
        parts.push(tables::ratios(&paired, servers));
    }
    parts.push(tables::figures(&summaries, servers));
    parts.push(tables::configuration(servers));
    parts.push(tables::findings(servers));
    parts.push(tables::trials(contents));
    let loads: Vec<String> = requested.loads.iter().map(|load| names::heading(*load)).collect();
    let mut subject = Vec::new();
    for (at, server) in servers.iter().enumerate() {
        let label = if servers.len() == 1 { "server".to_owned() } else { format!("server {}", at + 1) };
        subject.push(RunningFact { label, value: format!("{} at {}, {}", server.name(), server.url, server.place()) });
    }
    let models: Vec<String> = servers.iter().map(|server| server.models.join(", ")).collect();
    subject.push(RunningFact { label: "models".into(), value: unique(models).join("; ") });
    subject.push(RunningFact { label: "prompts".into(), value: tables::prompts(&contents.header) });
    subject.push(RunningFact { label: "measured".into(), value: dates(contents) });
    RunningPage {
        version: env!("CARGO_PKG_VERSION"),
        title: title(servers),
        subject,
        lead: lead(servers, &loads),
        warnings: warnings(contents, &summaries),
        cards: summaries.iter().map(|summary| card(summary, servers)).collect(),
        parts,
    }
}

fn title(servers: &[RunningServer]) -> String {
    let names: Vec<String> = servers.iter().map(|server| format!("{} at {}", server.name(), server.url)).collect();
    names.join(" and ")
}

fn lead(servers: &[RunningServer], loads: &[String]) -> String {
    let what = match servers {
        [_] => "This server was measured as it runs",
        _ => "These servers were measured as they run, in turns and with the same prompts",
    };
    format!("{what}, under {}. Nothing was varied and nothing is ranked.", loads.join(", "))
}

/// What must be read first.
fn warnings(contents: &RunningContents, summaries: &[RunningSummary]) -> Vec<String> {
    let mut warnings = Vec::new();
    let RunningHeader { requested, servers, .. } = &contents.header;
    let excluded = contents.records.iter().filter(|record| record.exclusion().is_some()).count();
    if summaries.is_empty() {
        warnings.push("No trial counts: there are no figures.".into());
    }
    if excluded > 0 {
        let count = figures::counted(excluded, "trial is excluded", "trials are excluded");
        warnings.push(format!("{count}; the last table names each with its reason."));
    }
    let planned = requested.repeats * requested.loads.len() * servers.len();
    let counted: usize = summaries.iter().map(|summary| summary.repeats).sum();
    // The warning about excluded trials already says why some are missing.
    if counted < planned && excluded == 0 {
        warnings.push(format!("{counted} of {planned} planned trials are measured."));
    }
    if requested.workload.random.is_some() {
        warnings.push("The prompts are random tokens: accept lengths on them say nothing about text.".into());
    }
    if summaries.iter().any(|one| one.cache == PrefixCacheUse::Warm) {
        warnings.push(
            "Some trials found their prompts in the server's prefix cache. They are shown apart, as warm: their times to \
             first token are those of cached prompts."
                .into(),
        );
    }
    warnings.extend(contents.left_out().map(|words| format!("{words}: what they held is not in the figures.")));
    warnings.extend(result::unpaired(&contents.records, servers).into_iter().map(|one| format!("{}.", one.reason)));
    warnings
}

fn card(summary: &RunningSummary, servers: &[RunningServer]) -> Card {
    let RunningSummary { server, load, cache, repeats, figures, cached, .. } = summary;
    let is_off = servers[*server].speculates == Some(false);
    // The first is the throughput, which the card shows apart.
    let shown = FIGURES.iter().zip(figures).skip(1).map(|(figure, interval)| {
        let unit = if figure.unit.is_empty() { String::new() } else { format!(" {}", figure.unit) };
        let missing = || match figure.name {
            "accept length" if is_off => "none: it does not speculate".to_owned(),
            _ => "not told".to_owned(),
        };
        CardFigure {
            label: figure.name.to_owned(),
            value: interval.map_or_else(missing, |one| format!("{}{unit}", figures::quantity(one.median))),
            // That there is one repeat is said once, below the throughput.
            range: interval
                .filter(|one| one.kind != RangeKind::Single)
                .map_or_else(String::new, |one| range(one, *repeats)),
        }
    });
    let mut remarks = vec![cache_words(*cache, *cached)];
    remarks.extend(remarks_on(summary));
    let throughput = figures[0];
    Card {
        load: match cache {
            PrefixCacheUse::Cold => names::heading(*load),
            PrefixCacheUse::Warm => format!("{}, warm prompts", names::heading(*load)),
        },
        server: if servers.len() == 1 { String::new() } else { short(servers, *server) },
        throughput: throughput.map_or_else(|| figures::MISSING.into(), |one| figures::quantity(one.median)),
        throughput_range: throughput.map_or_else(String::new, |one| range(one, *repeats)),
        figures: shown.collect(),
        remarks,
    }
}

/// What else a reader of the figures has to know.
pub(crate) fn remarks_on(summary: &RunningSummary) -> Vec<String> {
    let mut remarks = Vec::new();
    remarks.extend(summary.held_back.map(|together| {
        format!("at most {together} requests ran together by the server's own count; the others waited")
    }));
    if summary.arrives_at_once {
        remarks.push(
            "the tokens of a request arrived together, so the times of single tokens are not known: a proxy holds streams back \
             (nginx: proxy_buffering off), or the server streams large pieces (--stream-interval)"
                .to_owned(),
        );
    }
    remarks
}

/// The interval of a figure in words.
fn range(one: Interval, repeats: usize) -> String {
    match one.kind {
        RangeKind::Single => figures::interval_name(one, repeats),
        _ => format!("{} {}", figures::interval_name(one, repeats), figures::range(one, figures::quantity)),
    }
}

fn cache_words(cache: PrefixCacheUse, cached: Option<f64>) -> String {
    let what = match cache {
        PrefixCacheUse::Cold => "cold: prompts new to the server",
        PrefixCacheUse::Warm => "warm: prompts that it had seen",
    };
    match cached {
        Some(share) => format!("{what} ({} of the prompt tokens were in its cache)", figures::share(share)),
        None => format!("{what} (cached tokens not told)"),
    }
}

/// A server among several.
fn short(servers: &[RunningServer], at: usize) -> String {
    format!("server {}: {}", at + 1, servers[at].url)
}

fn unique(values: Vec<String>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

fn dates(contents: &RunningContents) -> String {
    let times = || contents.records.iter().map(|record| record.finished_at);
    let trials = figures::counted(contents.records.len(), "trial", "trials");
    match (times().min(), times().max()) {
        (Some(first), Some(last)) if first != last => {
            format!("{} to {} UTC, {trials}", date::utc(first), date::utc(last))
        }
        (Some(first), _) => format!("{} UTC, {trials}", date::utc(first)),
        _ => "no trial yet".into(),
    }
}

/// Settings of a draft, which a server that does not speculate has not.
const OF_A_DRAFT: [&str; 5] = ["draft", "num_steps", "topk", "num_draft_tokens", "num_speculative_tokens"];

/// The value of a setting in words.
pub fn value(server: &RunningServer, name: &str) -> String {
    match server.setting(name) {
        None if server.speculates == Some(false) && OF_A_DRAFT.contains(&name) => "none: it does not speculate".into(),
        None => "not told".into(),
        Some("") => "none".into(),
        Some(value) => value.to_owned(),
    }
}

/// A part without charts.
fn part(anchor: &str, title: &str, how: impl Into<String>, remarks: Vec<String>, tables: Vec<PartTable>) -> PagePart {
    PagePart { anchor: anchor.into(), title: title.into(), how: how.into(), remarks, charts: Vec::new(), tables }
}
