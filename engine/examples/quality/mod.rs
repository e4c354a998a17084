//! What the examples that compare a changed target with the original one share: their arguments,
//! and accept lengths.

use std::{env, fs, path::PathBuf};

use engine::{
    DeviceChoice, Engine, EngineError, EngineOptions, Request, SamplingParams, ShapePolicy, StopConditions,
    backend::cpu::Quality,
};

/// `FOLDER [PROMPTS.json [NEW_TOKENS [DRAFT ALGORITHM SHAPE]]]`.
pub struct Comparison {
    /// The target's folder.
    pub folder: PathBuf,
    /// Token ids of each prompt.
    pub prompts: Vec<Vec<u32>>,
    /// Tokens by which each prompt is continued.
    pub new_tokens: usize,
    draft: Option<Draft>,
}

struct Draft {
    folder: PathBuf,
    algorithm: String,
    policy: ShapePolicy,
}

impl Comparison {
    /// The arguments of the command line.
    ///
    /// # Errors
    /// When one is missing or cannot be read.
    pub fn from_arguments() -> Result<Self, EngineError> {
        let mut arguments = env::args().skip(1);
        let folder = arguments.next().map(PathBuf::from).ok_or_else(|| wrong("give the folder of a target"))?;
        let prompts = match arguments.next() {
            None => (0..4_u32).map(|seed| (0..32).map(|at| (at * at * 31 + seed * 97) % 500 + 2).collect()).collect(),
            Some(path) => {
                let text =
                    fs::read_to_string(&path).map_err(|source| EngineError::Read { path: path.into(), source })?;
                serde_json::from_str(&text).map_err(|error| wrong(&format!("not a list of token-id lists: {error}")))?
            }
        };
        let new_tokens =
            arguments.next().map_or(Ok(64), |count| count.parse()).map_err(|_| wrong("a number of tokens"))?;
        let draft = match (arguments.next(), arguments.next(), arguments.next()) {
            (None, ..) => None,
            (Some(folder), Some(algorithm), Some(shape)) => {
                let shape = shape.parse().map_err(|_| wrong("a shape such as 3,1,4"))?;
                Some(Draft { folder: folder.into(), algorithm, policy: ShapePolicy::fixed(shape) })
            }
            _ => return Err(wrong("give the algorithm and the shape of the draft too")),
        };
        Ok(Self { folder, prompts, new_tokens, draft })
    }

    /// Output tokens / rounds of the prompts, bonus tokens included, with these options; `None`
    /// without a draft.
    ///
    /// # Errors
    /// When the models cannot be loaded or run.
    pub fn accept_length(&self, options: EngineOptions) -> Result<Option<f64>, EngineError> {
        let Some(Draft { folder, algorithm, policy }) = &self.draft else { return Ok(None) };
        let mut engine = Engine::load(EngineOptions {
            model_path: self.folder.clone(),
            draft_model_path: Some(folder.clone()),
            algorithm: Some(algorithm.clone()),
            policy: policy.clone(),
            device: DeviceChoice::Cpu,
            max_running_requests: 8,
            ..options
        })?;
        let max_new_tokens = Some(self.new_tokens);
        let stop = StopConditions { max_new_tokens, ignore_eos: true, ..StopConditions::default() };
        let request = |prompt: &Vec<u32>| Request {
            input_ids: prompt.clone(),
            sampling: SamplingParams::default(),
            stop: stop.clone(),
        };
        let done = engine.run(self.prompts.iter().map(request).collect())?;
        let rounds: usize = done.iter().map(|completion| completion.rounds).sum();
        let tokens: usize = done.iter().map(|completion| completion.output_ids.len()).sum();
        Ok(Some(tokens as f64 / rounds.max(1) as f64))
    }
}

/// Prints how far a changed target is from the plain one.
pub fn print(found: &Quality, changed: &str) {
    println!("  positions compared             {}", found.positions);
    println!("  largest difference of logits   {:.4}", found.largest);
    println!("  mean difference of logits      {:.4} (mean size of a logit {:.4})", found.mean, found.mean_logit);
    println!("  {:<30} {:.6} nats", format!("mean KL(plain || {changed})"), found.divergence);
    println!("  same greedy token              {:.2}%", 100.0 * found.same_token);
}

/// Prints an accept length.
pub fn print_accept_length(accepted: f64) {
    println!("  accept length                  {accepted:.3}");
}

fn wrong(reason: &str) -> EngineError {
    EngineError::Configuration(reason.into())
}
