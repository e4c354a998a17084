//! Detects drift: whether acceptance on a request log differs from that at training time.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

use schemas::{request_log::LoggedRequest, training_record::RatioInterval, training_record::TrainingRecord};

use crate::{
    error::TrainingError,
    statistics::{Counted, accept_length, unpaired_ratio},
};

/// Maximum length of a line of a log, in bytes.
const LONGEST_LINE: u64 = 64 << 20;
/// Number of parts into which the requests are divided, in order.
const PARTS: usize = 8;

/// What a log is compared with.
#[derive(Clone, Debug, PartialEq)]
pub enum Baseline<'a> {
    /// The judging prompts of a training run.
    Training(&'a TrainingRecord),
    /// The first part of the log itself.
    Beginning,
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct AcceptanceDrift {
    /// Number of requests that count.
    pub requests: usize,
    /// Numbers of requests that do not count, by reason.
    pub left_out: Vec<(String, usize)>,
    /// Accept length of the baseline, and its number of requests.
    pub before: (f64, usize),
    /// Accept length of the compared requests, and their number.
    pub after: (f64, usize),
    /// Ratio of the accept lengths, after / before.
    pub ratio: RatioInterval,
    /// Parts of the log, ordered by time.
    pub parts: Vec<DriftPart>,
}

/// A part of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct DriftPart {
    /// The time when its first request ended, in seconds since 1970 (UTC).
    pub from: f64,
    /// The time when its last request ended.
    pub to: f64,
    /// Number of requests.
    pub requests: usize,
    /// Output tokens / rounds.
    pub accept_length: f64,
}

impl AcceptanceDrift {
    /// Whether acceptance has changed significantly.
    pub fn moved(&self) -> bool {
        self.ratio.low > 1.0 || self.ratio.high < 1.0
    }
}

/// Reads a log and compares it with a baseline.
///
/// # Errors
/// When the log cannot be read, has another format, or contains no request that counts.
pub fn drift(log: &Path, baseline: &Baseline<'_>) -> Result<AcceptanceDrift, TrainingError> {
    let mut requests = read_log(log)?;
    // The log has requests in the order of their ends.
    requests.sort_by(|a, b| a.time.total_cmp(&b.time));
    // Different heads or trees cannot be compared: only requests count that used the ones of the
    // last request, or the trained ones.
    let wanted = requests
        .iter()
        .rev()
        .find(|request| request.rounds > 0)
        .map(|request| (request.draft.clone(), request.shapes.clone()));
    let Some((last_draft, last_shapes)) = wanted else {
        return Err(TrainingError::malformed(log, "no request in it ran a round: there is nothing to compare"));
    };
    let (drafts, shapes) = match baseline {
        Baseline::Beginning => (vec![last_draft], last_shapes),
        Baseline::Training(record) => {
            let head = record.models.after.clone().or_else(|| record.models.before.clone());
            (vec![head], record.shape.clone())
        }
    };
    let mut left_out: Vec<(String, usize)> = Vec::new();
    let mut leave = |reason: &str| match left_out.iter_mut().find(|(known, _)| known == reason) {
        Some((_, count)) => *count += 1,
        None => left_out.push((reason.to_owned(), 1)),
    };
    let counts = |request: &LoggedRequest| match request {
        request if request.simulated => Err("acceptance was simulated"),
        request if request.rounds == 0 => Err("no round"),
        request if !drafts.contains(&request.draft) => Err("another head"),
        request if request.shapes != shapes => Err("another tree"),
        _ => Ok(()),
    };
    requests.retain(|request| counts(request).map_err(&mut leave).is_ok());
    let counted: Vec<Counted> = requests
        .iter()
        .map(|request| Counted { tokens: request.output_ids.len() as u64, rounds: request.rounds as u64 })
        .collect();
    let (before, after) = match baseline {
        Baseline::Beginning => {
            let (before, after) = counted.split_at(counted.len() / 3);
            (before.to_vec(), after.to_vec())
        }
        Baseline::Training(record) => {
            let of_record = record.baseline.iter().map(|(tokens, rounds)| Counted { tokens: *tokens, rounds: *rounds });
            (of_record.collect(), counted.clone())
        }
    };
    let (Some(length_before), Some(length_after), Some(ratio)) =
        (accept_length(&before), accept_length(&after), unpaired_ratio(&before, &after))
    else {
        let reasons: Vec<String> = left_out.iter().map(|(reason, count)| format!("{count}: {reason}")).collect();
        let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
        return Err(TrainingError::malformed(
            log,
            format!("only {} requests in it can be compared{reasons}: too few", counted.len()),
        ));
    };
    Ok(AcceptanceDrift {
        requests: requests.len(),
        left_out,
        before: (length_before, before.len()),
        after: (length_after, after.len()),
        ratio,
        parts: parts(&requests, &counted),
    })
}

fn parts(requests: &[LoggedRequest], counted: &[Counted]) -> Vec<DriftPart> {
    let size = requests.len().div_ceil(PARTS).max(1);
    let part = |(requests, counted): (&[LoggedRequest], &[Counted])| {
        Some(DriftPart {
            from: requests.first()?.time,
            to: requests.last()?.time,
            requests: requests.len(),
            accept_length: accept_length(counted)?,
        })
    };
    requests.chunks(size).zip(counted.chunks(size)).filter_map(part).collect()
}

/// The requests of a log. An incomplete last line, as left by a server that is still writing, is
/// skipped.
///
/// # Errors
/// When it cannot be read, or contains an invalid line.
pub fn read_log(path: &Path) -> Result<Vec<LoggedRequest>, TrainingError> {
    let mut reader = BufReader::new(File::open(path).map_err(TrainingError::read(path))?);
    let mut requests = Vec::new();
    for number in 1_usize.. {
        let mut line = Vec::new();
        let read = std::io::Read::take(&mut reader, LONGEST_LINE).read_until(b'\n', &mut line);
        if read.map_err(TrainingError::read(path))? == 0 {
            break;
        }
        let whole = line.ends_with(b"\n");
        let text = String::from_utf8_lossy(&line);
        if text.trim().is_empty() {
            continue;
        }
        match LoggedRequest::parse(text.trim_end()) {
            Ok(request) => requests.push(request),
            // The server may still be writing the last line.
            Err(_) if !whole && line.len() < LONGEST_LINE as usize => break,
            Err(reason) => {
                return Err(TrainingError::malformed(
                    path,
                    format!("line {number} is not a line of a `spectune serve --log-requests` log: {reason}"),
                ));
            }
        }
    }
    Ok(requests)
}
