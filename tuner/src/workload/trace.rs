//! Traces: requests with arrival times.

use std::{fmt, path::Path, time::Duration};

use rand::rngs::StdRng;
use schemas::sweep;
use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, Unexpected, Visitor},
};

use super::{
    ModelText, Room, check_total,
    entry::{EntryError, WorkloadEntry},
    file,
    prompts::{self, Encoder},
    random::RandomVocabulary,
};
use crate::{TunerError, files::date};

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
    /// Arrival time, in a unit that the other keys tell, or as a date.
    timestamp: Option<Timestamp>,
    /// Arrival time in seconds.
    arrival_s: Option<f64>,
    /// Arrival time in milliseconds.
    arrival_ms: Option<f64>,
    /// Mooncake, and Bailian, whose traces have the chat as well.
    hash_ids: Option<IgnoredAny>,
    /// Bailian.
    chat_id: Option<IgnoredAny>,
    input_length: Option<usize>,
    output_length: Option<usize>,
    /// Whether the recorded request failed.
    #[serde(default)]
    failed: bool,
}

/// The length of an output.
#[derive(Deserialize)]
struct LengthFields {
    /// slime's samples have the other name.
    #[serde(alias = "response_length")]
    output_length: Option<usize>,
    #[serde(default)]
    failed: bool,
}

/// An arrival time under a key that several kinds of traces use.
#[derive(Clone, Copy)]
enum Timestamp {
    Number(f64),
    /// Seconds since the Unix epoch.
    Date(f64),
}

/// Times from here on count from the Unix epoch: in ms, a trace would have begun eleven days ago.
const EPOCH: f64 = 1e9;

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

/// The arrivals of a trace's requests, but for those that failed: seconds after the first one,
/// ascending.
///
/// # Errors
/// When the text is no trace, with the line.
pub fn arrivals(path: &Path, content: &str) -> Result<Vec<f64>, TunerError> {
    let lines = lines(path, content).map_err(|wrong| wrong.in_file(path))?;
    let served: Vec<f64> = lines.iter().filter(|line| !line.failed).map(|line| line.arrival).collect();
    let Some(first) = served.first().copied() else {
        let reason = "it has no request that did not fail".to_owned();
        return Err(TunerError::Malformed { path: path.to_owned(), reason });
    };
    Ok(served.into_iter().map(|at| at - first).collect())
}

/// The output lengths in a table or in JSON, of a trace or of the samples of a rollout.
///
/// # Errors
/// When the text has entries without a length, with the line.
pub fn output_lengths(path: &Path, content: &str) -> Result<Vec<usize>, TunerError> {
    let entries = file::entries(path, content).map_err(|wrong| wrong.in_file(path))?;
    let mut lengths = Vec::new();
    for entry in &entries {
        let fields: LengthFields = entry.read().map_err(|wrong| wrong.in_file(path))?;
        match fields.output_length {
            _ if fields.failed => {}
            Some(length) if length > 0 => lengths.push(length),
            found => {
                let said = found.map_or("no output_length or response_length", |_| "a length of 0");
                return Err(entry.wrong(format!("{said}: expected the tokens of an output")).in_file(path));
            }
        }
    }
    Ok(lengths)
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

/// The time of a line in seconds. A number under `timestamp` has the unit of the kind of trace
/// which the other keys show; it is never guessed.
fn arrival(fields: &TraceFields) -> Result<f64, String> {
    let timestamp = match (fields.timestamp, fields.arrival_s, fields.arrival_ms) {
        (Some(timestamp), None, None) => timestamp,
        (None, Some(seconds), None) => return Ok(seconds),
        (None, None, Some(milliseconds)) => return Ok(milliseconds / 1e3),
        (None, None, None) => {
            return Err("no arrival time: expected timestamp, or arrival_s in seconds, or arrival_ms".into());
        }
        _ => return Err("several of timestamp, arrival_s and arrival_ms are given: remove all but one".into()),
    };
    match (timestamp, &fields.chat_id, &fields.hash_ids) {
        (Timestamp::Date(seconds), ..) => Ok(seconds),
        // Bailian.
        (Timestamp::Number(seconds), Some(_), _) => Ok(seconds),
        // Mooncake.
        (Timestamp::Number(number), None, Some(_)) if number.fract() == 0.0 && number < EPOCH => Ok(number / 1e3),
        (Timestamp::Number(number), ..) => Err(format!(
            "whether the timestamp {number} is in seconds or milliseconds is not known: name the times arrival_s or \
             arrival_ms instead"
        )),
    }
}

fn line(entry: WorkloadEntry<'_>) -> Result<TraceLine<'_>, EntryError> {
    let fields: TraceFields = entry.read()?;
    let arrival = arrival(&fields).map_err(|reason| entry.wrong(reason))?;
    let TraceFields { input_length, output_length, failed, .. } = fields;
    for (name, length) in [("input_length", input_length), ("output_length", output_length)] {
        // A request that failed may not have got a token.
        if length == Some(0) && !failed {
            return Err(entry.wrong(format!("{name} is 0: expected at least 1")));
        }
    }
    Ok(TraceLine { entry, arrival, input_length, output_length, failed })
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TimestampVisitor)
    }
}

struct TimestampVisitor;

