//! `spectune lint`: what will fail, be rewritten or waste the GPU, before the launch.

mod known;

use std::{fs, path::PathBuf};

use anyhow::Context as _;
use schemas::{
    diagnostic::{Diagnostic, Findings, Format, Severity, fix, render, tidy},
    launch::{self, Engine},
    resolve::{Resolved, resolve, version_of},
    rules::{Context, Selection, lint},
    text::Source,
    version::EngineVersion,
};

use crate::{exit::Exit, setup, terminal};
use known::Known;

/// Rounds of fixing: each fix may make room for another, and this many never are needed.
const ROUNDS_OF_FIXES: usize = 10;

const EXAMPLES: &str = "\
Examples:
  spectune lint run.sh
  spectune lint launch.toml --engine-version 0.5.9 --gpu-memory 143771
  echo 'python3 -m sglang.launch_server --model-path …' | spectune lint -
  spectune lint run.sh --model-path ./target --speculative-draft-model-path ./draft
  spectune lint run.sh --hub
  spectune lint run.sh --fix
  spectune lint run.sh --resolved
  spectune lint scripts/*.sh --format sarif > findings.sarif

Findings of severity info never change the exit code.";

/// Find what will fail, be rewritten or waste the GPU in a launch, before it is launched.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Launch lines, shell scripts or TOML files; - is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Folder of the target, whatever the launch says
    #[arg(long, value_name = "DIR")]
    model_path: Option<PathBuf>,
    /// Folder of the draft, whatever the launch says
    #[arg(long, value_name = "DIR")]
    speculative_draft_model_path: Option<PathBuf>,
    /// Engine that the launches are for, where their text does not tell: sglang, slime, vllm or spectune
    #[arg(long)]
    engine: Option<Engine>,
    /// The engine's version; the newest known (for slime: the one it pins) unless given
    #[arg(long, value_name = "V")]
    engine_version: Option<EngineVersion>,
    /// Ask the Hugging Face hub (HF_ENDPOINT, HF_TOKEN) for config and tensor headers of models that are not on this machine
    #[arg(long)]
    hub: bool,
    /// Memory of one GPU in MiB, as nvidia-smi prints it
    #[arg(long, value_name = "MIB")]
    gpu_memory: Option<u64>,
    /// Requests that are expected to run together
    #[arg(long, value_name = "N")]
    expected_concurrency: Option<usize>,
    /// full, concise, json, sarif or github
    #[arg(long, default_value_t)]
    format: Format,
    /// Rules to look with: codes, their beginnings, or names
    #[arg(long, value_name = "CODES", value_delimiter = ',')]
    select: Vec<String>,
    /// Rules to leave out
    #[arg(long, value_name = "CODES", value_delimiter = ',')]
    ignore: Vec<String>,
    /// Apply the safe fixes to the files (to standard output for standard input)
    #[arg(long)]
    fix: bool,
    /// With --fix: apply also the fixes that change what runs
    #[arg(long, requires = "fix")]
    unsafe_fixes: bool,
    /// Print what the engine will really run, with the reason of every value
    #[arg(long, conflicts_with = "fix")]
    resolved: bool,
}

/// One text with what was found in it.
struct Looked {
    source: Source,
    diagnostics: Vec<Diagnostic>,
    resolved: Vec<Resolved>,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let selection = Selection::new(&arguments.select, &arguments.ignore)?;
    let mut known = Known::new(&arguments)?;
    let mut looked = Vec::new();
    let mut fixed = 0;
    for file in &arguments.files {
        let mut source = setup::read_source(file)?;
        if arguments.fix {
            let text = mend(&source, &arguments, &selection, &mut known, &mut fixed);
            write_back(file, &source, &text)?;
            source = Source::new(source.name(), text);
        }
        looked.push(look(source, &arguments, &selection, &mut known));
    }
    let output =
        if arguments.resolved { resolved(&looked, arguments.format)? } else { findings(&looked, arguments.format) };
    // The fixed text of standard input takes standard output: findings go to the other.
    if arguments.fix && arguments.files.iter().any(|file| file.as_os_str() == "-") {
        terminal::note(output.trim_end());
    } else {
        terminal::print(&output)?;
    }
    if arguments.format == Format::Full {
        terminal::note(&summary(&looked, fixed));
    }
    let fails = looked.iter().flat_map(|one| &one.diagnostics).any(|finding| finding.severity > Severity::Info);
    Ok(if fails { Exit::Findings } else { Exit::Fine })
}

fn look(source: Source, arguments: &Arguments, selection: &Selection, known: &mut Known) -> Looked {
    let options = launch::Options { engine: arguments.engine, version: arguments.engine_version };
    let parsed = launch::parse(&source, &options);
    let mut diagnostics: Vec<Diagnostic> =
        parsed.diagnostics.into_iter().filter(|finding| selection.admits_finding(finding)).collect();
    let mut all = Vec::new();
    for launch in &parsed.launches {
        let (target, draft) = known.of(launch);
        let (version, given) = version_of(launch, arguments.engine_version);
        let resolved = resolve(launch, version, given, target.as_ref(), draft.as_ref(), arguments.gpu_memory);
        let context = Context {
            launch,
            resolved: &resolved,
            target: target.as_ref(),
            draft: draft.as_ref(),
            expected_concurrency: arguments.expected_concurrency,
            gpu_memory: arguments.gpu_memory,
        };
        diagnostics.extend(lint(&context, selection));
        all.push(resolved);
    }
    tidy(&mut diagnostics);
    Looked { source, diagnostics, resolved: all }
}

/// Applies fixes until nothing is left to apply.
fn mend(source: &Source, arguments: &Arguments, selection: &Selection, known: &mut Known, fixed: &mut usize) -> String {
    let mut text = source.text().to_owned();
    for _ in 0..ROUNDS_OF_FIXES {
        let looked = look(Source::new(source.name(), text.clone()), arguments, selection, known);
        let mended = fix::apply(&looked.source, &looked.diagnostics, arguments.unsafe_fixes);
        if mended.applied.is_empty() || mended.text == text {
            break;
        }
        *fixed += mended.applied.len();
        text = mended.text;
    }
    text
}

fn write_back(file: &PathBuf, source: &Source, text: &str) -> anyhow::Result<()> {
    if file.as_os_str() == "-" {
        return terminal::print(text);
    }
    if text == source.text() {
        return Ok(());
    }
    // A new file takes the old one's place, so that a full disk leaves the old one whole.
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".spectune-new");
    let new = file.with_file_name(name);
    let write = || -> std::io::Result<()> {
        fs::write(&new, text)?;
        fs::set_permissions(&new, fs::metadata(file)?.permissions())?;
        fs::rename(&new, file)
    };
    write().with_context(|| format!("cannot write {}", file.display()))
}

fn findings(looked: &[Looked], format: Format) -> String {
    let all: Vec<Findings<'_>> =
        looked.iter().map(|one| Findings { source: &one.source, diagnostics: &one.diagnostics }).collect();
    render(&all, format, format == Format::Full && terminal::stdout_is_coloured())
}

fn resolved(looked: &[Looked], format: Format) -> anyhow::Result<String> {
    let each = looked.iter().flat_map(|one| one.resolved.iter().map(move |resolved| (one, resolved)));
    if format == Format::Json {
        let objects: Vec<serde_json::Value> = each.map(|(one, resolved)| resolved.to_json(&one.source)).collect();
        return Ok(serde_json::to_string_pretty(&objects)? + "\n");
    }
    let tables: Vec<String> =
        each.map(|(one, resolved)| format!("{}: {}", one.source.name(), resolved.table(&one.source))).collect();
    Ok(format!("{}\n{}", tables.join("\n"), findings(looked, format)))
}

fn summary(looked: &[Looked], fixed: usize) -> String {
    let count = |severity| {
        looked.iter().flat_map(|one| &one.diagnostics).filter(|finding| finding.severity == severity).count()
    };
    let counted = |count: usize, word: &str| match count {
        0 => None,
        1 => Some(format!("1 {word}")),
        count => Some(format!("{count} {word}s")),
    };
    let infos = match count(Severity::Info) {
        0 => None,
        count => Some(format!("{count} info")),
    };
    let parts: Vec<String> =
        [counted(count(Severity::Error), "error"), counted(count(Severity::Warning), "warning"), infos]
            .into_iter()
            .flatten()
            .collect();
    let found = if parts.is_empty() { "no findings".to_owned() } else { format!("found {}", parts.join(", ")) };
    match counted(fixed, "fix") {
        Some(_) => format!("{found}; {fixed} fixed"),
        None => found,
    }
}
