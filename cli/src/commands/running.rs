//! Measures running servers as they are: the common part of `tune --url` and of a sweep file with
//! `[system] url`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use indicatif::ProgressBar;
use schemas::{sweep::SweepModels, text::Source};
use tuner::{
    running::{
        self, Connected, DescribedFile, RunningEnd, RunningMeasurement, RunningProgress,
        journal::RunningContents,
        record::{RunningOutcome, RunningRecord, RunningServer, RunningSettings},
    },
    trials::configuration::TrialLoad,
};

use super::lint::running_server;
use crate::{
    checkpoint,
    exit::{self, Exit},
    interrupt, progress, results_folder, setup, terminal,
};

/// Time for running requests to be given up, and for the report to be written, after an interrupt.
const LONGEST_GIVING_UP: Duration = Duration::from_secs(10);

/// What is measured, and where results go.
pub struct RunningInputs {
    /// One or two URLs.
    pub urls: Vec<String>,
    /// Environment variable with the API key.
    pub api_key_env: Option<String>,
    /// The launch file of the servers.
    pub launch: Option<PathBuf>,
    /// Folder of the checkpoint with the tokenizer; `None` to use the one that the server names.
    pub model: Option<PathBuf>,
    /// The models of a sweep file, which the server should serve.
    pub models: Option<SweepModels>,
    /// The settings; their URLs are filled in.
    pub requested: RunningSettings,
    /// Folder of the results.
    pub out: PathBuf,
    /// Whether to continue.
    pub resume: bool,
    /// Whether to say what would be measured, and measure nothing.
    pub dry_run: bool,
}

/// Measures servers and writes the report. `again` is the command that continues, without the
/// program.
///
/// # Errors
/// When a server cannot be used, or nothing could be measured.
pub fn measure(inputs: &RunningInputs, again: &str) -> anyhow::Result<Exit> {
    if !inputs.resume && tuner::trials::journal::exists(&inputs.out) {
        return Err(tuner::trials::journal::already_there(&inputs.out).into());
    }
    results_folder::check_for_sweep(&inputs.out, inputs.resume)?;
    // A server compared with itself would give a ratio of 1 that looks like a result.
    if let [first, second] = inputs.urls.as_slice()
        && running::is_same_server(first, second)
    {
        bail!("{first} and {second} are one server: give two different ones");
    }
    let key = setup::api_key(inputs.api_key_env.as_deref())?;
    let launch = inputs.launch.as_deref().map(setup::read_source).transpose()?;
    let file = launch.as_ref().map(|source| DescribedFile { name: source.name(), text: source.text() });
    let mut servers = Vec::new();
    for url in &inputs.urls {
        let mut connected = running::connect(url, key.clone(), file.as_ref())?;
        describe(&mut connected, launch.as_ref())?;
        servers.push(connected);
    }
    if let Some(models) = &inputs.models {
        servers.iter().try_for_each(|one| same_model(models, &one.server))?;
        servers.iter().filter_map(|one| without_draft(models, &one.server)).for_each(|note| terminal::note(&note));
    }
    let urls = servers.iter().map(|one| one.server.url.clone()).collect();
    let requested = RunningSettings { urls, ..inputs.requested.clone() };
    if inputs.dry_run {
        terminal::print(&plan(&requested))?;
        return Ok(Exit::Fine);
    }
    let go_on = || interrupt::go_on(again);
    let request = RunningMeasurement {
        model: match &inputs.model {
            Some(model) => model.clone(),
            None => tokenizer_of(&servers[0].server)?,
        },
        requested,
        out: inputs.out.clone(),
        resume: inputs.resume,
        interrupted: interrupt::polled(),
    };
    // Requests to a server that does not answer would wait for minutes.
    interrupt::advise(format!("the server does not answer; finished trials are kept; {}", go_on()));
    interrupt::wait_at_most(LONGEST_GIVING_UP);
    let mut bar = RunningBar::default();
    let measured = running::run(&request, &servers, &mut bar);
    bar.finish();
    match measured {
        Ok((contents, ended)) => {
            // A measurement of which every trial was excluded has no result, which scripts must
            // see.
            let counted = contents.records.iter().any(|record| record.exclusion().is_none());
            if !contents.records.is_empty() {
                show(&contents, &inputs.out)?;
            }
            match ended {
                RunningEnd::Complete => {}
                RunningEnd::TimeBudget => {
                    let missing = request.requested.loads.len() * request.requested.repeats * servers.len();
                    let missing = missing.saturating_sub(contents.records.len());
                    terminal::note(&format!(
                        "the time is used up, and at least {missing} trials are not measured; {}",
                        go_on()
                    ));
                }
                RunningEnd::Interrupted => terminal::note(&format!("interrupted; {}", go_on())),
            }
            Ok(match (ended, counted) {
                (RunningEnd::Interrupted, _) => Exit::Interrupted,
                (_, true) => Exit::Fine,
                (_, false) => Exit::Findings,
            })
        }
        Err(error) if bar.done > 0 => {
            let error = error.into();
            terminal::print_error(&error);
            terminal::note(&format!("{} finished trials are kept; {}", bar.done, go_on()));
            Ok(exit::from_error(&error))
        }
        Err(error) => Err(error.into()),
    }
}

