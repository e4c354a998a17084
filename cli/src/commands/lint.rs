//! `spectune lint`: reports before the launch what will fail, be rewritten or waste the GPU.

mod apply_fixes;
mod check;
mod files;
mod model_facts;
mod ours;
mod parallel;
#[cfg(feature = "engine")]
pub mod running_server;
mod server;
mod settings;
mod summary;
mod unchecked;

use std::path::{Path, PathBuf};

use lint::report::render;
use schemas::{
    diagnostic::{Diagnostic, Findings, Format, Safety, Severity, fix, statistics},
    engines::Engine,
    gpu::GpuMemory,
    problems::NOT_CHECKED,
    text::{Source, Span},
    version::EngineVersion,
};

use crate::{exit::Exit, setup, terminal};
use check::{CheckedText, Linter, RunningEngine};
use server::{LintedServer, ServerComparison};

const EXAMPLES: &str = "\
Examples:
  spectune lint run.sh
  spectune lint deploy/
  spectune lint sweep.toml results/demo/tuned.toml
  spectune lint launch.toml --engine-version 0.5.9 --gpu-memory H200
  echo 'python3 -m sglang.launch_server --model-path …' | spectune lint -
  spectune lint run.sh --model-path ./target --speculative-draft-model-path ./draft
  spectune lint run.sh --hub
  spectune lint run.sh --diff
  spectune lint run.sh --fix
  spectune lint run.sh --resolved
  spectune lint run.sh --unchecked
  spectune lint run.sh --url http://127.0.0.1:30000
  spectune lint scripts/*.sh --statistics
  spectune lint scripts/*.sh --format sarif > findings.sarif

To suppress a finding, add a comment: `# spectune: ignore[SD081]` on the line or the line above, \
`# spectune: ignore-file[SD081]` anywhere. \
The table [lint] of a spectune.toml in a file's folder, or in one above it, holds select, ignore, \
engine, engine_version, gpu_memory and expected_concurrency; flags override it, except that --ignore \
adds to it.

Findings of severity info never change the exit code.";

/// Find what will fail, be rewritten or waste the GPU in a launch before it starts.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Launch lines, shell scripts, TOML, YAML, Python, Dockerfiles, systemd units, Markdown with
    /// such blocks, sweep and tuned files; a folder means all such files in it that contain a
    /// launch, except Markdown; - is standard input
    #[arg(required_unless_present = "url", value_name = "FILE|DIR")]
    files: Vec<PathBuf>,
    /// URL of a running SGLang, vLLM or spectune server: compare what it runs with what the
    /// launches resolve to; without files, check the server's own launch
    #[arg(long, value_name = "URL", conflicts_with_all = ["fix", "diff", "statistics"])]
    url: Option<String>,
    /// With --url: environment variable that holds the server's API key
    #[arg(long, value_name = "NAME", requires = "url")]
    api_key_env: Option<String>,
    /// Folder of the target; overrides the launch
    #[arg(long, value_name = "DIR")]
    model_path: Option<PathBuf>,
    /// Folder of the draft; overrides the launch
    #[arg(long, value_name = "DIR")]
    speculative_draft_model_path: Option<PathBuf>,
    /// Engine of launches whose text does not say which: sglang, slime, vllm or spectune
    #[arg(long)]
    engine: Option<Engine>,
    /// Version of the engine (default: the newest known; for slime, the one it pins)
    #[arg(long, value_name = "V")]
    engine_version: Option<EngineVersion>,
    /// Ask the Hugging Face hub (HF_ENDPOINT, HF_TOKEN) for config and tensor headers of models
    /// that are not on this machine
    #[cfg(feature = "hub")]
    #[arg(long)]
    hub: bool,
    /// Memory of one GPU in MiB, as nvidia-smi prints it, or the GPU's name, such as H200
    #[arg(long, value_name = "MIB|GPU")]
    gpu_memory: Option<GpuMemory>,
    /// Requests that are expected to run together
    #[arg(long, value_name = "N")]
    expected_concurrency: Option<usize>,
    /// full, concise, json, sarif or github
    #[arg(long, default_value_t)]
    format: Format,
    /// Rules to run: codes, prefixes of codes, names, or areas
    #[arg(long, value_name = "CODES", value_delimiter = ',')]
    select: Vec<String>,
    /// Rules to skip
    #[arg(long, value_name = "CODES", value_delimiter = ',')]
    ignore: Vec<String>,
    /// Settings file, instead of the spectune.toml nearest to each file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Read no settings file
    #[arg(long, conflicts_with = "config")]
    isolated: bool,
    /// Apply the safe fixes to the files (to standard output for standard input)
    #[arg(long)]
    fix: bool,
    /// Print what --fix would change, and change nothing
    #[arg(long, conflicts_with = "fix")]
    diff: bool,
    /// With --fix or --diff: include fixes that change what runs
    #[arg(long)]
    unsafe_fixes: bool,
    /// Print the number of findings per rule instead of the findings
    #[arg(long)]
    statistics: bool,
    /// Accept files without a launch
    #[arg(long)]
    allow_no_launch: bool,
    /// Exit with 0 even if there are findings
    #[arg(long)]
    exit_zero: bool,
    /// Print the configuration that SGLang will run, with the reason for every value; with json, in
    /// addition to the findings
    #[arg(long, conflicts_with_all = ["fix", "diff", "statistics"])]
    resolved: bool,
    /// Print the rules that could not be checked in each launch, and what each lacks; with json, in
    /// addition to the findings
    #[arg(long, conflicts_with_all = ["fix", "diff", "statistics", "resolved"])]
    unchecked: bool,
}

/// The result for one file.
struct FileResult {
    checked: CheckedText,
    fixes: Option<fix::FixedText>,
    /// Why the fixes could not be written.
    unwritten: Option<anyhow::Error>,
}

/// What could not be done, while the other files were.
#[derive(Default)]
struct LintFailures {
    /// What could not be checked, each with its name and a finding that says why.
    unchecked: Vec<(Source, Vec<Diagnostic>)>,
    /// The number of files whose fixes could not be written.
    unwritten: usize,
}

impl LintFailures {
    fn unchecked(&mut self, path: &Path, error: &anyhow::Error) {
        terminal::print_error(error);
        let why = NOT_CHECKED.at(Span::default(), format!("{error:#}"), "").certain();
        self.unchecked.push((Source::new(path.display().to_string(), ""), vec![why]));
    }

    fn unwritten(&mut self, error: &anyhow::Error) {
        terminal::print_error(error);
        self.unwritten += 1;
    }

    fn are_any(&self) -> bool {
        !self.unchecked.is_empty() || self.unwritten > 0
    }
}

/// Runs the command.
pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    if arguments.unsafe_fixes && !arguments.fix && !arguments.diff {
        anyhow::bail!("--unsafe-fixes needs --fix or --diff: it selects the fixes that they apply or show");
    }
    if arguments.statistics && matches!(arguments.format, Format::Sarif | Format::Github) {
        anyhow::bail!("--statistics supports --format full, concise and json, not {}", arguments.format);
    }
    if arguments.resolved && matches!(arguments.format, Format::Sarif | Format::Github) {
        anyhow::bail!("--resolved supports --format full, concise and json, not {}", arguments.format);
    }
    if arguments.unchecked && matches!(arguments.format, Format::Sarif | Format::Github) {
        anyhow::bail!("--unchecked supports --format full, concise and json, not {}", arguments.format);
    }
    if arguments.url.is_some() && matches!(arguments.format, Format::Sarif | Format::Github) {
        anyhow::bail!("--url supports --format full, concise and json, not {}", arguments.format);
    }
    // Before the files are read: a missing key is a mistake in the command itself.
    let key = setup::api_key(arguments.api_key_env.as_deref())?;
    let running = arguments.url.as_deref().map(|url| LintedServer::ask(url, key)).transpose()?;
    let linter = Linter::new(&arguments, running.as_ref().map(LintedServer::runs).unwrap_or_default())?;
    let (mut all, mut failures) = (Vec::new(), LintFailures::default());
    let mut files = Vec::new();
    arguments.files.iter().for_each(|file| match files::in_path(file) {
        Ok(found) => files.extend(found),
        Err(error) => failures.unchecked(file, &error),
    });
    // In the order of the files, so that the output is the same on every machine.
    for (file, done) in files.iter().zip(parallel::map(&files, |file| one(&linter, &arguments, file))) {
        match done {
            Ok(mut done) => {
                done.unwritten.take().iter().for_each(|error| failures.unwritten(error));
                all.push(done);
            }
            Err(error) => failures.unchecked(&file.path, &error),
        }
    }
    if let Some(running) = running.as_ref().filter(|_| arguments.files.is_empty()) {
        let settings = linter.settings_of(std::path::Path::new("."))?;
        let checked = linter.check(running.source()?, &settings);
        all.push(FileResult { checked, fixes: None, unwritten: None });
    }
    for (folder, error) in files::without_launch(&arguments.files, &all, arguments.allow_no_launch) {
        failures.unchecked(folder, &error);
    }
    if arguments.fix || arguments.diff {
        for done in all.iter().filter(|done| done.checked.has_composed && !done.checked.diagnostics.is_empty()) {
            let name = done.checked.source.name();
            terminal::note(&format!("{name}: launches in Python and in list form in a Dockerfile are not edited"));
        }
    }
    let held = running.as_ref().map(|running| running.held(&all)).unwrap_or_default();
    print(&arguments, &all, &failures, running.as_ref().map(|running| (running, held.as_slice())))?;
    if arguments.format == Format::Full {
        let shown = if arguments.unsafe_fixes { Safety::Unsafe } else { Safety::Safe };
        terminal::note(&summary::summary(&all, &failures, arguments.diff.then_some(shown)));
    }
    let fails = |done: &FileResult| done.checked.diagnostics.iter().any(|finding| finding.severity > Severity::Info);
    let fails = all.iter().any(fails) || held.iter().any(|one| one.differing() > 0);
    Ok(match (failures.are_any(), !arguments.exit_zero && fails) {
        (true, _) => Exit::Usage,
        (false, true) => Exit::Findings,
        (false, false) => Exit::Fine,
    })
}

/// Checks one file, and fixes it if requested.
fn one(linter: &Linter<'_>, arguments: &Arguments, file: &files::File) -> anyhow::Result<FileResult> {
    let files::File { path: file, found } = file;
    let settings = check::CheckSettings { found: *found, ..linter.settings_of(file)? };
    let mut source = setup::read_source(file)?;
    let mut fixes = None;
    if arguments.fix || arguments.diff {
        // A fix may make room for another one, or for a new finding, so texts are checked again.
        let check = |source: &Source| linter.check(source.clone(), &settings).diagnostics;
        let fixed = fix::until_stable(&source, arguments.unsafe_fixes, check);
        if arguments.fix {
            if let Err(error) = apply_fixes::write(&fixed.text, file, &source) {
                let checked = linter.check(source, &settings);
                return Ok(FileResult { checked, fixes: None, unwritten: Some(error) });
            }
            source = Source::new(source.name(), fixed.text.as_str());
        }
        fixes = Some(fixed);
    }
    Ok(FileResult { checked: linter.check(source, &settings), fixes, unwritten: None })
}

fn print(
    arguments: &Arguments,
    all: &[FileResult],
    failures: &LintFailures,
    running: Option<(&LintedServer, &[ServerComparison])>,
) -> anyhow::Result<()> {
    let mut findings: Vec<Findings<'_>> = all.iter().map(|done| done.checked.findings()).collect();
    // Whoever reads the others sees the messages.
    if matches!(arguments.format, Format::Github | Format::Json | Format::Sarif) && !arguments.statistics {
        findings.extend(failures.unchecked.iter().map(|(source, diagnostics)| Findings { source, diagnostics }));
    }
    let changes = |done: &FileResult| Some(apply_fixes::diff(&done.checked.source, &done.fixes.as_ref()?.text));
    let diff = || all.iter().filter_map(changes).collect::<String>();
    let rendered =
        || render(&findings, arguments.format, arguments.format == Format::Full && terminal::stdout_is_coloured());
    let output = match arguments.format {
        Format::Json if arguments.statistics => statistics::json(&findings),
        _ if arguments.statistics => statistics::table(&findings),
        _ if arguments.diff => diff(),
        _ if arguments.resolved => resolved(all, arguments.format, &rendered())?,
        _ if arguments.unchecked => unchecked::with_findings(all, arguments.format, &rendered())?,
        _ => rendered(),
    };
    let output = match running {
        None => output,
        Some((running, held)) if arguments.format == Format::Json => {
            let mut whole = match serde_json::from_str(&output)? {
                serde_json::Value::Object(whole) => whole,
                findings => serde_json::Map::from_iter([("findings".to_owned(), findings)]),
            };
            whole.insert("running".into(), running.to_json(held));
            serde_json::to_string_pretty(&whole)? + "\n"
        }
        Some((running, held)) => format!("{output}{}", running.table(held)),
    };
    // The fixed text of standard input goes to stdout, so findings go to stderr.
    if arguments.fix && arguments.files.iter().any(|file| file.as_os_str() == "-") {
        terminal::lines(output.trim_end());
        return Ok(());
    }
    terminal::print(&output)
}

fn resolved(all: &[FileResult], format: Format, rendered: &str) -> anyhow::Result<String> {
    let each = all.iter().flat_map(|done| done.checked.resolved.iter().map(move |resolved| (&done.checked, resolved)));
    if format == Format::Json {
        let objects: Vec<serde_json::Value> = each.map(|(one, (_, resolved))| resolved.to_json(&one.source)).collect();
        let findings: serde_json::Value = serde_json::from_str(rendered)?;
        let both = serde_json::json!({ "resolved": objects, "findings": findings });
        return Ok(serde_json::to_string_pretty(&both)? + "\n");
    }
    let table = |(one, (way, resolved)): (&CheckedText, &(check::CheckBranch, launch::resolve::Resolved))| {
        format!("{}{}: {}", one.source.name(), way.in_words(), resolved.table(&one.source))
    };
    let tables: Vec<String> = each.map(table).collect();
    Ok(format!("{}\n{rendered}", tables.join("\n")))
}

/// Checks a text with the settings of the folder that it is in, for the engine that runs it.
///
/// # Errors
/// When a settings file of the linter is wrong.
#[cfg(feature = "engine")]
fn check_alone(source: Source, runs: RunningEngine) -> anyhow::Result<CheckedText> {
    let arguments = Arguments::default();
    let linter = Linter::new(&arguments, runs)?;
    let settings = linter.settings_of(std::path::Path::new(source.name()))?;
    Ok(linter.check(source, &settings))
}

/// What the linter finds in a text; `runs` is the version of the engine that runs it.
///
/// # Errors
/// When a settings file of the linter is wrong.
#[cfg(feature = "engine")]
pub fn findings_of(
    source: &Source,
    runs: Option<EngineVersion>,
) -> anyhow::Result<Vec<schemas::diagnostic::Diagnostic>> {
    Ok(check_alone(source.clone(), RunningEngine { kind: None, version: runs })?.diagnostics)
}

/// The unified diff from a text to a changed one.
#[cfg(feature = "engine")]
pub fn difference(source: &Source, changed: &str) -> String {
    apply_fixes::diff(source, changed)
}

/// Writes a changed text to its file, unless that has changed since it was read.
///
/// # Errors
/// When the file cannot be written.
#[cfg(feature = "engine")]
pub fn write_changed(changed: &str, file: &std::path::Path, source: &Source) -> anyhow::Result<()> {
    apply_fixes::write(changed, file, source)
}
