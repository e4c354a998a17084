//! `spectune generate`: completes prompts.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};

use anyhow::{Context, bail};
use engine::{
    Completion, Engine, EngineOptions, ReplayText, Request, SamplingParams, StopConditions,
    text::{ChatMessage, TemplateVariables},
};
use schemas::{
    sweep::{LARGEST, Workload},
    tree::TreeShape,
};
use serde::Serialize;
use tuner::{files::traces, workload::ModelText};

use crate::{
    data_set,
    engine_flags::EngineFlags,
    engine_setup,
    exit::Exit,
    interrupt,
    outputs::{self, NamedFile},
    setup, terminal,
};

/// Largest file of prompts, in bytes.
const LARGEST_PROMPT_FILE: u64 = 256 << 20;

const EXAMPLES: &str = "\
Examples:
  spectune generate tuned.toml --prompt 'fn main() {'
  spectune generate --model-path models/tiny/target --prompt 'def read(self' --max-new-tokens 64
  spectune generate --model-path models/tiny/target --speculative-algorithm EAGLE3 \\
      --speculative-draft-model-path models/tiny/eagle3 --speculative-num-steps 3 \\
      --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --input-ids prompts.json --json";

/// Generate text from a prompt.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// A tuned file written by `spectune sweep`; engine flags override it
    tuned: Option<PathBuf>,
    #[command(flatten)]
    engine: EngineFlags,
    /// Prompt; may be given several times for several requests
    #[arg(long, value_name = "TEXT", required_unless_present_any = ["input_ids", "prompts"])]
    prompt: Vec<String>,
    /// File of prompts, as in sweep files: plain text with one prompt per line, JSON or CSV, or the
    /// id of a data set in the local Hugging Face cache
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prompt", "input_ids"])]
    prompts: Option<PathBuf>,
    /// JSON file with a list of token-id lists, one per request
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    input_ids: Option<PathBuf>,
    /// Wrap each prompt in the model's chat template, as a user message
    #[arg(long, conflicts_with = "input_ids")]
    chat: bool,
    /// Maximum number of tokens to generate per request
    #[arg(long, value_name = "N", default_value_t = 128)]
    max_new_tokens: usize,
    /// Sampling temperature; 0 is greedy
    #[arg(long, value_name = "T", default_value_t = 0.0, allow_negative_numbers = true)]
    temperature: f32,
    /// Sample from the smallest set of most likely tokens whose total probability reaches this
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    top_p: f32,
    /// Sample from this many most likely tokens; 0 for all
    #[arg(long, value_name = "K", default_value_t = 0)]
    top_k: usize,
    /// Sample from tokens with at least this fraction of the best token's probability
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    min_p: f32,
    /// Seed of the random numbers; request i uses seed + i
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// A text that ends the output; may be given several times
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Continue after the model's end-of-text tokens
    #[arg(long)]
    ignore_eos: bool,
    /// Print one JSON object per request instead of the text
    #[arg(long)]
    json: bool,
    /// Also write what the draft would propose at every position of the outputs, for
    /// `spectune simulate`
    #[arg(long, value_name = "FILE", requires = "trace_limits")]
    trace: Option<PathBuf>,
    /// Largest trees of the trace, as steps,topk,draft-tokens: smaller ones with the same topk are
    /// within them
    #[arg(long, value_name = "SHAPE;…", value_delimiter = ';', requires = "trace")]
    trace_limits: Vec<String>,
}

