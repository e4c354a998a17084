//! `spectune simulate --export`: the chosen policy for an engine, or SGLang's costs of steps.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use schemas::{
    engines::SLIME_PIN,
    export::{Exported, Form},
    tree::TreeShape,
};
use tuner::forecast::{
    exported::{self, SlimeFlags, dspark::DsparkCosts, temperatures::Temperatures},
    plan::{NamedTable, SimulatedRow, SimulationPlan, SimulationReport},
    study::Study,
};

use super::Arguments;
use crate::{commands::export::show, exit::Exit, outputs, terminal};

/// SGLang's file of tiers, by default.
const TIERS: &str = "speculative-tiers.json";
/// SGLang's table of step costs, by default.
const COSTS: &str = "dspark-costs.json";
/// The policy that SGLang has itself, without a table.
const OWN_RULE: &str = "sglang";
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

    /// The engine that follows an exported table.
    fn engine(self) -> &'static str {
        if self == Self::Spectune { "spectune's engine" } else { "SGLang, which slime starts," }
    }

    /// Why a table cannot be exported; `None` if it can.
    fn refusal(self, plan: &SimulationPlan, table: &[SimulatedRow]) -> Option<String> {
        if self == Self::Spectune {
            return None;
        }
        let algorithm = plan.drafts.algorithm().unwrap_or_default();
        exported::slime(algorithm, table, TIERS, &plan.setup).err()
    }
}

/// The policies that can be exported, before anything is simulated.
///
/// # Errors
/// When slime's flags need a draft that is not known, or no policy of the plan can be exported.
pub fn exportable(to: Export, plan: &SimulationPlan) -> anyhow::Result<Vec<NamedTable>> {
    let draft = if to == Export::Slime { algorithm(plan)? } else { "" };
    let (mut refused, mut found) = (None, Vec::new());
    for policy in plan.named_tables()? {
        match to.refusal(plan, &policy.rows) {
            None => found.push(policy),
            Some(reason) => refused = refused.or(Some(format!("{}: {reason}", policy.name))),
        }
    }
    let given = |name: &str| plan.policies.iter().any(|one| one == name);
    // No speculation always takes part, as what others are compared with. The schedule of vLLM is
    // no policy that can be measured, but its table can be followed.
    let is_wanted = |policy: &NamedTable| policy.name != "none" || given("none");
    let own_rule = to == Export::Slime && given(OWN_RULE);
    let has_own_rule = match own_rule.then(|| exported::own_rule(draft, plan.adaptive.start(), None)) {
        Some(Err(reason)) => {
            refused = refused.or(Some(format!("{OWN_RULE}: {reason}")));
            false
        }
        own_rule => own_rule.is_some(),
    };
    if found.iter().any(is_wanted) || given("vllm-schedule") || has_own_rule {
        return Ok(found);
    }
    if let Some(reason) = refused {
        bail!("no policy can be exported: {reason}");
    }
    bail!(
        "--policy {} has no table that {} could follow: name another policy too, such as fixed or batch",
        plan.policies.join(","),
        to.engine()
    )
}

/// The draft that slime's flags name.
fn algorithm(plan: &SimulationPlan) -> anyhow::Result<&str> {
    plan.drafts.algorithm().context(
        "--export slime names the draft, and accept lengths alone do not: add --speculative-algorithm, such as EAGLE3",
    )
}

/// The name and the table of the policy that is exported: the chosen one, or the fastest that can
/// be, which a note says.
fn followed<'a>(
    to: Export,
    plan: &SimulationPlan,
    found: &'a SimulationReport,
    tables: &'a [NamedTable],
) -> anyhow::Result<(&'a str, &'a [SimulatedRow])> {
    let Study { policies, chosen, .. } = &found.study;
    let chosen = &policies[*chosen];
    let why = match found.table.as_deref().map(|table| (table, to.refusal(plan, table))) {
        Some((table, None)) => return Ok((&chosen.name, table)),
        Some((_, Some(reason))) => reason,
        None => format!("it has no table that {} could follow", to.engine()),
    };
    let seconds = |table: &&NamedTable| policies.iter().find(|policy| policy.name == table.name);
    let known = tables.iter().filter_map(|table| Some((seconds(&table)?, table)));
    let Some((other, table)) = known.min_by(|(a, _), (b, _)| a.chosen_on_s.total_cmp(&b.chosen_on_s)) else {
        bail!("the chosen policy, {}, cannot be exported: {why}; leave it out with --policy", chosen.name);
    };
    terminal::note(&format!(
        "the chosen policy, {}, is not exported: {why}. Of those that can be, {} is the fastest, with {:.2} s instead of \
         {:.2} s",
        chosen.name, other.name, other.judged_on_s, chosen.judged_on_s
    ));
    Ok((&table.name, &table.rows))
}

