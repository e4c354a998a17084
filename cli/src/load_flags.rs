//! Flags of loads, shared by `simulate`, which predicts them, and `bench`, which measures them.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use schemas::sweep::LARGEST;
use tuner::{
    forecast::{
        load::{Load, SendPattern},
        plan::SimulationPlan,
        rollout::{Limited, OutputLengths},
    },
    workload,
};

/// Largest file of lengths or times, in bytes.
const LARGEST_FILE: u64 = 64 << 20;
/// Median output length, in tokens, if none is given.
const MEDIAN_LENGTH: f64 = 1000.0;
/// Largest output length, in tokens, if none is given.
const LARGEST_LENGTH: usize = 16384;
/// Tail of output lengths, if none is given.
const TAIL: f64 = 1.0;
/// Percentage of a rollout that counts, if none is given.
const ALL: f64 = 100.0;
/// Editors write it at the start of a file.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// How long outputs are, and what counts of a rollout.
#[derive(Clone, Debug, clap::Args)]
pub struct LoadFlags {
    /// Rollout of this many prompts × samples, all sent at once
    #[arg(long, value_name = "PROMPTSxSAMPLES")]
    pub rollout: Option<String>,
    /// File of output lengths in tokens to draw from: one per line, or JSON or CSV with them, such
    /// as a trace
    #[arg(long, value_name = "FILE")]
    lengths: Option<PathBuf>,
    /// Median output length in tokens, if no file gives them; default: 1000, or --max-len if that
    /// is less
    #[arg(long, value_name = "N", conflicts_with = "lengths")]
    median_len: Option<f64>,
    /// Tail of output lengths: standard deviation of their logarithm, 0 for equal lengths; default:
    /// 1
    #[arg(long, value_name = "S", conflicts_with = "lengths")]
    tail: Option<f64>,
    /// Largest output length in tokens; default: 16384
    #[arg(long, value_name = "N", conflicts_with = "lengths")]
    max_len: Option<usize>,
    /// Percentage of a rollout that must be done; default: 100
    #[arg(long, value_name = "P")]
    finish: Option<f64>,
    /// Requests that limit their drafts, as percentage:drafts, such as 25:0 for a quarter without
    /// speculation
    #[arg(long, value_name = "P:N")]
    limit_drafts: Option<String>,
    /// Let each request follow its text from the place that has the context of its prompt, so that
    /// acceptance depends on the context as in the trace; default: from a random place
    #[arg(long)]
    pub keep_contexts: bool,
    /// Abort the rest of a rollout when --finish is reached, instead of letting it run on
    #[arg(long)]
    abort: bool,
}

impl LoadFlags {
    /// How long outputs are.
    ///
    /// # Errors
    /// When the file cannot be read, one of its lines is not a length, or a number is impossible.
    pub fn lengths(&self) -> anyhow::Result<OutputLengths> {
        if let Some(path) = &self.lengths {
            let text = read(path)?;
            return match is_table(&text) {
                true => Ok(OutputLengths::Recorded(workload::recorded_lengths(path, &text)?)),
                false => {
                    SimulationPlan::lengths(&text).map_err(|reason| anyhow::anyhow!("{}: {reason}", path.display()))
                }
            };
        }
        let (sigma, most) = (self.tail.unwrap_or(TAIL), self.max_len.unwrap_or(LARGEST_LENGTH));
        if !(1..=LARGEST).contains(&most) {
            bail!("--max-len {most} is out of range, expected 1 to {LARGEST}");
        }
        let median = self.median_len.unwrap_or(MEDIAN_LENGTH.min(most as f64));
        if !(median >= 1.0 && median.is_finite()) {
            bail!("--median-len {median}: expected a finite number of at least 1");
        }
        if !(sigma >= 0.0 && sigma.is_finite()) {
            bail!("--tail {sigma}: expected a finite number of at least 0");
        }
        if median > most as f64 {
            bail!(
                "--median-len {median} is above --max-len {most}, so most outputs would be cut off: lower --median-len, or \
                 raise --max-len"
            );
        }
        Ok(OutputLengths::LongTail { median, sigma, most })
    }

    /// The file of lengths with its flag, if there is one.
    pub fn lengths_file(&self) -> Option<(&'static str, &Path)> {
        self.lengths.as_deref().map(|path| ("--lengths", path))
    }

