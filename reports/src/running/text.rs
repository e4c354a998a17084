//! The report of running servers as text: a summary for the terminal, and the trials as CSV.

use std::fmt::Write;

use tuner::{
    running::{
        journal::RunningContents,
        record::{PrefixCacheUse, RunningServer, SettingSource},
        result::{self, FIGURES, verdict},
    },
    trials::record::FullLoop,
};

use super::remarks_on;
use crate::{definitions, figures, names};

/// The answer for the terminal: what each server does under each load.
pub fn terminal(contents: &RunningContents) -> String {
    let servers = &contents.header.servers;
    let mut text = String::new();
    for (at, server) in servers.iter().enumerate() {
        let _ = writeln!(text, "{}{}", numbered(at, servers.len()), about(server));
    }
    text.push('\n');
    let mut rows =
        vec![["load", "server", "prompts", "tok/s", "accept length", "TTFT ms", "ITL ms", "trials"].map(str::to_owned)];
    for one in result::summaries(&contents.records) {
        let figure = |at: usize| {
            one.figures[at].map_or_else(
                || figures::MISSING.to_owned(),
                |interval| match interval.low < interval.high {
                    true => format!(
                        "{} ({})",
                        figures::quantity(interval.median),
                        figures::range(interval, figures::quantity)
                    ),
                    false => figures::quantity(interval.median),
                },
            )
        };
        let cache = if one.cache == PrefixCacheUse::Cold { "cold" } else { "warm" };
        rows.push([
            names::heading(one.load),
            (one.server + 1).to_string(),
            cache.into(),
            figure(0),
            figure(2),
            figure(3),
            figure(4),
            one.repeats.to_string(),
        ]);
    }
    if rows.len() == 1 {
        text.push_str("no trial counts\n");
    } else {
        aligned(&mut text, &rows, servers.len() == 1);
    }
    for one in result::summaries(&contents.records) {
        for remark in remarks_on(&one) {
            let _ = writeln!(text, "{}{}: {remark}", numbered(one.server, servers.len()), names::heading(one.load));
        }
    }
    if servers.len() == 2 {
        text.push('\n');
        for pair in result::paired(&contents.records) {
            let warm = if pair.cache == PrefixCacheUse::Warm { ", warm prompts" } else { "" };
            for (figure, ratio) in
                FIGURES.iter().zip(&pair.ratios).take(5).filter_map(|(figure, one)| Some((figure, (*one)?)))
            {
                let _ = writeln!(
                    text,
                    "{}{warm}: {} of server 2 is {} that of server 1 ({} {}; {})",
                    names::heading(pair.load),
                    figure.name,
                    figures::ratio(ratio.median),
                    figures::interval_name(ratio, pair.pairs),
                    figures::range(ratio, figures::ratio),
                    verdict(&ratio, figure)
                );
            }
        }
    }
    for record in &contents.records {
        if let Some(reason) = record.exclusion() {
            let server = numbered(record.server, servers.len());
            let _ = writeln!(
                text,
                "excluded: {server}{}, repeat {}: {reason}",
                names::heading(record.load),
                record.repeat + 1
            );
        }
    }
    if let Some(words) = contents.left_out() {
        let _ = writeln!(text, "{words}: what they held is not in the figures");
    }
    for one in result::unpaired(&contents.records, servers) {
        let _ = writeln!(text, "not compared: {}", one.reason);
    }
    if rows.len() > 1 {
        let _ = writeln!(text, "\naccept length: {}", definitions::ACCEPT_LENGTH);
    }
    text
}

/// A server in one line, with what is told of its speculation.
fn about(server: &RunningServer) -> String {
    let reported = |name: &str| {
        let found = server.settings.iter().find(|one| one.name == name)?;
        let value = found.value.clone().unwrap_or_else(|| "not told".into());
        let from = if found.from == SettingSource::Launch { " (from the launch file)" } else { "" };
        Some(format!("{name} {value}{from}"))
    };
    let speculation: Vec<String> = match server.speculates {
        Some(false) => vec!["does not speculate".into()],
        _ => ["algorithm", "num_steps", "topk", "num_draft_tokens", "num_speculative_tokens", "draft"]
            .iter()
            .filter_map(|name| reported(name))
            .collect(),
    };
    format!("{} at {} on {}: {}", server.name(), server.url, server.place(), speculation.join(", "))
}

fn numbered(at: usize, servers: usize) -> String {
    if servers == 1 { String::new() } else { format!("server {}: ", at + 1) }
}

/// Rows with aligned columns; without the column of the server if there is only one.
fn aligned(text: &mut String, rows: &[[String; 8]], is_single: bool) {
    let widths: Vec<usize> =
        (0..8).map(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or_default()).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().filter(|(at, _)| !(is_single && *at == 1));
        let line: Vec<String> = cells.map(|(_, (cell, &width))| format!("{cell:width$}")).collect();
        let _ = writeln!(text, "{}", line.join("  ").trim_end());
    }
}

/// Every trial as CSV.
pub fn csv(contents: &RunningContents) -> String {
    let mut text = "url,load,repeat,prompts,excluded,requests,output_tokens,elapsed_s,output_tokens_per_s,tokens_per_s_per_user,accept_length,ttft_ms_median,ttft_ms_max,itl_ms_median,latency_ms_median,prompt_tokens,cached_tokens,repeated_prompts,counted_share\n".to_owned();
    for record in &contents.records {
        let url = contents.header.servers.get(record.server).map_or("", |server| server.url.as_str());
        let mut cells = vec![url.to_owned(), record.load.to_string(), (record.repeat + 1).to_string()];
        let figures = record.figures();
        cells.push(
            figures.map_or("", |one| if one.cache() == PrefixCacheUse::Cold { "cold" } else { "warm" }).to_owned(),
        );
        cells.push(record.exclusion().unwrap_or_default());
        let some = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
        match figures {
            // One for each figure below, so that rows have the same columns.
            None => cells.extend(std::iter::repeat_n(String::new(), 14)),
            Some(one) => cells.extend([
                one.requests.to_string(),
                one.output_tokens.to_string(),
                one.elapsed_s.to_string(),
                one.output_tokens_per_s.to_string(),
                some(one.tokens_per_s_per_user),
                some(one.accept_length),
                one.time_to_first_token_ms.median.to_string(),
                one.time_to_first_token_ms.max.to_string(),
                some(one.inter_token_ms.map(|spread| spread.median)),
                one.latency_ms.median.to_string(),
                one.prompt_tokens.to_string(),
                one.cached_tokens.map(|tokens| tokens.to_string()).unwrap_or_default(),
                one.repeated_prompts.to_string(),
                FullLoop::counted_share(one.full, one.output_tokens).to_string(),
            ]),
        }
        // Quoted as in RFC 4180: reasons contain commas and line breaks.
        let quoted = cells.iter().map(|cell| match cell.contains([',', '"', '\n', '\r']) {
            true => format!("\"{}\"", cell.replace('"', "\"\"")),
            false => cell.clone(),
        });
        text.push_str(&(quoted.collect::<Vec<_>>().join(",") + "\n"));
    }
    text
}
