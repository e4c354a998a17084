//! The files that a training file names, and the prompts in them.

use std::path::Path;

use engine::{Request, SamplingParams, StopConditions};
use schemas::{
    diagnostic::Diagnostic,
    request_log::LoggedRequest,
    sweep::Workload,
    text::Source,
    train::{Answers, TrainFile},
};
use training::{Prompt, PromptSet, drift::read_log};
use tuner::workload::{self, ModelText};

use crate::sweep_inputs::{missing, model};

/// The file with the folders of its models, and all that it names is there.
///
/// # Errors
/// With a finding at the key that names the missing file.
pub fn resolve(mut file: TrainFile, folder: &Path, source: &Source) -> Result<TrainFile, Box<Diagnostic>> {
    file.models.target = model(&["models", "target"], &file.models.target, folder, source)?;
    if !file.models.draft.is_empty() {
        file.models.draft = model(&["models", "draft"], &file.models.draft, folder, source)?;
    }
    for (at, set) in file.prompts.iter().enumerate() {
        let name = [&set.file, &set.input_ids, &set.log].into_iter().flatten().next();
        if let Some(wrong) = name.and_then(|name| missing(&["prompts"], Some(at), name, folder)) {
            return Err(Box::new(wrong.locate(source)));
        }
    }
    let general = file.general.as_ref().and_then(|general| missing(&["general", "file"], None, &general.file, folder));
    general.map_or(Ok(file), |wrong| Err(Box::new(wrong.locate(source))))
}

/// The prompts of all sets, and the general ones.
///
/// # Errors
/// When a file cannot be read, or a prompt does not fit the context.
pub fn prompts(
    file: &TrainFile,
    folder: &Path,
    model: &ModelText,
    target: &str,
) -> anyhow::Result<(Vec<PromptSet>, Vec<Prompt>)> {
    let mut sets = Vec::new();
    for set in &file.prompts {
        let prompts = match &set.log {
            Some(log) => logged(&folder.join(log), set.requests, file, model, target)?,
            None => {
                let workload = Workload {
                    prompts: set.file.clone(),
                    input_ids: set.input_ids.clone(),
                    chat: set.chat,
                    max_prompt_tokens: set.max_prompt_tokens,
                    ..asked(&file.answers, set.requests)
                };
                read(&workload, folder, model)?
            }
        };
        sets.push(PromptSet { name: set.label(), prompts });
    }
    let general = match &file.general {
        None => Vec::new(),
        Some(general) => {
            let workload = Workload {
                prompts: Some(general.file.clone()),
                chat: general.chat,
                max_prompt_tokens: general.max_prompt_tokens,
                ..asked(&file.answers, general.requests)
            };
            read(&workload, folder, model)?
        }
    };
    Ok((sets, general))
}

/// Prompts of a file, each once.
fn read(workload: &Workload, folder: &Path, model: &ModelText) -> anyhow::Result<Vec<Prompt>> {
    let read = workload::Workload::load(workload, folder, model)?;
    let requests = read.requests.into_iter().take(read.prompts);
    Ok(requests.map(|request| Prompt { request, answer: None }).collect())
}

/// Prompts of a log; the newest of it, with their answers where this target gave them by itself.
fn logged(log: &Path, most: usize, file: &TrainFile, model: &ModelText, target: &str) -> anyhow::Result<Vec<Prompt>> {
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
        let whole = by_itself && matches!(request.finish_reason.as_str(), "stop" | "length");
        let mut answer = request.output_ids;
        answer.truncate(file.answers.output_length);
        let sampling = SamplingParams { temperature: request.temperature, seed, ..sampling(&file.answers) };
        Prompt {
            request: Request { input_ids: request.prompt_ids, sampling, stop: stop(&file.answers) },
            answer: whole.then_some(answer),
        }
    };
    Ok(requests.into_iter().filter(fits).zip(file.answers.seed..).map(prompt).collect())
}

/// A workload without prompts.
fn asked(answers: &Answers, requests: usize) -> Workload {
    Workload {
        prompts: None,
        input_ids: None,
        random: None,
        trace: None,
        chat: None,
        max_prompt_tokens: None,
        requests,
        output_length: answers.output_length,
        warm_up_tokens: 0,
        ignore_eos: answers.ignore_eos,
        temperature: answers.temperature,
        top_p: answers.top_p,
        top_k: answers.top_k,
        seed: answers.seed,
    }
}

fn sampling(answers: &Answers) -> SamplingParams {
    let Answers { temperature, top_p, top_k, seed, .. } = *answers;
    SamplingParams { temperature, top_p, top_k, seed, ..SamplingParams::default() }
}

fn stop(answers: &Answers) -> StopConditions {
    StopConditions {
        max_new_tokens: Some(answers.output_length),
        ignore_eos: answers.ignore_eos,
        ..StopConditions::default()
    }
}
