//! A training run.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool, atomic::Ordering},
    time::Instant,
};

use anyhow::Context;
use engine::{DeviceChoice, Engine};
use schemas::{text::Source, train::TrainFile};
use training::{RunOutcome, TrainProgress, StepsOn, TrainRequest, inputs::{self, TrainingInputs}};
use schemas::paths::folder_of;
use tuner::workload::ModelText;

/// What to train.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The training file, as for `spectune train`; models are given by their folders
    train: PathBuf,
    /// Folder for checkpoints, the head and the record
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Continue the run that was started in the folder
    #[arg(long)]
    resume: bool,
    /// Where the engine runs: auto, cpu, cuda or cuda:N; overrides the training file
    #[arg(long)]
    device: Option<DeviceChoice>,
    /// Index of the GPU for the steps
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    /// Run the steps on the CPU, as `spectune train` does
    #[arg(long, conflicts_with = "gpu")]
    processor: bool,
}

/// Runs the command. Returns 0 if a head was written, 1 if the previous one is kept, 130 if it was
/// stopped.
pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let path = &arguments.train;
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let source = Source::new(path.display().to_string(), text);
    let file = TrainFile::read(&source).map_err(|finding| {
        let place = source.position(finding.span.start);
        anyhow::anyhow!("{}:{}:{}: {}", source.name(), place.line, place.column, finding.message)
    })?;
    let folder = folder_of(path);
    let options = inputs::options(&file, &folder, arguments.device)?;
    let engine = Engine::load(options.clone())?;
    let TrainingInputs { sets, general, notes } =
        inputs::prompts(&file, &folder, &ModelText::from_engine(&engine), &engine.identity().target)?;
    notes.iter().for_each(|note| eprintln!("{note}"));
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = interrupted.clone();
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed)).context("cannot listen for Ctrl-C")?;
    let request = TrainRequest {
        file: &file,
        options,
        steps_on: if arguments.processor { StepsOn::Processor } else { StepsOn::Cuda(arguments.gpu) },
        sets,
        general,
        out: &arguments.out,
        resume: arguments.resume,
        interrupted: &interrupted,
    };
    let begin = Instant::now();
    let outcome = training::run(request, engine, &mut |progress| say(begin, &progress))?;
    Ok(finish(&outcome, &arguments.out))
}

fn finish(outcome: &RunOutcome, out: &Path) -> u8 {
    match outcome {
        RunOutcome::Finished(finished) => {
            println!("{}", finished.record.verdict.because);
            for comparison in finished.record.judged.iter().chain(&finished.record.general) {
                let length =
                    |figures: &schemas::training_record::AcceptFigures| figures.accept_length().unwrap_or_default();
                println!(
                    "{:16} accept length {:.3} before, {:.3} after",
                    comparison.name,
                    length(&comparison.before),
                    length(&comparison.after)
                );
            }
            println!("for the report of the run: spectune report {}", out.display());
            u8::from(finished.head.is_none())
        }
        RunOutcome::Interrupted { step } => {
            eprintln!("interrupted after {step} steps; continue with --resume");
            130
        }
    }
}

fn say(begin: Instant, progress: &TrainProgress<'_>) {
    let seconds = begin.elapsed().as_secs_f64();
    match progress {
        TrainProgress::Answers(answers) if answers.done == answers.all && answers.all > 0 => {
            eprintln!(
                "{seconds:7.1} s  answered: {} tokens, {:.0} tokens/s",
                answers.tokens,
                answers.tokens as f64 / answers.seconds.max(1e-9)
            );
        }
        TrainProgress::Answers(_) => {}
        TrainProgress::Note(words) => eprintln!("{seconds:7.1} s  {words}"),
        TrainProgress::Steps { steps, point } => {
            let loss = point.loss.first().copied().unwrap_or_default();
            eprintln!("{seconds:7.1} s  step {}/{steps}: loss {loss:.3}, {:.0} tokens/s", point.step, point.rows_per_s);
        }
        TrainProgress::Evaluated { evaluation, best } => {
            let mark = if *best { "   best so far" } else { "" };
            eprintln!(
                "{seconds:7.1} s  evaluated: accept length {:.3}, loss {:.3}{mark}",
                evaluation.accept_length, evaluation.loss
            );
        }
        TrainProgress::Judging => eprintln!("{seconds:7.1} s  judging"),
    }
}