/// One line of `--json`. Accept length = completion_tokens / rounds, the first token and bonus
/// tokens included; 1 without speculation.
#[derive(Serialize)]
struct OutputLine<'a> {
    output_ids: &'a [u32],
    text: &'a str,
    prompt_tokens: usize,
    completion_tokens: usize,
    rounds: usize,
    accept_length: Option<f64>,
    accept_histogram: &'a [u64],
    finish_reason: &'static str,
    /// Whether acceptance was simulated, which makes the output meaningless.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    simulated: bool,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    if arguments.max_new_tokens == 0 {
        bail!("--max-new-tokens is 0: nothing would be generated; give at least 1");
    }
    let (options, measured) = engine_setup::tuned_options(arguments.tuned.as_deref(), &arguments.engine)?;
    check_trace(&arguments, &options)?;
    // Prompts are read first, so that a wrong file is reported before the models are loaded.
    let ids = arguments.input_ids.as_deref().map(read_ids).transpose()?;
    let prompts = arguments.prompts.as_deref().map(prompt_file).transpose()?;
    let mut engine = engine_setup::load_tuned(options, measured.as_ref())?;
    let prompts = match (ids, prompts) {
        (Some(ids), _) => ids,
        (None, Some(path)) => read_prompts(&path, &engine, &arguments)?,
        (None, None) => encode(&engine, &arguments)?,
    };
    let limits = trace_limits(&engine, &arguments)?;
    let requests =
        // Consecutive seeds: equal prompts give different outputs, and each can be repeated alone.
        prompts.into_iter().zip(arguments.seed..).map(|(input_ids, seed)| request(&arguments, input_ids, seed));
    let interrupted = interrupt::polled();
    let requests: Vec<Request> = requests.collect();
    let ended = engine.run_while(requests.clone(), &mut || !interrupted.load(Ordering::Relaxed))?;
    let unfinished: Vec<usize> = (1..).zip(&ended).filter(|(_, one)| one.is_none()).map(|(at, _)| at).collect();
    let all = ended.len();
    let completions: Vec<Completion> = ended.into_iter().flatten().collect();
    let simulated = engine.options().makes_up_acceptance();
    let speculates = engine.options().policy.speculates();
    for (at, completion) in completions.iter().enumerate() {
        if arguments.json {
            terminal::print(&format!("{}\n", serde_json::to_string(&line(completion, simulated, speculates))?))?;
        } else {
            let separator = if at > 0 { "\n" } else { "" };
            terminal::print(&format!("{separator}{}\n", completion.text))?;
        }
    }
    if !arguments.json {
        summarise(&completions, simulated, speculates);
    }
    if unfinished.is_empty() {
        let Some(path) = &arguments.trace else { return Ok(Exit::Fine) };
        let texts = texts(&requests, &completions)?;
        let mut goes_on = || !interrupted.load(Ordering::Relaxed);
        return trace(&mut engine, path, &limits, &texts, &mut goes_on);
    }
    let missing: Vec<String> = unfinished.iter().map(ToString::to_string).collect();
    terminal::note(&format!("interrupted; not finished, of {all} requests: {}", missing.join(", ")));
    Ok(Exit::Interrupted)
}

/// Whether a requested trace can be made, as far as the command line tells.
fn check_trace(arguments: &Arguments, options: &EngineOptions) -> anyhow::Result<()> {
    let Some(path) = &arguments.trace else { return Ok(()) };
    if options.makes_up_acceptance() {
        bail!("--trace needs real acceptance, not a simulated accept length");
    }
    if arguments.max_new_tokens < 2 {
        bail!("--trace needs outputs of at least two tokens: raise --max-new-tokens");
    }
    let inputs = [
        ("[TUNED]", arguments.tuned.as_deref()),
        ("--prompts", arguments.prompts.as_deref()),
        ("--input-ids", arguments.input_ids.as_deref()),
    ];
    let inputs: Vec<NamedFile<'_>> = inputs.into_iter().filter_map(|(flag, path)| Some((flag, path?))).collect();
    let trace = [("--trace", path.as_path())];
    outputs::check_distinct(&trace, &inputs)?;
    outputs::check_writable(&trace)
}

/// The limits of the requested trace. The draft must be able to fill them, which is checked before
/// anything is generated.
fn trace_limits(engine: &Engine, arguments: &Arguments) -> anyhow::Result<Vec<TreeShape>> {
    if arguments.trace.is_none() {
        return Ok(Vec::new());
    }
    let nodes = engine.cost().nodes;
    let limit = |text: &String| nodes.parse(text).with_context(|| format!("--trace-limits {text}"));
    let limits = arguments.trace_limits.iter().map(limit).collect::<anyhow::Result<Vec<_>>>()?;
    if let Some(limit) = limits.iter().find(|limit| limit.row_budget.is_some()) {
        bail!("--trace-limits {limit}: a trace has whole trees, of which `simulate` takes budgets; leave ~… out");
    }
    engine.traced_draft(&limits)?;
    Ok(limits)
}

