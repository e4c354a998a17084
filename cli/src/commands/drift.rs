//! `spectune drift`: checks whether acceptance has changed since a head was trained.

use std::path::PathBuf;

use training::drift::{AcceptanceDrift, Baseline, drift};

use super::report::read_record;
use crate::{exit::Exit, terminal};

const EXAMPLES: &str = "\
Examples:
  spectune serve results/demo/tuned.toml --log-requests requests.jsonl
  spectune drift requests.jsonl                         # the log's first third against the rest
  spectune drift requests.jsonl --since results/train   # against the record of the training run

Exits with 0 if acceptance has not moved beyond noise, and with 1 if it has.";

/// Check in a request log whether acceptance has changed since a head was trained.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// A log written by `spectune serve --log-requests`
    log: PathBuf,
    /// Folder of the training run whose head is served (default baseline: the first third of the
    /// log)
    #[arg(long, value_name = "DIR")]
    since: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let record = arguments.since.as_deref().map(read_record).transpose()?;
    let baseline = record.as_ref().map_or(Baseline::Beginning, Baseline::Training);
    let found = drift(&arguments.log, &baseline)?;
    if arguments.json {
        terminal::print(&format!("{}\n", json(&found)))?;
    } else {
        terminal::print(&shown(&found, record.is_some()))?;
    }
    Ok(if found.moved() { Exit::Findings } else { Exit::Fine })
}

fn shown(found: &AcceptanceDrift, of_training: bool) -> String {
    let percent = |ratio: f64| format!("{:+.1}%", (ratio - 1.0) * 100.0);
    let mut text = match found.ratio.high == f64::MAX {
        true => "at least 5 requests are needed for a comparison\n".to_owned(),
        false => format!(
            "{}: accept length {:.3} → {:.3}, {} ({} to {}, {:.0}% interval by requests)\n",
            if found.moved() { "moved beyond noise" } else { "no change beyond noise" },
            found.before.0,
            found.after.0,
            percent(found.ratio.ratio),
            percent(found.ratio.low),
            percent(found.ratio.high),
            found.ratio.coverage * 100.0
        ),
    };
    let baseline = if of_training { "judging prompts of the training run" } else { "first requests of the log" };
    text += &format!("baseline  {} {baseline}; compared with {} requests\n", found.before.1, found.after.1);
    for (reason, count) in &found.left_out {
        text += &format!("skipped   {count} requests: {reason}\n");
    }
    for part in &found.parts {
        text += &format!(
            "{}  {:>6} requests   accept length {:.3}\n",
            tuner::files::date::utc(part.from as u64),
            part.requests,
            part.accept_length
        );
    }
    text + "accept length = output tokens / rounds, bonus tokens included\n"
}

fn json(found: &AcceptanceDrift) -> serde_json::Value {
    let side = |(accept_length, requests): (f64, usize)| serde_json::json!({"accept_length": accept_length, "requests": requests});
    serde_json::json!({
        "moved": found.moved(),
        "before": side(found.before),
        "after": side(found.after),
        "ratio": found.ratio,
        "left_out": found.left_out.iter().map(|(reason, count)| serde_json::json!({"reason": reason, "requests": count})).collect::<Vec<_>>(),
        "parts": found.parts.iter().map(|part| serde_json::json!({
            "from": part.from, "to": part.to, "requests": part.requests, "accept_length": part.accept_length
        })).collect::<Vec<_>>(),
    })
}
