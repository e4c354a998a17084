//! `spectune simulate --export`: the chosen policy for an engine, or SGLang's costs of steps.

use std::fs;

use anyhow::{Context, bail};
use schemas::tree::TreeShape;
use tuner::forecast::{
    exported::{self, dspark::DsparkCosts},
    plan::{Plan, SimulationReport},
};

use super::Arguments;
use crate::{exit::Exit, terminal};

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

/// Checks that the draft which slime's flags name is known, before anything is simulated.
pub fn check_algorithm(plan: &Plan) -> anyhow::Result<()> {
    algorithm(plan).map(|_| ())
}

fn algorithm(plan: &Plan) -> anyhow::Result<&str> {
    plan.drafts.algorithm().context(
        "--export slime names the draft, and accept lengths alone do not: add --speculative-algorithm, such as EAGLE3",
    )
}

/// Prints the chosen policy for an engine, and writes the file that its flags name.
pub fn exported(to: Export, arguments: &Arguments, plan: &Plan, found: &SimulationReport) -> anyhow::Result<()> {
    let chosen = &found.study.policies[found.study.chosen].name;
    let Some(table) = &found.table else {
        let engine = if to == Export::Spectune { "spectune's engine" } else { "SGLang, which slime starts," };
        bail!("the chosen policy, {chosen}, has no table that {engine} could follow; leave it out with --policy");
    };
    if to == Export::Spectune {
        terminal::note(
            "simulated: replace the [[policy]] rows of a tuned file by these, and measure it before you rely on it",
        );
        return terminal::print(&exported::spectune(table));
    }
    let path = arguments.export_file.clone().unwrap_or_else(|| "speculative-tiers.json".into());
    let file = path.display().to_string();
    let flags =
        exported::slime(algorithm(plan)?, table, &file).map_err(|reason| anyhow::anyhow!("{chosen}: {reason}"))?;
    if let Some(text) = &flags.file {
        fs::write(&path, text).with_context(|| format!("cannot write {file}"))?;
        terminal::note(&format!("written: {file}"));
    }
    flags.warnings.iter().for_each(|warning| terminal::note(&format!("warning: {warning}")));
    terminal::note("simulated: measure the chosen policy before you rely on it");
    if flags.flags.is_empty() {
        terminal::note("no speculation is the fastest: leave slime's flags of speculation out");
        return Ok(());
    }
    terminal::print(&format!("SGLANG_ARGS=(\n  {}\n)\n", flags.flags.join("\n  ")))
}

/// Writes SGLang's table of step costs for DSPARK, and prints the flags that name it. `given` are
/// the trees of the command line.
pub fn dspark(arguments: &Arguments, plan: &Plan, given: &[TreeShape]) -> anyhow::Result<Exit> {
    let DsparkCosts { block, context, table } =
        exported::dspark::costs(plan, given).map_err(|reason| anyhow::anyhow!("--export sglang-dspark: {reason}"))?;
    let path = arguments.export_file.clone().unwrap_or_else(|| "dspark-costs.json".into());
    fs::write(&path, table).with_context(|| format!("cannot write {}", path.display()))?;
    terminal::note(&format!("written: {} ({})", path.display(), plan.times.source()));
    terminal::note(&format!(
        "the times are those of a mean context of {context:.0} tokens: SGLang's table has one context. A head without a \
         confidence head verifies all rows, and so does SGLang without SGLANG_RAGGED_VERIFY_MODE"
    ));
    let file = path.display();
    terminal::print(&format!(
        "export SGLANG_RAGGED_VERIFY_MODE=compact\nSGLANG_ARGS=(\n  --speculative-algorithm DSPARK\n  \
         --speculative-dspark-block-size {block}\n  --speculative-dspark-sps-table-path {file}\n)\n"
    ))?;
    Ok(Exit::Fine)
}
