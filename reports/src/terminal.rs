//! The ranking as plain text with aligned columns.

use std::fmt::Write;

use crate::{
    batch::{Batch, Entry},
    columns::{self, COLUMNS, Column},
    definitions,
    figures::MISSING,
    input::ReportInput,
    page::Answer,
    section::{self, Section},
};

/// Configurations that are listed a batch size, besides those that always are.
const ROWS: usize = 10;

/// Gap between columns.
const GAP: &str = "  ";

/// The ranking of all sweeps for a terminal of `width` columns: as many figures as have room, the important ones first.
pub fn table(input: &ReportInput, width: usize) -> String {
    let sections = section::sections(&input.sweeps);
    let mut text = String::new();
    if sections.is_empty() {
        text.push_str("no trial has finished yet: there is nothing to rank\n");
        return text;
    }
    if sections.len() > 1 {
        let _ = writeln!(
            text,
            "{} fingerprints (device, engine, models or workload differ): each is ranked for itself\n",
            sections.len()
        );
    }
    for (place, section) in sections.iter().enumerate() {
        if place > 0 {
            text.push('\n');
        }
        write_section(&mut text, section, width);
    }
    let _ = writeln!(text, "\naccept length: {}", definitions::ACCEPT_LENGTH);
    text
}

fn write_section(text: &mut String, section: &Section<'_>, width: usize) {
    let print = section.fingerprint;
    let (measured, failed) = section.counts();
    let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
    let _ = writeln!(
        text,
        "{} on {} ({}): {measured} trials measured{failed}",
        one_line(&print.engine),
        one_line(&print.device_name),
        one_line(&print.device)
    );
    for batch in &section.batches {
        let answer = Answer::new(batch, section);
        let _ = writeln!(text, "\nbatch size {}: {}", batch.batch_size, answer.winner);
        let _ = writeln!(text, "{}", answer.verdict);
        write_batch(text, batch, width);
    }
}

fn write_batch(text: &mut String, batch: &Batch, width: usize) {
    let listed: Vec<&Entry> = batch
        .measured()
        .filter(|entry| {
            let candidate = entry.ranked.role == tuner::record::Role::Candidate;
            entry.rank.is_some_and(|rank| rank <= ROWS) || entry.chosen || !candidate
        })
        .collect();
    if !listed.is_empty() {
        let mut shown: Vec<&Column> = COLUMNS.iter().collect();
        let mut lines = lines(&listed, &shown);
        while lines.first().is_some_and(|line| length(line) > width) {
            let Some(place) = (0..shown.len()).rev().max_by_key(|place| shown[*place].expendable) else { break };
            if shown[place].expendable == 0 {
                break;
            }
            shown.remove(place);
            lines = self::lines(&listed, &shown);
        }
        for line in lines {
            let _ = writeln!(text, "{}", line.trim_end());
        }
        let hidden = batch.measured().count() - listed.len();
        if hidden > 0 {
            let _ = writeln!(text, "{hidden} more in the report");
        }
    }
    for entry in batch.entries.iter().filter(|entry| entry.rank.is_none()) {
        let reason = entry.ranked.failure.as_deref().unwrap_or("no repeat was measured");
        let line = format!("failed {}: {}", columns::name(entry), one_line(reason));
        let _ = writeln!(text, "{}", cut(&line, width));
    }
}

/// Head line and rows, padded so that columns stand under each other: names to the left, figures to the right.
fn lines(entries: &[&Entry], shown: &[&Column]) -> Vec<String> {
    let mut head = vec!["#".to_owned(), "steps,topk,tokens".to_owned()];
    head.extend(shown.iter().map(|column| column.short.to_owned()));
    head.push(String::new());
    let mut grid = vec![head];
    for entry in entries {
        let mut row = vec![entry.rank.map_or(MISSING.into(), |rank| rank.to_string()), columns::name(entry)];
        row.extend(shown.iter().map(|column| {
            let range = (column.key == "speedup").then(|| column.range(entry)).flatten();
            column.text(entry) + &range.map_or(String::new(), |range| format!(" ({range})"))
        }));
        row.push(columns::badges(entry).join(", "));
        grid.push(row);
    }
    let width = |column: usize| grid.iter().map(|row| length(&row[column])).max().unwrap_or(0);
    let widths: Vec<usize> = (0..shown.len() + 3).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(place, (cell, width))| {
            let padding = " ".repeat(width - length(cell));
            if place == 1 || place == row.len() - 1 { format!("{cell}{padding}") } else { format!("{padding}{cell}") }
        });
        cells.collect::<Vec<_>>().join(GAP)
    };
    grid.iter().map(line).collect()
}

fn length(text: &str) -> usize {
    text.chars().count()
}

fn one_line(text: &str) -> String {
    // No control character of an error or a name reaches the terminal.
    let words = text.split_whitespace().map(|word| word.chars().filter(|character| !character.is_control()).collect());
    words.collect::<Vec<String>>().join(" ")
}

fn cut(text: &str, width: usize) -> String {
    if length(text) <= width.max(20) {
        return text.to_owned();
    }
    text.chars().take(width.max(20) - 1).chain(['…']).collect()
}
