//! Traces: requests with arrival times.

use std::{path::Path, time::Duration};

use rand::rngs::StdRng;
use schemas::sweep;
use serde::Deserialize;

use super::{
    ModelText, Room, check_total,
    entry::{EntryError, WorkloadEntry},
    file,
    prompts::{self, Encoder},
    random::RandomVocabulary,
};
use crate::TunerError;

/// The requests of a trace that a trial sends.
#[derive(Debug, Default, PartialEq)]
pub struct RequestTrace {
    /// In the order of arrival.
    pub requests: Vec<TracedRequest>,
    /// Number of skipped lines, as in a prompt file.
    pub left_out: usize,
}

/// A request of a trace.
#[derive(Debug, PartialEq)]
pub struct TracedRequest {
    /// Arrival time relative to the first request.
    pub arrival: Duration,
    /// Its prompt.
    pub tokens: Vec<u32>,
    /// Number of new tokens.
    pub output_length: usize,
}

/// A line whose prompt is not parsed yet.
#[derive(Clone, Debug, PartialEq)]
struct TraceLine<'a> {
    entry: WorkloadEntry<'a>,
    /// In seconds, from any origin.
    arrival: f64,
    input_length: Option<usize>,
    output_length: Option<usize>,
    failed: bool,
}

/// The fields of a line other than the prompt.
#[derive(Deserialize)]
struct TraceFields {
    /// Arrival time in ms.
    timestamp: Option<f64>,
    arrival_s: Option<f64>,
    input_length: Option<usize>,
    output_length: Option<usize>,
    /// Whether the recorded request failed.
    #[serde(default)]
    failed: bool,
}

/// Reads the earliest requests, as many as are needed. Lines need not be ordered by time. If only
/// the length of a prompt is given, it consists of random tokens.
pub fn read(
    path: &Path,
    workload: &sweep::Workload,
    numbers: &mut StdRng,
    model: &ModelText,
    room: &Room,
) -> Result<RequestTrace, TunerError> {
    let content = file::read(path)?;
    let vocabulary = RandomVocabulary::from_model(model)?;
    let mut trace = RequestTrace::default();
    let mut first = None;
    let mut total: usize = 0;
    for line in lines(path, &content).map_err(|wrong| wrong.in_file(path))? {
        if trace.requests.len() == room.requests {
            break;
        }
        if line.failed {
            trace.left_out += 1;
            continue;
        }
        let wrong = |reason: String| line.entry.wrong(reason).in_file(path);
        let output_length = line.output_length.unwrap_or(room.output_length);
        let entry = line.entry.read::<prompts::PromptEntry>().map_err(|wrong| wrong.in_file(path))?;
        // A line is one request: only its first prompt has an arrival time.
        let prompt = entry.prompts(workload.turn).map_err(wrong)?.into_iter().next();
        let tokens = match (prompt, line.input_length) {
            (Some(prompt), _) => {
                Encoder::from_workload(workload, model)?.tokens(&prompt).map_err(|error| wrong(error.to_string()))?
            }
            (None, Some(length)) if room.leaves_out(length) => None,
            (None, Some(length)) => {
                room.check_length(length, output_length).map_err(wrong)?;
                Some(vocabulary.prompt(length, numbers))
            }
            (None, None) => {
                return Err(wrong("neither input_length nor a prompt in it (turns, messages, prompt, …)".into()));
            }
        };
        let Some(tokens) = tokens.filter(|tokens| !room.leaves_out(tokens.len())) else {
            trace.left_out += 1;
            continue;
        };
        room.check(&tokens, output_length).map_err(wrong)?;
        total = total.saturating_add(tokens.len());
        check_total(total)?;
        // From the first line that is not skipped, so that a trial starts with a request.
        let since = line.arrival - *first.get_or_insert(line.arrival);
        let arrival = Duration::try_from_secs_f64(since)
            .map_err(|_| wrong("it arrives too long after the first request".into()))?;
        trace.requests.push(TracedRequest { arrival, tokens, output_length });
    }
    Ok(trace)
}

/// Whether a trace has requests of which only the length is known; `false` if it cannot be read.
pub fn has_random_prompts(path: &Path) -> bool {
    let Ok(content) = file::read(path) else { return false };
    let Ok(lines) = lines(path, &content) else { return false };
    let only_length = |line: &TraceLine<'_>| {
        let entry = line.entry.read::<prompts::PromptEntry>().ok().and_then(|entry| entry.prompts(None).ok());
        line.input_length.is_some() && entry.is_some_and(|prompts| prompts.is_empty())
    };
    lines.iter().any(only_length)
}