/// Writes the report of a folder.
///
/// # Errors
/// When its journal cannot be read, or a file cannot be written.
pub fn report(folder: &Path, out: &Path) -> anyhow::Result<()> {
    show(&running::journal::read(folder)?, out)
}

fn show(contents: &RunningContents, out: &Path) -> anyhow::Result<()> {
    // Written first but checked last: the table is printed even if the disk is full.
    let files = reports::running::write(contents, out);
    terminal::print(&reports::running::terminal(contents))?;
    let files = files.with_context(|| {
        format!(
            "the report could not be written, but every trial is kept; to write it later: spectune report {}",
            out.display()
        )
    })?;
    if let Some(page) = files.first() {
        terminal::note(&format!("report: {}   (also written: Markdown, JSON and CSV)", page.display()));
    }
    Ok(())
}

/// Adds what the linter says, and prints what the server is.
fn describe(connected: &mut Connected, launch: Option<&Source>) -> anyhow::Result<()> {
    let checked = running_server::check(connected, launch)?;
    connected.server.findings = checked.findings;
    connected.server.unchecked = checked.unchecked;
    let server = &connected.server;
    terminal::note(&format!(
        "{} runs {} on {}, serves {}",
        server.url,
        server.name(),
        server.place(),
        server.models.join(", ")
    ));
    for setting in &server.settings {
        let reported = reports::running::value(server, &setting.name);
        terminal::note(&format!("  {:<24} {reported}", setting.name));
    }
    for finding in &server.findings {
        terminal::note(&format!("  lint {} {}: {}", finding.severity, finding.code, finding.message));
    }
    match &server.unchecked {
        Some(reason) => terminal::note(&format!("  lint: not checked: {reason}")),
        None if server.findings.is_empty() => terminal::note("  lint: no findings"),
        None => {}
    }
    checked.differing.iter().for_each(|line| terminal::note(&format!("  {line}")));
    Ok(())
}

/// Checks that a server serves the target of a sweep file.
fn same_model(models: &SweepModels, server: &RunningServer) -> anyhow::Result<()> {
    let Some(runs) = server.setting("model") else { return Ok(()) };
    let name = |path: &str| {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        // A folder of the cache is named after the id.
        let id = parts.iter().rev().find_map(|part| part.strip_prefix("models--"));
        let last = parts.last().copied().unwrap_or_default();
        id.map_or(last.to_owned(), |id| id.rsplit("--").next().unwrap_or(id).to_owned()).to_lowercase()
    };
    let resolved = |path: &str| Path::new(path).canonicalize().ok();
    let is_same =
        name(runs) == name(&models.target) || resolved(runs).is_some_and(|one| Some(one) == resolved(&models.target));
    if !is_same && !server.models.iter().any(|served| name(served) == name(&models.target)) {
        bail!(
            "the server at {} serves {runs}, but models.target is {}: change models.target, or the URL",
            server.url,
            models.target
        );
    }
    Ok(())
}

