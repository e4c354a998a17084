//! Prompts that a server has not seen, for servers that cannot forget: each repeat of a load sends
//! others, the same ones to every configuration.

use std::path::Path;

use engine::Request;
use external::load::LoadArrivals;
use schemas::sweep::{SweepFile, SystemSettings};

use super::{LaunchPlan, SystemError, kept_texts};
use crate::{
    TunerError,
    results::selection::MOST_REPEATS,
    trials::{
        configuration::{Configuration, TrialLoad},
        record::Trial,
    },
    workload::{ModelText, prompt_pool::PromptPool},
};

/// The prompts of a sweep, a block of them for each repeat.
pub struct FreshPrompts {
    pool: PromptPool,
    loads: Vec<TrialLoad>,
    /// Number of prompts of a block.
    each: usize,
    /// Number of blocks; `None` for no limit.
    blocks: Option<usize>,
}

/// A block under a load: what one start of a server may be sent once.
pub type FreshBlock = (usize, TrialLoad);

impl FreshPrompts {
    /// Prompts for this many repeats of each load. `why` says in an error why they are needed.
    ///
    /// # Errors
    /// When there are too few of them, with the number that is needed.
    pub fn load(
        file: &SweepFile,
        folder: &Path,
        model: ModelText,
        loads: &[TrialLoad],
        repeats: usize,
        why: &str,
    ) -> Result<Self, TunerError> {
        let refuse = |words: &str| Err(TunerError::Configuration(format!("{why}, so {words}")));
        if loads.iter().any(|load| load.contexts().is_some()) {
            return refuse("batches in buckets of contexts cannot be measured on it: leave out batch.contexts");
        }
        // A search may add repeats.
        let most = MOST_REPEATS.max(repeats);
        let pool = PromptPool::load(&file.workload, folder, model, loads, most, 0)?;
        let each = pool.each_start() / most;
        // The prompts of a trace are one block.
        let blocks = match file.workload.trace {
            Some(_) => Some(1),
            None => pool.available().map(|available| available / each.max(1)),
        };
        if let Some(available) = pool.available().filter(|_| blocks.is_some_and(|blocks| blocks < repeats)) {
            return refuse(&format!(
                "each repeat of each load must send prompts that were not sent before: {} different ones are needed \
                 ({repeats} repeats of {each}), but the workload has {available}; give it more prompts, or lower \
                 search.repeats, workload.requests or the number of loads",
                repeats.saturating_mul(each),
            ));
        }
        let fresh = Self { pool, loads: loads.to_vec(), each, blocks };
        let last = loads.len().saturating_sub(1);
        if fresh.pool.draw(0, repeats.saturating_sub(1), last)?.repeated > 0 {
            return refuse(
                "each repeat of each load must send prompts that were not sent before, but the prompts of a trace are \
                 always the same: measure one load once (search.repeats = 1), or use workload.prompts",
            );
        }
        Ok(fresh)
    }

    /// The block of a trial: those of a file are used again by later repeats, in other starts.
    pub fn block(&self, trial: &Trial) -> FreshBlock {
        (self.blocks.map_or(trial.repeat, |blocks| trial.repeat % blocks.max(1)), trial.load)
    }

    /// The requests of a trial and their arrivals.
    ///
    /// # Errors
    /// When this start of a server was sent them before, or the load is not one of the sweep.
    pub fn requests(&self, trial: &Trial, sent: &[FreshBlock]) -> Result<(Vec<Request>, LoadArrivals), SystemError> {
        let block = self.block(trial);
        if sent.contains(&block) {
            return Err(SystemError::Unsupported(format!(
                "the server was sent the prompts of repeat {} before and keeps what it generated, so the trial would \
                 be measured warm: give the workload more prompts ({} for each repeat), or measure fewer repeats",
                trial.repeat + 1,
                self.each
            )));
        }
        let Some(at) = self.loads.iter().position(|load| *load == trial.load) else {
            return Err(SystemError::Unsupported(format!("{} is not a load of the sweep", trial.load)));
        };
        let draw = self.pool.draw(0, block.0, at).map_err(|error| SystemError::Unsupported(error.to_string()))?;
        Ok((draw.requests, draw.arrivals))
    }
}

/// Why the prompts of each repeat must be new on the servers of a sweep; `None` if they need not.
pub fn needed(plan: &LaunchPlan, settings: &SystemSettings, configurations: &[&Configuration]) -> Option<String> {
    let keeps = |one: &&&Configuration| kept_texts::outlive_a_flush(plan, settings, one);
    let one = configurations.iter().find(keeps)?;
    Some(format!("vLLM's suffix decoding ({one}) keeps the outputs of earlier requests, which no flush clears"))
}

#[cfg(test)]
mod tests {
    use schemas::text::Source;

    use super::*;

    fn load(prompts: usize, repeats: usize) -> Result<FreshPrompts, TunerError> {
        let folder = tempfile::tempdir().expect("a folder");
        let lists: Vec<[usize; 3]> = (0..prompts).map(|at| [at, 1, 2]).collect();
        std::fs::write(folder.path().join("ids.json"), serde_json::to_string(&lists).expect("JSON")).expect("a file");
        let text = "[system]\nkind = 'vllm'\ncommand = ['vllm']\n[models]\ntarget = 't'\nalgorithm = 'SUFFIX'\n\
                    [workload]\ninput_ids = 'ids.json'\nrequests = 2\noutput_length = 4\n[space]\n";
        let file = SweepFile::read(&Source::new("sweep.toml", text)).expect("a sweep file");
        let model = ModelText { text: None, end_tokens: vec![], context_length: 64, vocab_size: 1000 };
        let loads = [TrialLoad::BatchSize(1), TrialLoad::BatchSize(3)];
        FreshPrompts::load(&file, folder.path(), model, &loads, repeats, "the server keeps outputs")
    }

    fn trial(shape: &str, batch: usize, repeat: usize) -> Trial {
        let configuration = Configuration::from_shape(shape.parse().expect("a shape"));
        Trial { configuration, load: TrialLoad::BatchSize(batch), repeat }
    }

    #[test]
    fn no_trial_of_a_start_sends_a_prompt_again_and_the_baseline_sends_the_same() {
        let fresh = load(12, 2).expect("prompts");
        let of = |trial: &Trial| fresh.requests(trial, &[]).expect("requests").0;
        let mut seen = Vec::new();
        for (batch, repeat) in [(1, 0), (3, 0), (1, 1), (3, 1)] {
            let requests = of(&trial("3,1,4", batch, repeat));
            assert_eq!(requests, of(&trial("0,1,1", batch, repeat)));
            seen.extend(requests.into_iter().map(|request| request.input_ids));
        }
        let all = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!((all, seen.len()), (10, 10));
        // The file has two blocks: a third repeat sends the first one again, to another start.
        let third = trial("3,1,4", 1, 2);
        assert_eq!(of(&third), of(&trial("3,1,4", 1, 0)));
        let sent = [fresh.block(&trial("3,1,4", 1, 0))];
        assert!(fresh.requests(&third, &sent).is_err_and(|error| error.to_string().contains("measured warm")));
    }

    #[test]
    fn too_few_prompts_are_refused_with_the_number_that_is_needed() {
        let words = load(12, 3).err().expect("too few").to_string();
        assert!(words.contains("15 different ones are needed") && words.contains("has 12"), "{words}");
    }
}
