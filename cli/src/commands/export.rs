//! `spectune export`: a tuned file as flags for another engine.

use std::path::{Path, PathBuf};

use facts::{FoundFacts, HubCache, Sources};
use lint::exported::{Checked, check};
use schemas::paths::folder_of;
use schemas::{
    diagnostic::{Findings, Format, render},
    export::{ExportError, Form, Tuning, export},
    model::ModelFacts,
    quoting::quoted,
    tuned::TunedFile,
    version::EngineVersion,
};

use crate::{exit::Exit, setup, terminal};

const EXAMPLES: &str = "\
Examples:
  spectune export results/demo/tuned.toml --to sglang --batch-size 1
  spectune export tuned.toml --to slime --batch-size 32 >> run.sh
  spectune export tuned.toml --to sglang-adaptive --engine-version 0.5.16 > adaptive.json
  spectune export tuned.toml --to tensorrt-llm > config.yaml

The launch is written to standard output. Standard error says which engine was measured, what was \
filled in or omitted, and repeats the warnings of the tuned file. The launch is linted with what is \
known of the models (their folders, else the local Hugging Face cache): if it has errors, nothing is \
written unless --force is given.";

/// Turn a tuned file into flags for another engine.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The tuned file
    tuned: PathBuf,
    /// What to write: sglang, slime, vllm, sglang-adaptive (the file of
    /// --speculative-adaptive-config) or tensorrt-llm (the speculative part of its --config file)
    #[arg(long, value_name = "ENGINE")]
    to: Form,
    /// Running batch whose row is exported. Default: the whole table, if the engine supports one or
    /// its rows agree
    #[arg(long, value_name = "N")]
    batch_size: Option<usize>,
    /// Mean context of the running requests, in tokens, whose rows are exported if the table has
    /// rows by context, which other engines cannot follow. Default: the shortest
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    context: Option<u64>,
    /// Version of the engine, which decides the spelling of flags and the form of tables. Default:
    /// the measured engine's, else the newest known
    #[arg(long, value_name = "V")]
    engine_version: Option<EngineVersion>,
    /// Write the launch even if the linter finds errors in it
    #[arg(long)]
    force: bool,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let Arguments { tuned: path, to, batch_size, context, engine_version, force } = arguments;
    let tuned = setup::read_exported(&path, context.map(|context| context as usize))?;
    let mut sources = Sources::new(HubCache::from_environment(), None);
    let target = facts_of(&mut sources, &path, &tuned.models.target);
    let draft = facts_of(&mut sources, &path, &tuned.models.draft);
    compare_weights(&path, &tuned);
    let tuning = Tuning::from(&tuned).with_facts(target.as_ref(), draft.as_ref());
    let exported = match export(&tuning, to, batch_size, engine_version) {
        Err(ExportError::RowsDiffer(differ)) => {
            terminal::note(&format!("error: {}", differ.message()));
            let path = path.display().to_string();
            let given = context.map_or_else(String::new, |context| format!(" --context {context}"));
            differ
                .commands(&(quoted(&path).to_string() + &given))
                .iter()
                .for_each(|command| terminal::lines(&format!("  {command}")));
            return Ok(Exit::Usage);
        }
        exported => exported?,
    };
    let checked = check(&exported, to, target.as_ref(), draft.as_ref());
    show(&checked);
    if checked.has_errors() && !force {
        anyhow::bail!(
            "{to} would not run this launch, so it is not written: mend what is found above, or pass --force"
        );
    }
    terminal::print(&exported.text)?;
    exported.general.iter().chain(&exported.notes).for_each(|note| terminal::note(&format!("note: {note}")));
    if let Some(command) = &exported.command {
        terminal::note("start with:");
        terminal::lines(command.trim_end());
    }
    Ok(Exit::Fine)
}

/// Warns about checkpoints that the tuned file was not measured with. Those that are not on this
/// machine are not compared.
#[cfg(feature = "engine")]
fn compare_weights(path: &Path, tuned: &TunedFile) {
    let hash = |name: &str| {
        let folder = folder_of(path).join(name);
        let is_given = !name.is_empty() && folder.is_dir();
        is_given.then(|| engine::checkpoint::Folder::open(&folder).and_then(|folder| folder.hash()).ok()).flatten()
    };
    let (target, draft) = (hash(&tuned.models.target), hash(&tuned.models.draft));
    for difference in tuned.measured.other_files(target.as_deref(), draft.as_deref()) {
        terminal::note(&format!("warning: {}: {difference}", path.display()));
    }
}

/// Without an engine nothing reads weights.
#[cfg(not(feature = "engine"))]
fn compare_weights(_path: &Path, _tuned: &TunedFile) {}

/// Prints what the linter found.
pub(super) fn show(checked: &Checked) {
    if checked.findings.is_empty() {
        return;
    }
    let findings = [Findings { source: &checked.source, diagnostics: &checked.findings }];
    terminal::lines(render(&findings, Format::Full, terminal::stderr_is_coloured()).trim_end());
}

/// What is known of a model of a tuned file: from its folder, which is relative to the file's own,
/// else from the local cache, else the published facts. Notes on what could not be read are
/// printed.
fn facts_of(sources: &mut Sources, tuned: &Path, name: &str) -> Option<ModelFacts> {
    if name.is_empty() {
        return None;
    }
    let folder = folder_of(tuned).join(name);
    let place = if folder.is_dir() { folder.display().to_string() } else { name.to_owned() };
    let FoundFacts { facts, notes } = sources.find_or_published(&place, name);
    notes.iter().for_each(|note| terminal::note(&format!("note: {note}")));
    facts
}
