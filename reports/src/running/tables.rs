//! The parts of the page about running servers.

use tuner::running::{
    journal::RunningContents,
    record::{PrefixCacheUse, RunningHeader, RunningServer, SettingSource},
    result::{FIGURES, Paired, RunningFigure, RunningSummary, verdict},
};

use super::{part, short, value};
use crate::{
    definitions, figures, names,
    page::part::{Cell, PagePart, PartTable},
};

/// The second server relative to the first.
pub fn ratios(paired: &[Paired], servers: &[RunningServer]) -> PagePart {
    let rows = paired.iter().flat_map(|pair| {
        let reported = FIGURES.iter().zip(&pair.ratios).filter_map(|(figure, ratio)| Some((figure, (*ratio)?)));
        reported.map(move |(figure, ratio)| {
            vec![
                Cell::text(format!("{}{}", names::heading(pair.load), warmth(pair.cache))),
                Cell::text(figure.name),
                Cell::number(ratio.median, figures::ratio),
                // The ratio of a single pair has no interval.
                Cell::text(match ratio.low < ratio.high {
                    true => figures::range(ratio, figures::ratio),
                    false => figures::MISSING.into(),
                }),
                Cell::text(figures::interval_name(ratio, pair.pairs)),
                Cell::number(pair.pairs as f64, whole),
                Cell::text(verdict(&ratio, figure)),
            ]
        })
    });
    let headings = ["load", "figure", "#ratio", "interval", "kind", "#pairs", "server 2 is"];
    let caption = format!("{} relative to {}", short(servers, 1), short(servers, 0));
    part(
        "ratios",
        "Server 2 relative to server 1",
        "Each repeat sent the same prompts to both servers, one after the other and in turns. A ratio is the median over \
         these pairs; it says something only where its interval is a confidence interval that leaves out 1.",
        servers
            .iter()
            .enumerate()
            .map(|(at, one)| format!("Server {}: {}, {}.", at + 1, one.url, one.place()))
            .collect(),
        vec![PartTable::new(caption, &headings, rows.collect())],
    )
}

/// All figures with their intervals.
pub fn figures(summaries: &[RunningSummary], servers: &[RunningServer]) -> PagePart {
    let mut headings = vec!["load".to_owned()];
    if servers.len() > 1 {
        headings.push("server".into());
    }
    headings.extend(["prompts".to_owned(), "#trials".to_owned()]);
    let unit =
        |figure: &RunningFigure| if figure.unit.is_empty() { String::new() } else { format!(" ({})", figure.unit) };
    headings.extend(FIGURES.iter().map(|figure| format!("#{}{}", figure.name, unit(figure))));
    headings.push("#cached".into());
    let row = |one: &RunningSummary| {
        let mut cells = vec![Cell::text(names::heading(one.load))];
        if servers.len() > 1 {
            cells.push(Cell::text((one.server + 1).to_string()));
        }
        cells.push(Cell::text(if one.cache == PrefixCacheUse::Cold { "cold" } else { "warm" }));
        cells.push(Cell::number(one.repeats as f64, whole));
        cells.extend(one.figures.iter().map(|interval| match interval {
            Some(one) if one.low < one.high => Cell {
                text: format!("{} ({})", figures::quantity(one.median), figures::range(*one, figures::quantity)),
                value: Some(one.median),
            },
            other => Cell::number(other.map(|one| one.median), figures::quantity),
        }));
        cells.push(Cell::number(one.cached, figures::share));
        cells
    };
    let ends = figures::ends_words(summaries.iter().flat_map(|one| one.figures).flatten());
    // The sentences are written for a ranking, which prints bounds below its medians.
    let ends = ends.replace("Below each median", "In brackets after each median");
    let ends = ends.replace("There is one repeat of each configuration", "There is one repeat of each load");
    part(
        "figures",
        "All figures",
        format!(
            "Medians over trials. Throughput: output tokens / seconds from the first request until fewer than its batch are \
             left, or the last token of an open loop (or where less than half of the tokens arrive before). Per request: output tokens per second after the first one, median over requests. Times are medians over the \
             requests of a trial, as the client sees them. {ends}"
        ),
        vec![format!("Accept length: {}.", definitions::ACCEPT_LENGTH)],
        vec![PartTable::new("Figures by load", &headings, summaries.iter().map(row).collect())],
    )
}