/// The texts of completed requests that ran a round.
fn texts(requests: &[Request], completions: &[Completion]) -> anyhow::Result<Vec<ReplayText>> {
    let texts = requests.iter().zip(completions).map(|(request, completion)| ReplayText::new(request, completion));
    // The first token comes from the prefill, so shorter outputs ran no round.
    let texts: Vec<ReplayText> = texts.filter(|text| text.output_tokens() > 1).collect();
    if texts.is_empty() {
        bail!("--trace: no output has a second token");
    }
    Ok(texts)
}

/// Makes and writes the traces of some texts. When `goes_on` returns false, it ends with the texts
/// that are finished.
fn trace(
    engine: &mut Engine,
    path: &Path,
    limits: &[TreeShape],
    texts: &[ReplayText],
    goes_on: &mut dyn FnMut() -> bool,
) -> anyhow::Result<Exit> {
    let mut next = |_| if goes_on() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
    let traces = engine.trace_positions(texts, limits, &mut next)?;
    let finished = traces.first().map_or(0, |trace| trace.texts.len());
    if finished == 0 {
        terminal::note("interrupted before the trace of an output was finished: no trace is written");
        return Ok(Exit::Interrupted);
    }
    traces::write(path, &traces)?;
    let positions: usize = texts[..finished].iter().map(|text| text.output_tokens() - 1).sum();
    terminal::note(&format!("trace of {positions} positions of {finished} outputs: {}", path.display()));
    let confident = || traces.iter().flat_map(|trace| &trace.texts).flat_map(|text| &text.positions);
    if engine.draft_algorithm() == Some("DSPARK") && confident().all(|nodes| nodes.confidence.is_empty()) {
        terminal::note(
            "the trace has no confidences, from which temperatures are fitted: the head has no confidence head",
        );
    }
    if finished < texts.len() {
        terminal::note(&format!("interrupted; the trace has the first {finished} of {} outputs", texts.len()));
        return Ok(Exit::Interrupted);
    }
    Ok(Exit::Fine)
}

fn request(arguments: &Arguments, input_ids: Vec<u32>, seed: u64) -> Request {
    let Arguments { temperature, top_p, top_k, min_p, .. } = *arguments;
    Request {
        input_ids,
        sampling: SamplingParams { temperature, top_p, top_k, min_p, seed, ..SamplingParams::default() },
        stop: StopConditions {
            max_new_tokens: Some(arguments.max_new_tokens),
            stop: arguments.stop.clone(),
            stop_token_ids: Vec::new(),
            ignore_eos: arguments.ignore_eos,
            ..StopConditions::default()
        },
    }
}

fn encode(engine: &Engine, arguments: &Arguments) -> anyhow::Result<Vec<Vec<u32>>> {
    let text = engine.text().context(
        "this model has no tokenizer.json: give token ids with --input-ids, or make one with transformers: \
         AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
    )?;
    let plain = TemplateVariables::new();
    let encode = |prompt: &String| match arguments.chat {
        true => text.encode_chat(&[user(prompt)], &plain),
        false => text.encode(prompt),
    };
    arguments.prompt.iter().map(|prompt| Ok(encode(prompt)?)).collect()
}

/// The file of prompts that is meant.
fn prompt_file(name: &Path) -> anyhow::Result<PathBuf> {
    let Some(text) = name.to_str() else { return Ok(name.to_owned()) };
    let path = PathBuf::from(data_set::file(Path::new(""), text)?);
    // Checked before the models are loaded.
    std::fs::File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(path)
}

fn read_prompts(path: &Path, engine: &Engine, arguments: &Arguments) -> anyhow::Result<Vec<Vec<u32>>> {
    let workload = Workload {
        chat: arguments.chat.then_some(true),
        ..Workload::from_prompts(None, LARGEST, arguments.max_new_tokens)
    };
    let (prompts, left_out) = tuner::workload::read_prompts(path, &workload, &ModelText::from_engine(engine))?;
    if left_out > 0 {
        terminal::note(&format!("{left_out} conversations without a user message are skipped"));
    }
    if prompts.is_empty() {
        bail!("{}: the file contains no prompt", path.display());
    }
    Ok(prompts)
}

fn user(prompt: &str) -> ChatMessage {
    ChatMessage { role: "user".into(), content: prompt.to_owned() }
}