/// Prints the chosen policy for an engine, and writes the file that its flags name. `tables` are
/// those of [`exportable`].
pub fn exported(
    to: Export,
    arguments: &Arguments,
    plan: &SimulationPlan,
    found: &SimulationReport,
    tables: &[NamedTable],
) -> anyhow::Result<()> {
    let Study { policies, chosen, .. } = &found.study;
    if to == Export::Slime && policies[*chosen].name == OWN_RULE {
        let file = arguments.adaptive.file().map(|path| path.display().to_string());
        let flags = exported::own_rule(algorithm(plan)?, plan.adaptive.start(), file.as_deref());
        return slime(arguments, OWN_RULE, &flags.map_err(|reason| anyhow::anyhow!("{OWN_RULE}: {reason}"))?);
    }
    let (name, table) = followed(to, plan, found, tables)?;
    let followed = policies.iter().position(|policy| policy.name == name);
    if let Some(speedup) = followed.and_then(|at| found.study.loss(at)) {
        terminal::note(&format!(
            "warning: {name} is slower than no speculation on the draws on which policies are judged ({speedup:.3}x)"
        ));
    }
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
    let flags = exported::slime(algorithm(plan)?, table, &file, &plan.setup)
        .map_err(|reason| anyhow::anyhow!("{name}: {reason}"))?;
    if let Some(text) = &flags.file {
        outputs::write(path, text, "")?;
    }
    slime(arguments, name, &flags)
}

/// The array of slime's flags. Without a limit SGLang runs 48 requests at most while it speculates,
/// so that of the simulation is written.
fn array(flags: &[String], max_running_requests: usize) -> String {
    format!("SGLANG_ARGS=(\n  {}\n  --sglang-max-running-requests {max_running_requests}\n)", flags.join("\n  "))
}

/// Lints an array of slime's flags for the version of SGLang that slime pins, as `export` does,
/// with a draft if the user has to add one. Images with another version are in use, so flags that
/// it refuses are printed nevertheless.
fn check_flags(array: &str, needs_draft: bool) {
    let draft = if needs_draft { "  --sglang-speculative-draft-model-path $DRAFT\n" } else { "" };
    let text = format!("{}{draft})\n", array.strip_suffix(')').unwrap_or(array));
    let exported = Exported { text, command: None, notes: Vec::new(), general: Vec::new(), version: SLIME_PIN };
    let checked = lint::exported::check(&exported, Form::Slime, None, None);
    show(&checked);
    if checked.has_errors() {
        terminal::note(&format!(
            "SGLang {SLIME_PIN}, which slime pins, would not run these flags: they need a newer one"
        ));
    }
}

/// Prints flags for slime.
fn slime(arguments: &Arguments, name: &str, flags: &SlimeFlags) -> anyhow::Result<()> {
    flags.warnings.iter().for_each(|warning| terminal::note(&format!("warning: {warning}")));
    terminal::note(&format!("simulated: measure the policy {name} before you rely on it"));
    if flags.needs_draft {
        terminal::note(
            "add --sglang-speculative-draft-model-path with the draft's folder: SGLang does not start without",
        );
    }
    if flags.flags.is_empty() {
        terminal::note("no speculation is the fastest: leave slime's flags of speculation out");
        return Ok(());
    }
    let written = array(&flags.flags, arguments.max_running_requests);
    check_flags(&written, flags.needs_draft);
    if arguments.json {
        terminal::lines(&written);
        return Ok(());
    }
    terminal::print(&(written + "\n"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_for_slime_have_the_limit_of_the_simulation() {
        let written = array(&["--sglang-speculative-algorithm EAGLE3".to_owned()], 256);
        assert!(written.contains("\n  --sglang-max-running-requests 256\n"), "{written}");
    }
}
