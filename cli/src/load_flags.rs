//! Flags of loads, shared by `simulate`, which predicts them, and `bench`, which measures them.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use schemas::sweep::LARGEST;
use tuner::forecast::{
    load::{Load, SendPattern},
    plan::SimulationPlan,
    rollout::{Limited, OutputLengths},
};

/// Largest file of lengths or times, in bytes.
const LARGEST_FILE: u64 = 64 << 20;

/// How long outputs are, and what counts of a rollout.
#[derive(Clone, Debug, clap::Args)]
pub struct LoadFlags {
    /// Rollout of this many prompts × samples, all sent at once
    #[arg(long, value_name = "PROMPTSxSAMPLES")]
    pub rollout: Option<String>,
    /// File of output lengths in tokens, one per line, to draw from
    #[arg(long, value_name = "FILE")]
    lengths: Option<PathBuf>,
    /// Median output length in tokens, if no file gives them
    #[arg(long, value_name = "N", default_value_t = 1000.0, conflicts_with = "lengths")]
    median_len: f64,
    /// Tail of output lengths: standard deviation of their logarithm; 0 for equal lengths
    #[arg(long, value_name = "S", default_value_t = 1.0, conflicts_with = "lengths")]
    tail: f64,
    /// Largest output length in tokens
    #[arg(long, value_name = "N", default_value_t = 16384, conflicts_with = "lengths")]
    max_len: usize,
    /// Percentage of a rollout that must be done
    #[arg(long, value_name = "P", default_value_t = 100.0, requires = "rollout")]
    finish: f64,
    /// Requests that limit their drafts, as percentage:drafts, such as 25:0 for a quarter without
    /// speculation
    #[arg(long, value_name = "P:N")]
    limit_drafts: Option<String>,
    /// Let each request follow its text from the place that has the context of its prompt, so that
    /// acceptance depends on the context as in the trace; default: from a random place
    #[arg(long)]
    pub keep_contexts: bool,
    /// Abort the rest of a rollout then, instead of letting it run on
    #[arg(long, requires = "rollout")]
    abort: bool,
}

impl LoadFlags {
    /// How long outputs are.
    ///
    /// # Errors
    /// When the file cannot be read, one of its lines is not a length, or a number is impossible.
    pub fn lengths(&self) -> anyhow::Result<OutputLengths> {
        if let Some(path) = &self.lengths {
            return SimulationPlan::lengths(&read(path)?)
                .map_err(|reason| anyhow::anyhow!("{}: {reason}", path.display()));
        }
        let (median, sigma) = (self.median_len, self.tail);
        if !(median >= 1.0 && median.is_finite() && sigma >= 0.0 && sigma.is_finite()) {
            bail!("--median-len must be at least 1 and --tail at least 0");
        }
        Ok(OutputLengths::LongTail { median, sigma, most: self.max_len })
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
        let Some(rollout) = &self.rollout else { return Ok(None) };
        let parts =
            rollout.split_once('x').and_then(|(prompts, samples)| Some((prompts.parse().ok()?, samples.parse().ok()?)));
        let (prompts, samples): (usize, usize) = parts
            .filter(|(prompts, samples)| *prompts > 0 && *samples > 0)
            .with_context(|| format!("--rollout {rollout}: expected prompts x samples, such as 64x8"))?;
        if !(self.finish > 0.0 && self.finish <= 100.0) {
            bail!("--finish {}: expected a percentage above 0 and up to 100", self.finish);
        }
        Ok(Some((prompts, samples, SendPattern::AtOnce { share: self.finish / 100.0, abort: self.abort })))
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

/// A load that can run.
///
/// # Errors
/// When it cannot: see [`Load::check`].
pub fn checked(load: Load) -> anyhow::Result<Load> {
    load.check().map_err(|reason| anyhow::anyhow!("the load cannot run: {reason}"))?;
    Ok(load)
}

/// A text file.
///
/// # Errors
/// When it cannot be read, or is larger than lengths and times of any load.
pub fn read(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    // One byte more than allowed tells a larger file from one of the largest size.
    let read = File::open(path).and_then(|file| file.take(LARGEST_FILE + 1).read_to_string(&mut text));
    let bytes = read.with_context(|| format!("cannot read {}", path.display()))?;
    if bytes as u64 > LARGEST_FILE {
        bail!("{} is larger than {LARGEST_FILE} bytes", path.display());
    }
    Ok(text)
}