fn read_ids(path: &Path) -> anyhow::Result<Vec<Vec<u32>>> {
    let text = setup::read_text(path, LARGEST_PROMPT_FILE)?;
    let ids: Vec<Vec<u32>> = serde_json::from_str(&text).with_context(|| {
        format!("{}: expected a JSON list of token-id lists, such as [[1, 2, 3], [4, 5]]", path.display())
    })?;
    if ids.is_empty() {
        bail!("{}: the list contains no prompt", path.display());
    }
    if let Some(at) = ids.iter().position(Vec::is_empty) {
        bail!("{}: prompt {} of {} has no token", path.display(), at + 1, ids.len());
    }
    Ok(ids)
}

fn line(completion: &Completion, simulated: bool, speculates: bool) -> OutputLine<'_> {
    OutputLine {
        output_ids: &completion.output_ids,
        text: &completion.text,
        prompt_tokens: completion.prompt_tokens,
        completion_tokens: completion.output_ids.len(),
        rounds: completion.rounds,
        accept_length: completion.accept_length().map(|length| accept_length(speculates, length)),
        accept_histogram: &completion.accept_histogram,
        finish_reason: completion.finish_reason.word(),
        simulated,
    }
}

/// The accept length that is shown: without speculation the first token, which needs no round, is
/// no gain.
fn accept_length(speculates: bool, counted: f64) -> f64 {
    if speculates { counted } else { 1.0 }
}

fn summarise(completions: &[Completion], simulated: bool, speculates: bool) {
    let tokens: usize = completions.iter().map(|completion| completion.output_ids.len()).sum();
    let rounds: usize = completions.iter().map(|completion| completion.rounds).sum();
    let seconds = completions.iter().map(|completion| completion.elapsed.as_secs_f64()).fold(0.0, f64::max);
    if seconds > 0.0 && rounds > 0 {
        terminal::note(&format!(
            "{tokens} tokens in {seconds:.2} s ({:.1} tokens/s), accept length {:.2}{} (generated tokens / rounds)",
            tokens as f64 / seconds,
            accept_length(speculates, tokens as f64 / rounds as f64),
            if simulated { ", simulated" } else { "" }
        ));
    }
}

#[cfg(test)]
mod tests {
    use engine::DeviceChoice;

    use super::*;

    #[test]
    fn without_speculation_the_accept_length_is_one() {
        let completion = Completion {
            output_ids: vec![1; 64],
            text: String::new(),
            prompt_tokens: 3,
            cached_tokens: 0,
            retractions: 0,
            rounds: 63,
            proposed_drafts: 0,
            accept_histogram: vec![63],
            prompt_logprobs: Vec::new(),
            finish_reason: engine::FinishReason::Length,
            queued: std::time::Duration::ZERO,
            time_to_first_token: std::time::Duration::ZERO,
            elapsed: std::time::Duration::ZERO,
        };
        assert_eq!(line(&completion, false, false).accept_length, Some(1.0));
        assert!(line(&completion, false, true).accept_length.is_some_and(|length| length > 1.0));
    }

    #[test]
    fn an_interrupted_trace_keeps_finished_texts_and_ends_with_its_own_code() {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny");
        let mut engine = Engine::load(EngineOptions {
            model_path: models.join("target"),
            draft_model_path: Some(models.join("eagle3")),
            context_length: Some(64),
            device: DeviceChoice::Cpu,
            ..EngineOptions::default()
        })
        .expect("the demo pair loads");
        // 30 positions each, of which some hundred are expanded together.
        let text = ReplayText {
            tokens: (0..40).map(|at| 20 + at * 37 % 900).collect(),
            prompt_tokens: 9,
            sampling: SamplingParams::default(),
        };
        let (texts, limits) = (vec![text; 40], [TreeShape::chain(2)]);
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("trace.jsonl");
        let mut ends_after = |calls: usize| {
            let mut left = calls;
            let mut goes_on = || {
                left = left.saturating_sub(1);
                left > 0
            };
            let exit = trace(&mut engine, &path, &limits, &texts, &mut goes_on).expect("it ends");
            (exit, path.exists().then(|| traces::read(&path).expect("it is read")[0].texts.len()))
        };
        assert_eq!(ends_after(1), (Exit::Interrupted, None));
        let part = (2..100).map(&mut ends_after).find(|(_, finished)| finished.is_some());
        let (exit, finished) = part.expect("some calls are after a finished text");
        assert!(exit == Exit::Interrupted && finished.is_some_and(|finished| finished < 40), "{finished:?}");
        assert_eq!(ends_after(usize::MAX), (Exit::Fine, Some(40)));
    }
}