    /// The requests that limit their drafts.
    ///
    /// # Errors
    /// When it is not a percentage and a number.
    pub fn limited(&self) -> anyhow::Result<Option<Limited>> {
        let Some(text) = &self.limit_drafts else { return Ok(None) };
        let parts = text.split_once(':').and_then(|(share, most)| Some((share.parse().ok()?, most.parse().ok()?)));
        let (percentage, most_drafts): (f64, usize) =
            parts.filter(|(share, _)| (0.0..=100.0).contains(share)).with_context(|| {
                format!("--limit-drafts {text}: expected a percentage and a number of drafts, such as 25:0")
            })?;
        Ok(Some(Limited { share: percentage / 100.0, most_drafts }))
    }

    /// Prompts, samples and what counts of a rollout, if there is one.
    ///
    /// # Errors
    /// When a number is impossible.
    pub fn rollout(&self) -> anyhow::Result<Option<(usize, usize, SendPattern)>> {
        let Some(rollout) = &self.rollout else {
            refuse_given(
                &[("--finish", self.finish.is_some()), ("--abort", self.abort)],
                "--rollout, of which a share can be enough",
            )?;
            return Ok(None);
        };
        let parts =
            rollout.split_once('x').and_then(|(prompts, samples)| Some((prompts.parse().ok()?, samples.parse().ok()?)));
        let (prompts, samples): (usize, usize) = parts
            .filter(|(prompts, samples)| *prompts > 0 && *samples > 0)
            .with_context(|| format!("--rollout {rollout}: expected prompts x samples, such as 64x8"))?;
        let finish = self.finish.unwrap_or(ALL);
        if !(finish > 0.0 && finish <= ALL) {
            bail!("--finish {finish}: expected a percentage above 0 and up to 100");
        }
        refuse_given(&[("--abort", self.abort && finish >= ALL)], "--finish below 100, or nothing is left to abort")?;
        Ok(Some((prompts, samples, SendPattern::AtOnce { share: finish / ALL, abort: self.abort })))
    }