/// What is told of the configuration.
pub fn configuration(servers: &[RunningServer]) -> PagePart {
    let several = servers.len() > 1;
    // In the order of the servers' own lists, not of the alphabet.
    let mut names: Vec<&str> = Vec::new();
    for setting in servers.iter().flat_map(|server| &server.settings) {
        if !names.contains(&setting.name.as_str()) {
            names.push(&setting.name);
        }
    }
    let reported = |server: &RunningServer, name: &str| {
        let found = server.settings.iter().find(|one| one.name == name);
        let from = match found.map(|one| one.from) {
            Some(SettingSource::Server) => "the server",
            Some(SettingSource::Metrics) => "its metrics",
            Some(SettingSource::Launch) => "the launch file",
            Some(SettingSource::Unknown) => "not told",
            None => "no such setting",
        };
        let value = if found.is_some() { value(server, name) } else { figures::MISSING.into() };
        [Cell::text(value), Cell::text(from)]
    };
    let row = |name: &&str| {
        std::iter::once(Cell::text(*name)).chain(servers.iter().flat_map(|server| reported(server, name))).collect()
    };
    let mut headings = vec!["setting".to_owned()];
    for at in 1..=servers.len() {
        let number = if several { format!(" of server {at}") } else { String::new() };
        headings.extend([format!("value{number}"), format!("told by{number}")]);
    }
    let remark = |server: &RunningServer| {
        let missing =
            // A server that does not quantise reports no value, as if it did not report the
            // setting.
            server.settings.iter().filter(|one| one.from == SettingSource::Unknown && one.name != "quantization");
        let any = missing.count() > 0 && server.launch.is_none();
        any.then(|| match server.engine.as_str() {
            // vLLM serves its configuration only in this mode.
            "vLLM" => format!(
                "{} does not tell its whole configuration: vLLM does with VLLM_SERVER_DEV_MODE=1, or give its launch by \
                 --launch FILE.",
                server.url
            ),
            _ => format!("What {} does not tell can be given by --launch FILE.", server.url),
        })
    };
    part(
        "configuration",
        "The configuration that runs",
        "What the server tells of itself, after its own defaults and rewrites; where it does not, its metrics or the \
         launch file.",
        servers.iter().filter_map(remark).collect(),
        vec![PartTable::new("Configuration", &headings, names.iter().map(row).collect())],
    )
}

/// What the linter says.
pub fn findings(servers: &[RunningServer]) -> PagePart {
    let rows = servers.iter().enumerate().flat_map(|(at, server)| {
        server.findings.iter().map(move |finding| {
            vec![
                Cell::text((at + 1).to_string()),
                Cell::text(&finding.severity),
                Cell::text(&finding.code),
                Cell::text(&finding.message),
            ]
        })
    });
    let rows: Vec<Vec<Cell>> = rows.collect();
    let remark = |server: &RunningServer| match (&server.unchecked, server.findings.len()) {
        (Some(reason), _) => Some(format!("{}: not checked: {reason}.", server.url)),
        (None, 0) => Some(format!("{}: no findings.", server.url)),
        (None, _) => None,
    };
    let table = PartTable::new("Findings", &["server", "severity", "rule", "what"], rows);
    part(
        "lint",
        "What lint says of it",
        "The rules of `spectune lint`, on the launch that runs; `spectune explain CODE` prints the page of a rule.",
        servers.iter().filter_map(remark).collect(),
        if table.rows.is_empty() { Vec::new() } else { vec![table] },
    )
}

/// Every trial, excluded ones with their reason.
pub fn trials(contents: &RunningContents) -> PagePart {
    let rows = contents.records.iter().map(|record| {
        let figures = record.figures();
        let number =
            |of: fn(&tuner::running::record::RunningFigures) -> f64| Cell::number(figures.map(of), figures::quantity);
        let cached = figures.and_then(|one| one.cached_tokens).map(|tokens| tokens as f64);
        vec![
            Cell::text(names::heading(record.load)),
            Cell::text((record.server + 1).to_string()),
            Cell::number((record.repeat + 1) as f64, whole),
            Cell::text(figures.map_or(figures::MISSING, |one| match one.cache() {
                PrefixCacheUse::Cold => "cold",
                PrefixCacheUse::Warm => "warm",
            })),
            number(|one| one.output_tokens_per_s),
            Cell::number(figures.and_then(|one| one.accept_length), figures::quantity),
            number(|one| one.time_to_first_token_ms.median),
            number(|one| one.time_to_first_token_ms.max),
            Cell::number(cached, whole),
            Cell::text(record.exclusion().unwrap_or_else(|| "no".into())),
        ]
    });
    let headings = [
        "load",
        "server",
        "#repeat",
        "prompts",
        "#throughput (tok/s)",
        "#accept length",
        "#time to first token (ms)",
        "#largest (ms)",
        "#cached tokens",
        "excluded",
    ];
    let table = PartTable::new("Trials in the order in which they ran", &headings, rows.collect());
    part(
        "trials",
        "Every trial",
        "An excluded trial enters no figure above; --resume measures it again.",
        Vec::new(),
        vec![if table.rows.len() > 12 { table.folded() } else { table }],
    )
}

/// Where the prompts come from.
pub fn prompts(header: &RunningHeader) -> String {
    let workload = &header.requested.workload;
    let named = [&workload.prompts, &workload.input_ids, &workload.trace].into_iter().flatten().next();
    let length = figures::count(workload.output_length as u64);
    let from = match (named, &workload.random) {
        // Measured and reported on possibly different systems, hence either separator.
        (Some(path), _) => path.rsplit(['/', '\\']).next().unwrap_or(path).to_owned(),
        (None, Some(random)) => format!("random tokens, {} at most", figures::count(random.input_length as u64)),
        (None, None) => figures::MISSING.into(),
    };
    let different = header
        .prompts
        .map_or_else(String::new, |count| format!(", {} different ones read", figures::count(count as u64)));
    let most = if workload.ignore_eos { "exactly" } else { "at most" };
    let flushed = if header.requested.flush { ", prefix cache flushed before every trial" } else { "" };
    format!("{from}{different}; {} requests per trial, {most} {length} new tokens each{flushed}", workload.requests)
}

fn warmth(cache: PrefixCacheUse) -> &'static str {
    if cache == PrefixCacheUse::Cold { "" } else { ", warm prompts" }
}

fn whole(value: f64) -> String {
    figures::count(value as u64)
}