/// The lines sorted by time; equal times keep the order of the file.
fn lines<'a>(path: &Path, content: &'a str) -> Result<Vec<TraceLine<'a>>, EntryError> {
    let mut lines = file::entries(path, content)?.into_iter().map(line).collect::<Result<Vec<_>, _>>()?;
    lines.sort_by(|a, b| a.arrival.total_cmp(&b.arrival));
    Ok(lines)
}

fn line(entry: WorkloadEntry<'_>) -> Result<TraceLine<'_>, EntryError> {
    let TraceFields { timestamp, arrival_s, input_length, output_length, failed } = entry.read()?;
    let arrival = match (timestamp, arrival_s) {
        (Some(milliseconds), None) => milliseconds / 1e3,
        (None, Some(seconds)) => seconds,
        (Some(_), Some(_)) => return Err(entry.wrong("both timestamp and arrival_s are given: remove one")),
        (None, None) => {
            return Err(entry.wrong("no arrival time: expected timestamp in ms, or arrival_s in seconds"));
        }
    };
    for (name, length) in [("input_length", input_length), ("output_length", output_length)] {
        // A request that failed may not have got a token.
        if length == Some(0) && !failed {
            return Err(entry.wrong(format!("{name} is 0: expected at least 1")));
        }
    }
    Ok(TraceLine { entry, arrival, input_length, output_length, failed })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Checks the lines of a trace: arrival in s, lengths of prompt and output.
    fn check(content: &str, expected: &[(f64, Option<usize>, Option<usize>)]) {
        let found = lines(Path::new("t.jsonl"), content).unwrap_or_else(|wrong| panic!("{content}: {wrong:?}"));
        let found: Vec<_> = found.iter().map(|line| (line.arrival, line.input_length, line.output_length)).collect();
        assert_eq!(found, expected, "{content}");
    }

    #[test]
    fn times_are_in_ms_or_in_seconds() {
        check(
            "{\"timestamp\": 0, \"input_length\": 6955, \"output_length\": 52, \"hash_ids\": [46, 47]}\n\
             {\"timestamp\": 3052, \"input_length\": 10, \"output_length\": 1, \"hash_ids\": []}",
            &[(0.0, Some(6955), Some(52)), (3.052, Some(10), Some(1))],
        );
        check("{\"arrival_s\": 0.25, \"prompt\": \"a\"}", &[(0.25, None, None)]);
    }

    #[test]
    fn requests_come_in_the_order_of_their_times() {
        check(
            "{\"arrival_s\": 2, \"input_length\": 1}\n{\"arrival_s\": 1, \"input_length\": 2}\n\
             {\"arrival_s\": 2, \"input_length\": 3}\n{\"timestamp\": 500, \"input_length\": 4}",
            &[(0.5, Some(4), None), (1.0, Some(2), None), (2.0, Some(1), None), (2.0, Some(3), None)],
        );
    }

    #[test]
    fn a_bad_line_is_named_with_its_number() {
        for (bad, reason) in [
            ("{\"input_length\": 1}", "no arrival time: expected timestamp in ms, or arrival_s"),
            ("{\"timestamp\": 1, \"arrival_s\": 1}", "both timestamp and arrival_s"),
            ("{\"timestamp\": \"1\"}", "column 17: expected a number, found the text \"1\""),
            ("{\"timestamp\": 1, \"input_length\": 0}", "input_length is 0"),
            ("{\"timestamp\": 1, \"output_length\": 0}", "output_length is 0"),
            ("{\"timestamp\": 1, \"input_length\": -4}", "expected a whole number of at least 0, found -4"),
            ("{\"timestamp\": 1, \"input_length\": 2.5}", "expected a whole number of at least 0, found 2.5"),
            ("{\"timestamp\": 1e999}", "number out of range"),
            ("{\"timestamp\": 1", "it ends too early"),
            ("timestamp,input_length", "column 2"),
        ] {
            let content = format!("{{\"timestamp\": 0, \"input_length\": 1}}\n\n{bad}\n");
            let wrong = lines(Path::new("t.jsonl"), &content).expect_err(bad);
            assert_eq!(wrong.line, 3, "{bad}");
            assert!(wrong.reason.contains(reason), "{bad}: {}", wrong.reason);
        }
    }

    proptest! {
        #[test]
        fn no_trace_panics(content in "(\\{\"(timestamp|arrival_s|input_length)\": ?[-0-9e.\"]{0,6}[,}\n]{0,3}){0,4}") {
            let _ = lines(Path::new("t"), &content);
        }
    }
}
