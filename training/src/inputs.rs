//! The inputs of a training file: the engine, and the prompts of the files that it names.

use std::path::Path;

use engine::{DeviceChoice, EngineOptions, Request, SamplingParams, ShapePolicy, StopConditions};
use schemas::{
    request_log::LoggedRequest,
    sweep::Workload,
    train::{TrainAnswers, TrainFile, TrainStart},
};
use tuner::workload::{self, ModelText};

use crate::{
    drift::read_log,
    error::TrainingError,
    texts::{LoadedPrompts, TrainingPrompt},
};

/// The options of the engine that answers, computes states and replays. Relative paths are relative
/// to `folder`; `device` takes precedence over the file.
///
/// # Errors
/// When the device in the file is invalid.
pub fn options(file: &TrainFile, folder: &Path, device: Option<DeviceChoice>) -> Result<EngineOptions, TrainingError> {
    let random = file.models.start == TrainStart::Random;
    let settings = &file.engine;
    let defaults = EngineOptions::default();
    Ok(EngineOptions {
        model_path: folder.join(&file.models.target),
        draft_model_path: (!file.models.draft.is_empty()).then(|| folder.join(&file.models.draft)),
        // Without a head there is no draft to load yet.
        algorithm: (!random).then(|| file.models.algorithm.clone()),
        policy: if random { defaults.policy.clone() } else { ShapePolicy::fixed(file.shape()) },
        device: match device {
            Some(device) => device,
            None => settings.device.parse()?,
        },
        tp_size: settings.tp_size,
        context_length: settings.context_length,
        max_running_requests: settings.max_running_requests.unwrap_or(defaults.max_running_requests),
        page_size: settings.page_size,
        mem_fraction_static: settings.mem_fraction_static,
        chunked_prefill_size: settings.chunked_prefill_size,
        capture_sizes: settings.capture_sizes.clone(),
        ..defaults
    })
}

/// The prompts of all sets, and the general prompts.
///
/// # Errors
/// When a file cannot be read, or a prompt does not fit the context.
pub fn prompts(
    file: &TrainFile,
    folder: &Path,
    model: &ModelText,
    target: &str,
) -> Result<(Vec<LoadedPrompts>, Vec<TrainingPrompt>), TrainingError> {
    let mut sets = Vec::new();
    for set in &file.prompts {
        let prompts = match &set.log {
            Some(log) => logged(&folder.join(log), set.requests, file, model, target)?,
            None => {
                let workload = Workload {
                    prompts: set.file.clone(),
                    input_ids: set.input_ids.clone(),
                    chat: set.chat,
                    turn: set.turn,
                    max_prompt_tokens: set.max_prompt_tokens,
                    ..requested(&file.answers, set.requests)
                };
                read(&workload, folder, model)?
            }
        };
        sets.push(LoadedPrompts { name: set.label(), prompts });
    }
    let general = match &file.general {
        None => Vec::new(),
        Some(general) => {
            let workload = Workload {
                prompts: Some(general.file.clone()),
                chat: general.chat,
                max_prompt_tokens: general.max_prompt_tokens,
                ..requested(&file.answers, general.requests)
            };
            read(&workload, folder, model)?
        }
    };
    Ok((sets, general))
}

/// The prompts of a file, without duplicates.
fn read(workload: &Workload, folder: &Path, model: &ModelText) -> Result<Vec<TrainingPrompt>, TrainingError> {
    let read = workload::LoadedWorkload::load(workload, folder, model)?;
    // After these a workload repeats its prompts.
    let requests = read.requests.into_iter().take(read.prompts);
    Ok(requests.map(|request| TrainingPrompt { request, answer: None }).collect())
}

/// The newest prompts of a log, with their answers if this target generated them, neither adjusted
/// nor simulated.
fn logged(
    log: &Path,
    most: usize,
    file: &TrainFile,
    model: &ModelText,
    target: &str,
) -> Result<Vec<TrainingPrompt>, TrainingError> {
    let mut requests = read_log(log)?;
    requests.drain(..requests.len().saturating_sub(most));
    let fits = |request: &LoggedRequest| {
        let room = model.context_length.saturating_sub(file.answers.output_length);
        let known = |token: &u32| (*token as usize) < model.vocab_size;
        (1..=room).contains(&request.prompt_ids.len())
            && request.prompt_ids.iter().chain(&request.output_ids).all(known)
    };
    let prompt = |(request, seed): (LoggedRequest, u64)| {
        let by_itself = request.target == target && !request.adjusted && !request.simulated;
        // An aborted answer ends where the target would have continued.
        let whole = by_itself && matches!(request.finish_reason.as_str(), "stop" | "length");
        let mut answer = request.output_ids;
        answer.truncate(file.answers.output_length);
        let sampling = SamplingParams { temperature: request.temperature, seed, ..sampling(&file.answers) };
        TrainingPrompt {
            request: Request { input_ids: request.prompt_ids, sampling, stop: stop(&file.answers) },
            answer: whole.then_some(answer),
        }
    };
    Ok(requests.into_iter().filter(fits).zip(file.answers.seed..).map(prompt).collect())
}

/// A workload without prompts.
fn requested(answers: &TrainAnswers, requests: usize) -> Workload {
    Workload {
        ignore_eos: answers.ignore_eos,
        temperature: answers.temperature,
        top_p: answers.top_p,
        top_k: answers.top_k,
        seed: answers.seed,
        ..Workload::from_prompts(None, requests, answers.output_length)
    }
}

fn sampling(answers: &TrainAnswers) -> SamplingParams {
    let TrainAnswers { temperature, top_p, top_k, seed, .. } = *answers;
    SamplingParams { temperature, top_p, top_k, seed, ..SamplingParams::default() }
}

fn stop(answers: &TrainAnswers) -> StopConditions {
    StopConditions {
        max_new_tokens: Some(answers.output_length),
        ignore_eos: answers.ignore_eos,
        ..StopConditions::default()
    }
}
