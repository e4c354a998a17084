//! The inputs of a training file: the engine, and the prompts of the files that it names.

use std::path::Path;

use engine::{DeviceChoice, EngineOptions, Request, SamplingParams, ShapePolicy, StopConditions};
use schemas::{
    request_log::LoggedRequest,
    sweep::Workload,
    train::{PromptSet, TrainAnswers, TrainFile, TrainStart},
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

/// The prompts of a training file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrainingInputs {
    /// Of all sets.
    pub sets: Vec<LoadedPrompts>,
    /// The general prompts.
    pub general: Vec<TrainingPrompt>,
    /// What was left out, in words.
    pub notes: Vec<String>,
}

/// The prompts of all sets, and the general prompts.
///
/// # Errors
/// When a file cannot be read, a prompt does not fit the context, or no request of a log can be
/// used.
pub fn prompts(
    file: &TrainFile,
    folder: &Path,
    model: &ModelText,
    target: &str,
) -> Result<TrainingInputs, TrainingError> {
    let mut inputs = TrainingInputs::default();
    for set in &file.prompts {
        let (prompts, left_out) = match &set.log {
            Some(log) => logged(&folder.join(log), set, file, model, target)?,
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
        inputs.notes.extend(left_out.map(|left_out| format!("prompts {}: {left_out}", set.label())));
        inputs.sets.push(LoadedPrompts { name: set.label(), prompts });
    }
    match &file.general {
        None => {}
        Some(general) => {
            let workload = Workload {
                prompts: Some(general.file.clone()),
                chat: general.chat,
                max_prompt_tokens: general.max_prompt_tokens,
                ..requested(&file.answers, general.requests)
            };
            let (prompts, left_out) = read(&workload, folder, model)?;
            inputs.notes.extend(left_out.map(|left_out| format!("general prompts: {left_out}")));
            inputs.general = prompts;
        }
    }
    Ok(inputs)
}

/// Prompts, and what was left out, in words.
type ReadPrompts = (Vec<TrainingPrompt>, Option<String>);

/// The prompts of a file, without duplicates.
fn read(workload: &Workload, folder: &Path, model: &ModelText) -> Result<ReadPrompts, TrainingError> {
    let read = workload::LoadedWorkload::load(workload, folder, model)?;
    // After these a workload repeats its prompts.
    let requests = read.requests.into_iter().take(read.prompts);
    let left_out = (read.left_out > 0)
        .then(|| format!("{} are skipped (longer than max_prompt_tokens, or without a user message)", read.left_out));
    Ok((requests.map(|request| TrainingPrompt { request, answer: None }).collect(), left_out))
}

/// Why a request of a log is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnusedRequest {
    OtherTarget,
    Unfit,
    UnknownTokens,
}

impl UnusedRequest {
    /// All, each with the words that follow a number of requests.
    const WORDS: [(Self, &str); 3] = [
        (
            Self::OtherTarget,
            "of another target, whose token ids may mean another text (if its tokenizer is the same, give their prompt_ids as input_ids)",
        ),
        (Self::Unfit, "longer than max_prompt_tokens or the context, or without a prompt"),
        (Self::UnknownTokens, "with tokens that the target does not know"),
    ];
}

