//! `spectune train`: adapts a draft head to prompts.

mod inputs;
mod progress;

use std::path::{Path, PathBuf};

use anyhow::Context;
use engine::DeviceChoice;
use schemas::paths::folder_of;
use schemas::{kind::FileKind, quoting::quoted, train::TrainFile};
use training::{RunOutcome, StepsOn, TrainRequest, TrainingError, inputs::TrainingInputs};

use self::progress::ShownProgress;
use crate::{
    engine_setup,
    exit::{self, Exit},
    interrupt, results_folder, setup, terminal,
    wrong_file::WrongFile,
};

const EXAMPLES: &str = "\
Examples:
  spectune train sweeps/train/demo.toml --out results/train
  spectune train train.toml --out results/train --resume
  spectune serve --model-path TARGET --speculative-algorithm EAGLE3 \\
      --speculative-draft-model-path results/train/head
  spectune schema train > train.schema.json

The target answers the prompts, and the head learns to draft these answers. Heads are \
compared by the accept length of the file's tree, replayed on held-out prompts: the trained head \
is written to DIR/head only if it is significantly better than the previous one. Training runs \
on the CPU, in float32; answers and replays run on the device of [engine].

A run can be stopped or killed at any moment; --resume continues from the newest checkpoint. \
Exits with 0 if a head was written, with 1 if the previous one is kept, and with 130 if it was \
stopped.";

/// Adapt a draft head to prompts, so that more of its drafts are accepted.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The training file; `spectune schema train` prints its schema
    train: PathBuf,
    /// Folder for checkpoints, the head and the report (default: results/train-NAME)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Continue the run that was started in the folder
    #[arg(long)]
    resume: bool,
    /// Where the engine runs: auto, cpu, cuda or cuda:N; overrides the training file
    #[arg(long)]
    device: Option<DeviceChoice>,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let source = setup::read_source(&arguments.train)?;
    setup::expect_kind(&source, FileKind::Train)?;
    let file = TrainFile::read_all(&source).map_err(|findings| WrongFile::all(source.clone(), findings))?;
    let folder = folder_of(&arguments.train);
    let file = inputs::resolve(file, &folder, &source).map_err(|finding| WrongFile::new(source.clone(), finding))?;
    let out = arguments.out.clone().unwrap_or_else(|| default_out(&arguments.train));
    // Before the engine is loaded, which takes much longer than this check.
    results_folder::check_for_training(&out, arguments.resume)?;
    let options = training::inputs::options(&file, &folder, arguments.device)?;
    let engine = engine_setup::load(options.clone())?;
    let model = tuner::workload::ModelText::from_engine(&engine);
    let TrainingInputs { sets, general, notes } =
        training::inputs::prompts(&file, &folder, &model, &engine.identity().target)?;
    notes.iter().for_each(|note| terminal::note(note));
    interrupt::advise(go_on(&arguments, &out));
    let request = TrainRequest {
        file: &file,
        options,
        steps_on: StepsOn::Processor,
        sets,
        general,
        out: &out,
        resume: arguments.resume,
        interrupted: interrupt::polled(),
    };
    let mut shown = ShownProgress::default();
    let ended = training::run(request, engine, &mut |progress| shown.show(progress));
    shown.finish();
    match ended {
        Ok(RunOutcome::Finished(finished)) => finish(&finished, &out),
        Ok(RunOutcome::Interrupted { step }) => {
            terminal::note(&format!("interrupted after {step} steps; {}", go_on(&arguments, &out)));
            Ok(Exit::Interrupted)
        }
        Err(error) => {
            // What a file or the settings say is the same when the run is continued.
            let ends_again = matches!(error, TrainingError::Malformed { .. } | TrainingError::Configuration(_));
            let error = error.into();
            terminal::print_error(&error);
            if !ends_again && out.join("checkpoint.safetensors").exists() {
                terminal::note(&format!("the newest checkpoint is kept; {}", go_on(&arguments, &out)));
            }
            Ok(exit::from_error(&error))
        }
    }
}

fn finish(finished: &training::Finished, out: &Path) -> anyhow::Result<Exit> {
    terminal::print(&reports::training::summary(&finished.record))?;
    let files = reports::training::write(&finished.record, out).with_context(|| {
        format!("the report could not be written; to write it later: spectune report {}", out.display())
    })?;
    if let Some(page) = files.first() {
        terminal::note(&format!("report: {}", page.display()));
    }
    match &finished.head {
        Some(head) => {
            terminal::note(&format!("head:   {}", head.display()));
            Ok(Exit::Fine)
        }
        None => Ok(Exit::Findings),
    }
}

/// The shell command that continues this run.
fn go_on(arguments: &Arguments, out: &Path) -> String {
    let word = |path: &Path| quoted(&path.display().to_string());
    interrupt::go_on(&format!("train {} --out {} --resume", word(&arguments.train), word(out)))
}

fn default_out(train: &Path) -> PathBuf {
    results_folder::named(&format!("train-{}", results_folder::stem(train, "train")))
}
