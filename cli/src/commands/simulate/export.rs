//! `spectune simulate --export`: the chosen policy for an engine, or SGLang's costs of steps.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use schemas::tree::TreeShape;
use tuner::forecast::{
    exported::{self, dspark::DsparkCosts, temperatures::Temperatures},
    plan::{SimulationPlan, SimulationReport},
};

use super::Arguments;
use crate::{exit::Exit, outputs, terminal};

/// SGLang's file of tiers, by default.
const TIERS: &str = "speculative-tiers.json";
/// SGLang's table of step costs, by default.
const COSTS: &str = "dspark-costs.json";
/// The temperatures of a confidence head, by default.
pub const TEMPERATURES: &str = "dspark-temperatures.json";

/// What a simulation is exported as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Export {
    /// Flags for slime.
    Slime,
    /// Rows of a tuned file.
    Spectune,
    /// Flags by which SGLang budgets the rows of DSPARK.
    SglangDspark,
}

impl Export {
    /// The file that is written by default; `None` if none is.
    pub fn default_file(self) -> Option<&'static str> {
        match self {
            Self::Slime => Some(TIERS),
            Self::SglangDspark => Some(COSTS),
            Self::Spectune => None,
        }
    }
}

/// Checks that the draft which slime's flags name is known, before anything is simulated.
pub fn check_algorithm(plan: &SimulationPlan) -> anyhow::Result<()> {
    algorithm(plan).map(|_| ())
}

fn algorithm(plan: &SimulationPlan) -> anyhow::Result<&str> {
    plan.drafts.algorithm().context(
        "--export slime names the draft, and accept lengths alone do not: add --speculative-algorithm, such as EAGLE3",
    )
}

/// Prints the chosen policy for an engine, and writes the file that its flags name.
pub fn exported(
    to: Export,
    arguments: &Arguments,
    plan: &SimulationPlan,
    found: &SimulationReport,
) -> anyhow::Result<()> {
    let chosen = &found.study.policies[found.study.chosen].name;
    let Some(table) = &found.table else {
        let engine = if to == Export::Spectune { "spectune's engine" } else { "SGLang, which slime starts," };
        bail!("the chosen policy, {chosen}, has no table that {engine} could follow; leave it out with --policy");
    };
    if to == Export::Spectune {
        terminal::note(
            "simulated: replace the [[policy]] rows of a tuned file by these, and measure it before you rely on it",
        );
        let rows = exported::spectune(table);
        return match &arguments.export_file {
            Some(path) => outputs::write(path, &rows, ""),
            None => terminal::print(&rows),
        };
    }
    let path = arguments.export_file.as_deref().unwrap_or(Path::new(TIERS));
    let file = path.display().to_string();
    let flags =
        exported::slime(algorithm(plan)?, table, &file).map_err(|reason| anyhow::anyhow!("{chosen}: {reason}"))?;
    if let Some(text) = &flags.file {
        outputs::write(path, text, "")?;
    }
    flags.warnings.iter().for_each(|warning| terminal::note(&format!("warning: {warning}")));
    terminal::note("simulated: measure the chosen policy before you rely on it");
    if flags.flags.is_empty() {
        terminal::note("no speculation is the fastest: leave slime's flags of speculation out");
        return Ok(());
    }
    let flags = format!("SGLANG_ARGS=(\n  {}\n)", flags.flags.join("\n  "));
    if arguments.json {
        terminal::lines(&flags);
        return Ok(());
    }
    terminal::print(&(flags + "\n"))
}

/// Writes SGLang's table of step costs for DSPARK, and the temperatures of its confidences if the
/// trace has any, and prints the flags that name them. `given` are the trees of the command line.
pub fn dspark(arguments: &Arguments, plan: &SimulationPlan, given: &[TreeShape]) -> anyhow::Result<Exit> {
    let DsparkCosts { block, context, table } =
        exported::dspark::costs(plan, given).map_err(|reason| anyhow::anyhow!("--export sglang-dspark: {reason}"))?;
    let path = arguments.export_file.as_deref().unwrap_or(Path::new(COSTS));
    outputs::write(path, &table, &format!(" ({})", plan.times.source()))?;
    terminal::note(&format!(
        "the times are those of a mean context of {context:.0} tokens: SGLang's table has one context. A head without a \
         confidence head verifies all rows, and so does SGLang without SGLANG_RAGGED_VERIFY_MODE"
    ));
    let mut flags = vec![
        "--speculative-algorithm DSPARK".to_owned(),
        format!("--speculative-dspark-block-size {block}"),
        format!("--speculative-dspark-sps-table-path {}", path.display()),
    ];
    if let Some(path) = temperatures(arguments, plan, TreeShape::chain(block))? {
        flags.push(format!("--speculative-dspark-confidence-sts-path {}", path.display()));
    }
    let flags = flags.join("\n  ");
    terminal::print(&format!("export SGLANG_RAGGED_VERIFY_MODE=compact\nSGLANG_ARGS=(\n  {flags}\n)\n"))?;
    Ok(Exit::Fine)
}

/// Fits and writes the temperatures of a confidence head. Returns the file; `None` if the trace has
/// no confidences, or temperatures do not improve them.
fn temperatures(arguments: &Arguments, plan: &SimulationPlan, chain: TreeShape) -> anyhow::Result<Option<PathBuf>> {
    let (Some(trace), given) = (&arguments.trace, &arguments.temperatures_file) else { return Ok(None) };
    let found = match (Temperatures::fit(&plan.drafts, chain), given) {
        (Ok(found), _) => found,
        // By default the file is written only if it can be; one that was named must not be missing.
        (Err(reason), Some(_)) => bail!("--temperatures-file: {reason}"),
        (Err(reason), None) => {
            terminal::note(&format!("no temperatures for the confidence head: {reason}"));
            return Ok(None);
        }
    };
    let mut table = format!(
        "temperatures fitted to {} positions, calibration error on {} positions of other texts:\ndraft  temperature  before   \
         after\n",
        found.fitted, found.judged
    );
    for (at, temperature) in found.temperatures.iter().enumerate() {
        let (draft, before, after) = (at + 1, found.before[at], found.after[at]);
        table += &format!("{draft:>5}  {temperature:>11.3}  {before:>6.4}  {after:>6.4}\n");
    }
    terminal::lines(table.trim_end());
    if !found.improves() {
        terminal::note("the head is calibrated better without temperatures: no file is written");
        return Ok(None);
    }
    let path = given.clone().unwrap_or_else(|| TEMPERATURES.into());
    let dataset = trace.display().to_string();
    outputs::write(&path, &found.file(&dataset), "")?;
    Ok(Some(path))
}
