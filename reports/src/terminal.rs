//! The ranking as plain text with aligned columns.

use std::fmt::Write;

use crate::{
    columns::{self, Column},
    contexts::{self, BatchContexts},
    definitions, failures,
    figures::{self, MISSING},
    input::ReportInput,
    names, order,
    page::{Answer, drafts, versus},
    race::{Race, RaceEntry},
    section::{self, Section},
};

/// Maximum number of configurations per load, in addition to the ones that are always listed.
const ROWS: usize = 10;

/// Maximum number of a server's last lines that are printed for a failure.
const FAILURE_LINES: usize = 6;

/// Gap between columns.
const GAP: &str = "  ";

/// The ranking of all sweeps for a terminal of `width` columns: as many figures as fit, the most
/// important first.
pub fn table(input: &ReportInput, width: usize) -> String {
    let sections = section::sections(&input.sweeps);
    let mut text = String::new();
    if sections.is_empty() {
        text.push_str("no trial has finished yet: there is nothing to rank\n");
        return text;
    }
    if let Some(comparison) = drafts::comparison(input, &sections) {
        let [first, second] = comparison.names;
        let _ = writeln!(text, "{} against {}", one_line(second), one_line(first));
        for (what, before, after) in &comparison.differing {
            let _ = writeln!(text, "{}", cut(&one_line(&format!("{what}: {before} → {after}")), width));
        }
        for summary in comparison.summaries() {
            write_wrapped(&mut text, &versus::summary(&summary), width);
        }
        text.push('\n');
    }
    if sections.len() > 1 {
        let words = format!(
            "{} fingerprints (device, engine, models or workload differ): each is ranked separately\n",
            sections.len()
        );
        write_wrapped(&mut text, &words, width);
    }
    let labels = section::labels(&sections);
    for (place, (section, label)) in sections.iter().zip(&labels).enumerate() {
        if place > 0 {
            text.push('\n');
        }
        if sections.len() > 1 {
            write_wrapped(&mut text, &format!("section {}: {}", place + 1, one_line(label)), width);
        }
        write_section(&mut text, section, width);
    }
    text.push('\n');
    drafts::lines_across(&sections).iter().for_each(|line| write_wrapped(&mut text, &one_line(line), width));
    write_wrapped(&mut text, &format!("tok/s: {}", definitions::throughput(section::loads(&sections))), width);
    write_wrapped(&mut text, &format!("accept length: {}", definitions::ACCEPT_LENGTH), width);
    text
}

/// Which draft for which workload, for a terminal of `width` columns; empty if there is no such
/// choice.
pub fn across_workloads(input: &ReportInput, width: usize) -> String {
    let mut text = String::new();
    let lines = drafts::lines_across(&section::sections(&input.sweeps));
    lines.iter().for_each(|line| write_wrapped(&mut text, &one_line(line), width));
    text
}

fn write_section(text: &mut String, section: &Section<'_>, width: usize) {
    let print = section.fingerprint;
    write_wrapped(text, &one_line(&section.models()), width);
    let words = format!(
        "{} on {}, {}: {}, {}",
        section.engine(),
        section.machine(),
        print.device,
        section.dates(),
        section.counted(),
    );
    write_wrapped(text, &one_line(&words), width);
    for caution in section.cautions() {
        write_wrapped(text, &format!("note: {}", one_line(&caution)), width);
    }
    for race in &section.races {
        let answer = Answer::new(race, section, String::new());
        text.push('\n');
        write_wrapped(text, &format!("{}: {}", race.load, one_line(&answer.winner)), width);
        write_wrapped(text, &one_line(&answer.verdict), width);
        answer.disturbance.iter().for_each(|words| write_wrapped(text, &one_line(words), width));
        if race.measured().next().is_some() {
            write_wrapped(text, &order::words(race), width);
        }
        write_race(text, race, width);
        drafts::line(race).iter().for_each(|line| write_wrapped(text, &one_line(line), width));
    }
    let by_context: Vec<String> = contexts::compute(section).iter().filter_map(BatchContexts::sentence).collect();
    if !by_context.is_empty() {
        text.push('\n');
        by_context.iter().for_each(|line| write_wrapped(text, &one_line(line), width));
    }
}