/// The newest prompts of a log, with their answers if this target generated them, neither adjusted
/// nor simulated.
fn logged(
    log: &Path,
    set: &PromptSet,
    file: &TrainFile,
    model: &ModelText,
    target: &str,
) -> Result<ReadPrompts, TrainingError> {
    for (key, is_given) in [("turn", set.turn.is_some()), ("chat", set.chat.is_some())] {
        if is_given {
            return Err(TrainingError::Configuration(format!(
                "prompts {}: the prompts of a log are token ids: remove {key}",
                set.label()
            )));
        }
    }
    let mut requests = read_log(log)?;
    let room = model.context_length.saturating_sub(file.answers.output_length);
    let room = room.min(set.max_prompt_tokens.unwrap_or(usize::MAX));
    let known = |token: &u32| (*token as usize) < model.vocab_size;
    let unusable = |request: &LoggedRequest| match request {
        _ if request.target != target => Some(UnusedRequest::OtherTarget),
        _ if !(1..=room).contains(&request.prompt_ids.len()) => Some(UnusedRequest::Unfit),
        _ if !request.prompt_ids.iter().chain(&request.output_ids).all(known) => Some(UnusedRequest::UnknownTokens),
        _ => None,
    };
    let mut left_out = Vec::new();
    requests.retain(|request| {
        let reason = unusable(request);
        left_out.extend(reason);
        reason.is_none()
    });
    let counted = |(reason, words): (UnusedRequest, &str)| {
        let count = left_out.iter().filter(|one| **one == reason).count();
        (count > 0).then(|| format!("{count} {words}"))
    };
    let counts: Vec<String> = UnusedRequest::WORDS.into_iter().filter_map(counted).collect();
    let counts = (!counts.is_empty()).then(|| format!("requests that are left out: {}", counts.join("; ")));
    if let (true, Some(counts)) = (requests.is_empty(), &counts) {
        return Err(TrainingError::malformed(log, format!("no request in it can be used; {counts}")));
    }
    requests.drain(..requests.len().saturating_sub(set.requests));
    let prompt = |(request, seed): (LoggedRequest, u64)| {
        let by_itself = !request.adjusted && !request.simulated;
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
    Ok((requests.into_iter().zip(file.answers.seed..).map(prompt).collect(), counts))
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

#[cfg(test)]
mod tests {
    use schemas::text::Source;

    use super::*;

    /// The tokens of a prompt, and whether its answer is reused.
    type UsedPrompt = (Vec<u32>, bool);

    /// Reads a log with these requests: target, prompt and answer.
    fn check(lines: &[(&str, &[u32], &[u32])], keys: &str) -> Result<(Vec<UsedPrompt>, Vec<String>), String> {
        let folder = tempfile::tempdir().expect("a folder");
        let line = |(target, prompt, answer): &(&str, &[u32], &[u32])| {
            serde_json::json!({
                "format": 1, "time": 1.0, "target": target, "shapes": "3,1,4", "prompt_ids": prompt, "output_ids": answer,
                "temperature": 0.0, "rounds": 1, "accept_histogram": [1], "finish_reason": "stop",
            })
        };
        let log: Vec<String> = lines.iter().map(|one| line(one).to_string()).collect();
        std::fs::write(folder.path().join("log.jsonl"), log.join("\n")).expect("a log");
        let text = format!(
            "[models]\ntarget = 't'\ndraft = 'd'\nalgorithm = 'EAGLE3'\n[tree]\nshape = '3,1,4'\n[answers]\n\
             output_length = 10\n[[prompts]]\nlog = 'log.jsonl'\n{keys}\n"
        );
        let file = TrainFile::read_all(&Source::new("train.toml", text));
        let file = file.map_err(|findings| findings.into_iter().map(|one| one.message).collect::<String>())?;
        let model = ModelText { text: None, end_tokens: Vec::new(), context_length: 15, vocab_size: 100 };
        let found = prompts(&file, folder.path(), &model, "this").map_err(|error| error.to_string())?;
        let prompts = found.sets.into_iter().flat_map(|set| set.prompts);
        Ok((prompts.map(|one| (one.request.input_ids, one.answer.is_some())).collect(), found.notes))
    }

    #[test]
    fn what_a_log_has_of_another_target_is_left_out_and_counted() {
        let lines: [(&str, &[u32], &[u32]); 5] = [
            ("this", &[1], &[2]),
            ("other", &[3], &[4]),
            ("this", &[5; 6], &[2]),
            ("this", &[100], &[2]),
            ("this", &[6, 7], &[8]),
        ];
        let (prompts, notes) = check(&lines, "").expect("prompts");
        assert_eq!(prompts, [(vec![1], true), (vec![6, 7], true)]);
        assert_eq!(notes.len(), 1);
        for words in ["prompts log: ", "1 of another target", "1 longer than", "1 with tokens"] {
            assert!(notes[0].contains(words), "{notes:?}");
        }
        let (prompts, notes) = check(&lines[..1], "").expect("prompts");
        assert_eq!((prompts.len(), notes.len()), (1, 0));
        // The newest of those that can be used.
        assert_eq!(check(&lines, "requests = 1").expect("prompts").0, [(vec![6, 7], true)]);
        assert_eq!(check(&lines, "max_prompt_tokens = 1").expect("prompts").0, [(vec![1], true)]);
        let refused = check(&lines[1..2], "").expect_err("another target's alone");
        assert!(refused.contains("no request in it can be used") && refused.contains("input_ids"), "{refused}");
    }

    #[test]
    fn keys_without_effect_with_a_log_are_refused() {
        let lines: [(&str, &[u32], &[u32]); 1] = [("this", &[1], &[2])];
        for (keys, words) in [("turn = 'each'", "remove turn"), ("chat = true", "remove chat")] {
            let refused = check(&lines, keys).expect_err(keys);
            assert!(refused.contains(words), "{refused}");
        }
        assert!(check(&[], "").is_ok(), "an empty log is judged by what needs its prompts");
    }
}