/// A note if the sweep file names a draft and the server runs none.
fn without_draft(models: &SweepModels, server: &RunningServer) -> Option<String> {
    let names_one = !models.draft.is_empty() && server.speculates == Some(false);
    names_one.then(|| {
        format!(
            "models.draft is {}, but the server at {} runs without speculation: it is measured as it is",
            models.draft, server.url
        )
    })
}

/// The folder with the tokenizer of a server's model.
fn tokenizer_of(server: &RunningServer) -> anyhow::Result<PathBuf> {
    let help = "give the folder of its checkpoint, or at least of its tokenizer and config.json, by --model-path DIR";
    let Some(model) = server.setting("model") else {
        bail!("the server at {} does not tell its model: {help}", server.url);
    };
    let folder = checkpoint::folder(Path::new(""), model)
        .with_context(|| format!("the tokenizer of {model} is needed: {help}"))?;
    if !Path::new(&folder).is_dir() {
        bail!("the model {model} of the server at {} is not on this machine: {help}", server.url);
    }
    Ok(folder.into())
}

fn plan(requested: &RunningSettings) -> String {
    let loads: Vec<String> = requested.loads.iter().map(ToString::to_string).collect();
    let trials = requested.loads.len() * requested.repeats * requested.urls.len();
    format!(
        "servers    {}\nloads      {}\ntrials     {trials} ({} repeats), {} requests of up to {} tokens each\nNothing is varied: \
         each server is measured as it runs.\n",
        requested.urls.join(", "),
        loads.join(", "),
        requested.repeats,
        requested.workload.requests,
        requested.workload.output_length
    )
}

/// Progress: a bar on a terminal, one line per trial elsewhere.
#[derive(Default)]
struct RunningBar {
    bar: Option<ProgressBar>,
    done: usize,
    planned: usize,
}

impl RunningBar {
    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(terminal::wrapped_for_stderr(text)),
            None => terminal::note(text),
        }
    }
}

impl RunningProgress for RunningBar {
    fn planned(&mut self, trials: usize, done: usize) {
        (self.planned, self.done) = (trials, done);
        self.bar = progress::bar(trials, "{bar:12} {pos}/{len}, {elapsed} elapsed  {wide_msg}");
        if let Some(bar) = &self.bar {
            bar.set_position(done as u64);
        }
    }

    fn started(&mut self, server: &RunningServer, load: TrialLoad, _repeat: usize) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{}, {load}", server.url));
        }
    }

    fn finished(&mut self, server: &RunningServer, record: &RunningRecord) {
        self.done += 1;
        let head =
            format!("[{}/{}] {}, {}, repeat {}", self.done, self.planned, server.url, record.load, record.repeat + 1);
        match (&record.outcome, record.exclusion()) {
            (RunningOutcome::Failed { reason }, _) => self.say(&format!("{head}: failed: {reason}")),
            (RunningOutcome::Measured(_), Some(reason)) => self.say(&format!("{head}: excluded: {reason}")),
            (RunningOutcome::Measured(figures), None) if self.bar.is_none() => {
                let accept = figures.accept_length.map_or_else(String::new, |one| format!(", accept length {one:.2}"));
                let warm = match figures.cache() {
                    running::record::PrefixCacheUse::Warm => ", warm prompts",
                    running::record::PrefixCacheUse::Cold => "",
                };
                self.say(&format!("{head}: {:.1} tokens/s{accept}{warm}", figures.output_tokens_per_s));
            }
            (RunningOutcome::Measured(_), None) => {}
        }
        if let Some(bar) = &self.bar {
            bar.set_position(self.done as u64);
        }
    }

    fn note(&mut self, text: &str) {
        self.say(text);
    }
}