fn write_race(text: &mut String, race: &Race, width: usize) {
    let listed: Vec<&RaceEntry> = race
        .measured()
        .filter(|entry| {
            let candidate = entry.ranked.role == tuner::trials::record::CandidateRole::Candidate;
            entry.rank.is_some_and(|rank| rank <= ROWS) || entry.chosen || !candidate
        })
        .collect();
    if !listed.is_empty() {
        let mut shown: Vec<&Column> = columns::for_race(race);
        let mut lines = lines(&listed, &shown);
        // Columns are removed one at a time, since each removal also changes the widths of the
        // others.
        while lines.first().is_some_and(|line| length(line) > width) {
            // The figure that the ranking is about stays.
            let expendable =
                |place: usize| if shown[place].is_ranked_by(race.metric) { 0 } else { shown[place].expendable };
            let Some(place) = (0..shown.len()).rev().max_by_key(|place| expendable(*place)) else { break };
            if expendable(place) == 0 {
                break;
            }
            shown.remove(place);
            lines = self::lines(&listed, &shown);
        }
        let (head, rows) = lines.split_first().map_or((None, &[][..]), |(head, rows)| (Some(head), rows));
        head.into_iter().for_each(|head| text.push_str(&format!("{}\n", head.trim_end())));
        for (line, entry) in rows.iter().zip(&listed) {
            let _ = writeln!(text, "{}", cut(line.trim_end(), width));
            // On a line of its own: other options would widen every row of the table.
            let rest = names::rest(&entry.ranked.configuration);
            if !rest.is_empty() {
                let _ = writeln!(text, "{}", cut(&format!("     {}", one_line(&rest)), width));
            }
        }
        let parts = |column: &&Column| ["draft_ms", "verify_ms", "extend_ms"].contains(&column.key);
        if race.has_parts_apart() && shown.iter().any(parts) {
            write_wrapped(text, definitions::PARTS_APART, width);
        }
        let hidden = race.measured().count() - listed.len();
        if hidden > 0 {
            let _ = writeln!(text, "{hidden} more in the report");
        }
    }
    for entry in race.measured_probes() {
        let rate = entry.ranked.output_tokens_per_s.map_or(MISSING.into(), |rate| figures::quantity(rate.median));
        let line = format!("probe {}: {rate} tok/s, measured to learn costs, not ranked", columns::name(entry));
        write_wrapped(text, &one_line(&line), width);
    }
    for failures in failures::in_race(race) {
        let line = format!("failed {}: {}", failures.what.join(", "), failures.summary());
        write_wrapped(text, &one_line(&line), width);
        let lines: Vec<&str> = failures.lines().collect();
        // The last lines name the cause; those before are mostly what the engine prints at every
        // start.
        for line in &lines[lines.len().saturating_sub(FAILURE_LINES)..] {
            let _ = writeln!(text, "{}", cut(&format!("     {}", one_line(line)), width));
        }
    }
}

/// Heading and rows, padded into columns: names left-aligned, figures right-aligned.
fn lines(entries: &[&RaceEntry], shown: &[&Column]) -> Vec<String> {
    let mut head = vec!["#".to_owned(), "steps,topk,tokens".to_owned()];
    head.extend(shown.iter().map(|column| column.short.to_owned()));
    head.push(String::new());
    let mut grid = vec![head];
    for entry in entries {
        let mut row = vec![entry.rank.map_or(MISSING.into(), |rank| rank.to_string()), name(entry)];
        row.extend(shown.iter().map(|column| {
            let range = (column.key == "speedup").then(|| column.range(entry)).flatten();
            column.text(entry) + &range.map_or(String::new(), |range| format!(" ({range})"))
        }));
        row.push(columns::badges(entry).join(", ").replace("engine's default", "default"));
        grid.push(row);
    }
    let width = |column: usize| grid.iter().map(|row| length(&row[column])).max().unwrap_or(0);
    let widths: Vec<usize> = (0..shown.len() + 3).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(place, (cell, width))| {
            // Names and remarks are texts, aligned to the left; all others are figures.
            let padding = " ".repeat(width - length(cell));
            if place == 1 || place == row.len() - 1 { format!("{cell}{padding}") } else { format!("{padding}{cell}") }
        });
        cells.collect::<Vec<_>>().join(GAP)
    };
    grid.iter().map(line).collect()
}

/// A name that fits the column: differing settings are printed below it.
fn name(entry: &RaceEntry) -> String {
    if entry.is_off() && entry.ranked.configuration.is_plain() {
        "no speculation".into()
    } else {
        names::short(&entry.ranked.configuration)
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// Appends words, wrapped at `width` between words.
fn write_wrapped(text: &mut String, words: &str, width: usize) {
    let mut used = 0;
    for word in words.split(' ') {
        if used > 0 && used + 1 + length(word) > width {
            text.push('\n');
            used = 0;
        }
        if used > 0 {
            text.push(' ');
            used += 1;
        }
        text.push_str(word);
        used += length(word);
    }
    text.push('\n');
}

fn one_line(text: &str) -> String {
    // Removes control characters, so that no error or name can send them to the terminal.
    let words = text.split_whitespace().map(|word| word.chars().filter(|character| !character.is_control()).collect());
    words.collect::<Vec<String>>().join(" ")
}

fn cut(text: &str, width: usize) -> String {
    if length(text) <= width.max(20) {
        return text.to_owned();
    }
    text.chars().take(width.max(20) - 1).chain(['…']).collect()
}