    /// The flags that say how requests differ, with whether they are given.
    pub fn of_requests(&self) -> [(&'static str, bool); 8] {
        [
            ("--lengths", self.lengths.is_some()),
            ("--median-len", self.median_len.is_some()),
            ("--tail", self.tail.is_some()),
            ("--max-len", self.max_len.is_some()),
            ("--finish", self.finish.is_some()),
            ("--abort", self.abort),
            ("--limit-drafts", self.limit_drafts.is_some()),
            ("--keep-contexts", self.keep_contexts),
        ]
    }
}

/// Checks a number of the command line.
///
/// # Errors
/// When it is 0, or larger than any number that makes sense.
pub fn within(flag: &str, number: usize) -> anyhow::Result<()> {
    if !(1..=LARGEST).contains(&number) {
        bail!("{flag} {number} is out of range, expected 1 to {LARGEST}");
    }
    Ok(())
}

/// Refuses flags that would change nothing. `given` are flags, with whether they are.
///
/// # Errors
/// With the first one that is given, and with what it needs.
pub fn refuse_given(given: &[(&str, bool)], needs: &str) -> anyhow::Result<()> {
    match given.iter().find(|(_, given)| *given) {
        Some((flag, _)) => bail!("{flag} has no effect here, so remove it: it needs {needs}"),
        None => Ok(()),
    }
}

/// A load that can run.
///
/// # Errors
/// When it cannot: see [`Load::check`].
pub fn checked(load: Load) -> anyhow::Result<Load> {
    load.check().map_err(|reason| anyhow::anyhow!("the load cannot run: {reason}"))?;
    Ok(load)
}

/// Whether a text is JSON, or CSV with a header, in place of numbers.
pub fn is_table(text: &str) -> bool {
    let start = text.trim_start();
    let header = start.lines().next().unwrap_or_default();
    let is_name = |word: &str| word.starts_with(|first: char| first.is_ascii_alphabetic()) && word.contains('_');
    start.starts_with(['{', '[', '"']) || header.contains([',', '\t']) || is_name(header.trim())
}

/// A text file, without a byte order mark.
///
/// # Errors
/// When it cannot be read, is not a text, or is larger than lengths and times of any load.
pub fn read(path: &Path) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    // One byte more than allowed tells a larger file from one of the largest size.
    let read = File::open(path).and_then(|file| file.take(LARGEST_FILE + 1).read_to_end(&mut bytes));
    read.with_context(|| format!("cannot read {}", path.display()))?;
    if bytes.len() as u64 > LARGEST_FILE {
        bail!("{} is larger than {LARGEST_FILE} bytes", path.display());
    }
    if let Some(reason) = workload::refusal(path, &bytes) {
        bail!("{}: {reason}", path.display());
    }
    let text = String::from_utf8(bytes).with_context(|| format!("{} is not a text in UTF-8", path.display()))?;
    match text.strip_prefix(BYTE_ORDER_MARK) {
        Some(rest) => Ok(rest.to_owned()),
        None => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags() -> LoadFlags {
        LoadFlags {
            rollout: None,
            lengths: None,
            median_len: Some(30.0),
            tail: None,
            max_len: Some(400),
            finish: None,
            limit_drafts: None,
            keep_contexts: false,
            abort: false,
        }
    }

    #[test]
    fn tables_and_numbers_in_lines_are_distinguished() {
        for text in ["{\"a\": 1}", "[{}]", "Timestamp,Model\n1,m", "arrival_s\n0\n", "TIMESTAMP\tContextTokens\n"] {
            assert!(is_table(text), "{text}");
        }
        for text in ["0\n0.5\n", "1700000000.5 1700000001\n", "soon\n", "NaN", ""] {
            assert!(!is_table(text), "{text}");
        }
    }

    #[test]
    fn lengths_that_no_output_has_are_refused_with_their_flag() {
        flags().lengths().expect("they are possible");
        let equal = LoadFlags { median_len: Some(400.0), tail: Some(0.0), ..flags() };
        equal.lengths().expect("all outputs are as long as allowed");
        let refused = |flags: LoadFlags, words: &str| {
            let found = flags.lengths().expect_err(words).to_string();
            assert!(found.contains(words), "{found}");
        };
        refused(LoadFlags { max_len: Some(0), ..flags() }, "--max-len 0 is out of range, expected 1 to 1048576");
        refused(LoadFlags { median_len: Some(0.0), ..flags() }, "--median-len 0");
        refused(LoadFlags { median_len: Some(401.0), ..flags() }, "--median-len 401 is above --max-len 400");
        let short = LoadFlags { median_len: None, max_len: Some(50), ..flags() };
        short.lengths().expect("the usual median is lowered");
        for tail in [f64::INFINITY, f64::NAN, -1.0] {
            refused(LoadFlags { tail: Some(tail), ..flags() }, "expected a finite number of at least 0");
        }
    }

    #[test]
    fn a_share_is_that_of_a_rollout_and_only_a_rest_is_aborted() {
        let rollout = || LoadFlags { rollout: Some("4x2".into()), ..flags() };
        let sent = |flags: LoadFlags| flags.rollout().map(|found| found.map(|(.., sent)| sent));
        let at_once = |share, abort| Some(SendPattern::AtOnce { share, abort });
        assert_eq!(sent(rollout()).expect("all of it"), at_once(1.0, false));
        let part = || LoadFlags { finish: Some(50.0), abort: true, ..rollout() };
        assert_eq!(sent(part()).expect("a part"), at_once(0.5, true));
        assert_eq!(sent(flags()).expect("no rollout"), None);
        for (wrong, words) in [
            (LoadFlags { rollout: None, abort: false, ..part() }, "--finish has no effect"),
            (LoadFlags { abort: true, ..flags() }, "--abort has no effect here, so remove it: it needs --rollout"),
            (LoadFlags { abort: true, ..rollout() }, "it needs --finish below 100"),
            (LoadFlags { finish: Some(100.0), ..part() }, "it needs --finish below 100"),
        ] {
            let found = sent(wrong).expect_err(words).to_string();
            assert!(found.contains(words), "{found}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_text() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lengths");
        std::fs::write(&path, "\u{feff}5\n").expect("a file");
        assert_eq!(read(&path).expect("it is read"), "5\n");
    }
}