impl Visitor<'_> for TimestampVisitor {
    type Value = Timestamp;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("f64")
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Timestamp, E> {
        Ok(Timestamp::Number(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Timestamp, E> {
        Ok(Timestamp::Number(number as f64))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Timestamp, E> {
        Ok(Timestamp::Number(number as f64))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Timestamp, E> {
        let seconds = date::seconds(text).map(Timestamp::Date);
        seconds.ok_or_else(|| E::invalid_type(Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(content: &str) -> Result<Vec<TraceLine<'_>>, EntryError> {
        super::lines(Path::new("t.jsonl"), content)
    }

    /// Checks the lines of a trace: arrival in s, lengths of prompt and output.
    fn check(content: &str, expected: &[(f64, Option<usize>, Option<usize>)]) {
        let found = lines(content).unwrap_or_else(|wrong| panic!("{content}: {wrong:?}"));
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
        // Bailian's are seconds, and dates have a unit.
        check(
            "{\"chat_id\": 1, \"parent_chat_id\": -1, \"timestamp\": 61.114, \"input_length\": 7, \"turn\": 1, \
             \"hash_ids\": [3]}\n{\"timestamp\": \"1970-01-01T00:01:00Z\", \"input_length\": 8}",
            &[(60.0, Some(8), None), (61.114, Some(7), None)],
        );
    }

    #[test]
    fn a_unit_that_the_keys_do_not_show_has_to_be_given() {
        for line in [
            "{\"timestamp\": 5, \"input_length\": 1}",
            "{\"timestamp\": 0.5, \"input_length\": 1, \"hash_ids\": []}",
            "{\"timestamp\": 1700000000, \"input_length\": 1, \"hash_ids\": []}",
        ] {
            let wrong = lines(line).expect_err(line);
            assert!(wrong.reason.contains("name the times arrival_s or arrival_ms instead"), "{}", wrong.reason);
            let named = |key: &str| lines(&line.replace("timestamp", key)).expect(key)[0].arrival;
            assert!((named("arrival_s") / named("arrival_ms") - 1e3).abs() < 1e-6);
        }
    }

    #[test]
    fn requests_come_in_the_order_of_their_times() {
        check(
            "{\"arrival_s\": 2, \"input_length\": 1}\n{\"arrival_s\": 1, \"input_length\": 2}\n\
             {\"arrival_s\": 2, \"input_length\": 3}\n{\"timestamp\": 500, \"input_length\": 4, \"hash_ids\": [1]}",
            &[(0.5, Some(4), None), (1.0, Some(2), None), (2.0, Some(1), None), (2.0, Some(3), None)],
        );
    }

    #[test]
    fn a_bad_line_is_named_with_its_number() {
        for (bad, reason) in [
            ("{\"input_length\": 1}", "no arrival time: expected timestamp, or arrival_s in seconds"),
            ("{\"timestamp\": 1, \"arrival_s\": 1}", "several of timestamp, arrival_s and arrival_ms"),
            ("{\"timestamp\": \"1\"}", "column 17: expected a number, found the text \"1\""),
            ("{\"arrival_s\": 1, \"input_length\": 0}", "input_length is 0"),
            ("{\"arrival_s\": 1, \"output_length\": 0}", "output_length is 0"),
            ("{\"arrival_s\": 1, \"input_length\": -4}", "expected a whole number of at least 0, found -4"),
            ("{\"arrival_s\": 1, \"input_length\": 2.5}", "expected a whole number of at least 0, found 2.5"),
            ("{\"timestamp\": 1e999}", "number out of range"),
            ("{\"timestamp\": 1", "it ends too early"),
            ("timestamp,input_length", "column 2"),
        ] {
            let content = format!("{{\"arrival_s\": 0, \"input_length\": 1}}\n\n{bad}\n");
            let wrong = lines(&content).expect_err(bad);
            assert_eq!(wrong.line, 3, "{bad}");
            assert!(wrong.reason.contains(reason), "{bad}: {}", wrong.reason);
        }
    }

    #[test]
    fn arrivals_and_lengths_are_read_without_prompts() {
        let csv = "Timestamp,Model,Request tokens,Response tokens\n5,m,472,18\n45,m,1,0\n65.5,m,1,230\n";
        let path = Path::new("t.csv");
        assert_eq!(arrivals(path, csv).expect("BurstGPT's"), [0.0, 60.5]);
        assert_eq!(output_lengths(path, csv).expect("BurstGPT's"), [18, 230]);
        let path = Path::new("t.jsonl");
        let mooncake = "{\"timestamp\": 500, \"hash_ids\": [1], \"output_length\": 3}\n{\"timestamp\": 0, \"hash_ids\": [], \"output_length\": 4}";
        assert_eq!(arrivals(path, mooncake).expect("Mooncake's"), [0.0, 0.5]);
        let samples = "{\"response_length\": 7, \"reward\": 1}\n{\"response_length\": 9}";
        assert_eq!(output_lengths(path, samples).expect("slime's"), [7, 9]);
        for wrong in ["{\"tokens\": 7}", "{\"response_length\": 0}"] {
            let found = output_lengths(path, &format!("{samples}\n{wrong}")).expect_err(wrong).to_string();
            assert!(found.contains('3') && found.contains("expected the tokens of an output"), "{found}");
        }
    }

    proptest! {
        #[test]
        fn no_trace_panics(content in "(\\{\"(timestamp|arrival_s|input_length)\": ?[-0-9e.\"]{0,6}[,}\n]{0,3}){0,4}") {
            let _ = super::lines(Path::new("t"), &content);
        }
    }
}
