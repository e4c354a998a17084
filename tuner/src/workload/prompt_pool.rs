//! The requests of each trial on a server that keeps what it has served: prompts of a file are
//! drawn without replacement, random ones with new seeds, so that no repeat finds its prompts in
//! the server's cache. What warms up are other prompts too.

use std::{collections::HashSet, path::Path};

use engine::Request;
use external::load::LoadArrivals;
use schemas::sweep;

use super::{LoadedWorkload, ModelText};
use crate::{TunerError, trials::configuration::TrialLoad};

/// The requests of a trial.
pub struct Draw {
    /// In the order in which they are sent.
    pub requests: Vec<Request>,
    /// Tokens that each prompt has in common with the beginning of another one.
    pub common: Vec<u64>,
    /// Requests whose prompt is also sent by an earlier trial.
    pub repeated: usize,
    /// How they arrive.
    pub arrivals: LoadArrivals,
}

/// Where the requests of a measurement come from.
pub struct PromptPool {
    workload: sweep::Workload,
    folder: std::path::PathBuf,
    model: ModelText,
    loads: Vec<TrialLoad>,
    repeats: usize,
    /// Different prompts of a file with their common beginnings, in its order; empty for random
    /// prompts and traces.
    pool: Vec<(Request, u64)>,
    /// The prompts of a trace.
    traced: HashSet<Vec<u32>>,
    /// Prompts of the file that were skipped.
    pub left_out: usize,
}

impl PromptPool {
    /// Reads the prompts that a measurement needs. `starts` counts how often it was started before.
    /// Prompts of a file that do not fit the server's context are skipped: it cannot be started
    /// with another one.
    ///
    /// # Errors
    /// When a file cannot be read, or no prompt of it fits the context.
    pub fn load(
        workload: &sweep::Workload,
        folder: &Path,
        model: ModelText,
        loads: &[TrialLoad],
        repeats: usize,
        starts: usize,
    ) -> Result<Self, TunerError> {
        let is_file = workload.prompts.is_some() || workload.input_ids.is_some();
        let mut workload = workload.clone();
        if is_file {
            let fits = model.context_length.saturating_sub(workload.output_length).max(1);
            workload.max_prompt_tokens = Some(workload.max_prompt_tokens.map_or(fits, |most| most.min(fits)));
        }
        let mut prompts = Self {
            workload: workload.clone(),
            folder: folder.to_owned(),
            model,
            loads: loads.to_vec(),
            repeats,
            pool: Vec::new(),
            traced: HashSet::new(),
            left_out: 0,
        };
        let needed = if is_file { prompts.each_start().saturating_mul(starts + 1) } else { workload.requests };
        let mut requested = sweep::Workload { requests: needed.min(sweep::LARGEST), ..workload.clone() };
        loop {
            let loaded = LoadedWorkload::load(&requested, folder, &prompts.model)?;
            prompts.left_out = loaded.left_out;
            if !is_file {
                if workload.trace.is_some() {
                    prompts.traced = loaded.requests.into_iter().map(|one| one.input_ids).collect();
                }
                return Ok(prompts);
            }
            let is_all = loaded.prompts < requested.requests || requested.requests == sweep::LARGEST;
            let mut seen = HashSet::new();
            let fresh = loaded.requests.into_iter().filter(|one| seen.insert(one.input_ids.clone()));
            let fresh: Vec<Request> = fresh.collect();
            if fresh.len() >= needed || is_all {
                let common = common(&fresh);
                prompts.pool = fresh.into_iter().zip(common).collect();
                return Ok(prompts);
            }
            // The file repeats prompts: more of it is read.
            requested.requests = requested.requests.saturating_mul(2).min(sweep::LARGEST);
        }
    }

    /// Number of different prompts of the file; `None` if prompts are random or of a trace.
    pub fn available(&self) -> Option<usize> {
        (!self.pool.is_empty()).then_some(self.pool.len())
    }

    /// Number of prompts that all trials of a start need.
    pub fn each_start(&self) -> usize {
        let each: usize = self.loads.iter().map(|load| self.requests_for(*load)).sum();
        each.saturating_mul(self.repeats)
    }

    /// The requests of the trials of a block: one load and repeat, the same ones for all servers.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn draw(&self, start: usize, repeat: usize, load: usize) -> Result<Draw, TunerError> {
        let each: usize = self.loads.iter().map(|load| self.requests_for(*load)).sum();
        let before: usize = self.loads.iter().take(load).map(|load| self.requests_for(*load)).sum();
        let offset = start * self.each_start() + repeat * each + before;
        let count = self.requests_for(self.loads[load]);
        let seed = self.workload.seed.wrapping_add(offset as u64);
        let (requests, common, repeated, recorded) = match self.pool.as_slice() {
            [] => {
                let (loaded, repeated) = self.at_random(seed, count, offset == 0)?;
                let common = common(&loaded.requests);
                (loaded.requests, common, repeated, loaded.recorded)
            }
            pool => {
                let drawn = (offset..offset + count).map(|at| (at >= pool.len(), &pool[at % pool.len()]));
                let repeated = drawn.clone().filter(|(repeated, _)| *repeated).count();
                let common = drawn.clone().map(|(_, (_, common))| *common).collect();
                let requests = drawn.zip(seed..).map(|((_, (request, _)), seed)| {
                    let mut request = request.clone();
                    request.sampling.seed = seed;
                    request
                });
                (requests.collect(), common, repeated, Vec::new())
            }
        };
        let load = self.loads[load];
        let timed = LoadedWorkload {
            requests,
            recorded,
            seed: self.workload.seed,
            warm_up_tokens: 0,
            hash: String::new(),
            left_out: 0,
            prompts: count,
        };
        let arrivals = match (load.batch_size(), timed.arrivals(load, repeat)) {
            (Some(batch), _) => LoadArrivals::Closed(batch),
            (None, Some(times)) => LoadArrivals::Open(times),
            (None, None) => {
                return Err(TunerError::Configuration("only workload.trace has recorded arrival times".into()));
            }
        };
        Ok(Draw { requests: timed.requests, common, repeated, arrivals })
    }

    /// Random prompts, or those of a trace, with the number that an earlier trial sends too.
    fn at_random(&self, seed: u64, count: usize, is_first: bool) -> Result<(LoadedWorkload, usize), TunerError> {
        let settings = sweep::Workload { requests: count, seed, ..self.workload.clone() };
        let loaded = LoadedWorkload::load(&settings, &self.folder, &self.model)?;
        let is_old = |request: &&Request| !is_first && self.traced.contains(&request.input_ids);
        let repeated = loaded.requests.iter().filter(is_old).count();
        Ok((loaded, repeated))
    }

    /// Number of requests of a trial: at least as many as run together.
    fn requests_for(&self, load: TrialLoad) -> usize {
        self.workload.requests.max(load.batch_size().unwrap_or_default())
    }
}

/// A request for a warm-up, whose prompt has nothing in common with the one that is measured: the
/// reversed beginning of it, of at most this many tokens.
pub fn other_prompt(request: &Request, most_tokens: usize) -> Request {
    let mut request = request.clone();
    request.input_ids.truncate(most_tokens);
    request.input_ids.reverse();
    request
}

/// Tokens that each prompt has in common with the beginning of another one.
pub fn common(requests: &[Request]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..requests.len()).collect();
    // Among sorted lists, the one with the longest common beginning is a neighbour.
    order.sort_by(|one, other| requests[*one].input_ids.cmp(&requests[*other].input_ids));
    let mut longest = vec![0; requests.len()];
    for pair in order.windows(2) {
        let (one, other) = (&requests[pair[0]].input_ids, &requests[pair[1]].input_ids);
        let same = one.iter().zip(other).take_while(|(one, other)| one == other).count() as u64;
        for at in pair {
            longest[*at] = same.max(longest[*at]);
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompts(lists: &[&[u32]], loads: &[usize], repeats: usize, starts: usize) -> PromptPool {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("ids.json"), serde_json::to_string(lists).expect("JSON")).expect("a file");
        let text = "[system]\nkind='sglang'\nurl='http://h'\n[models]\ntarget='t'\ndraft='d'\nalgorithm='EAGLE3'\n\
                    [workload]\ninput_ids='ids.json'\nrequests=2\noutput_length=4\n";
        let file = schemas::sweep::SweepFile::read(&schemas::text::Source::new("s", text)).expect("a sweep file");
        let model = ModelText { text: None, end_tokens: vec![], context_length: 64, vocab_size: 1000 };
        let loads: Vec<TrialLoad> = loads.iter().map(|size| TrialLoad::BatchSize(*size)).collect();
        PromptPool::load(&file.workload, folder.path(), model, &loads, repeats, starts).expect("prompts")
    }

    fn first_tokens(draw: &Draw) -> Vec<u32> {
        draw.requests.iter().map(|request| request.input_ids[0]).collect()
    }

    #[test]
    fn no_prompt_is_drawn_twice_until_the_file_is_used_up() {
        let lists: Vec<Vec<u32>> = (0..7).map(|at| vec![at, 1, 2]).collect();
        let lists: Vec<&[u32]> = lists.iter().map(Vec::as_slice).collect();
        let prompts = prompts(&lists, &[1, 3], 2, 0);
        assert_eq!((prompts.each_start(), prompts.available()), (10, Some(7)));
        let draw = |repeat, load| prompts.draw(0, repeat, load).expect("a draw");
        assert_eq!((first_tokens(&draw(0, 0)), draw(0, 0).repeated), (vec![0, 1], 0));
        assert_eq!((first_tokens(&draw(0, 1)), draw(0, 1).repeated), (vec![2, 3, 4], 0));
        assert_eq!((first_tokens(&draw(1, 0)), draw(1, 0).repeated), (vec![5, 6], 0));
        assert_eq!((first_tokens(&draw(1, 1)), draw(1, 1).repeated), (vec![0, 1, 2], 3));
    }

    #[test]
    fn prompts_that_do_not_fit_the_context_are_skipped_and_counted() {
        // The context has 64 tokens, of which 4 are new.
        let lists: Vec<Vec<u32>> = [60, 61, 200, 2, 3].map(|length| vec![7; length]).into();
        let lists: Vec<&[u32]> = lists.iter().map(Vec::as_slice).collect();
        let prompts = prompts(&lists, &[1], 1, 1);
        assert_eq!((prompts.available(), prompts.left_out), (Some(3), 2));
    }

    #[test]
    fn equal_prompts_count_once_and_a_later_start_draws_others() {
        let lists: [&[u32]; 6] = [&[1, 5], &[1, 5], &[2, 5, 6], &[2, 5, 7], &[3], &[4]];
        let prompts = prompts(&lists, &[1], 1, 1);
        assert_eq!(prompts.available(), Some(5));
        let draws = [0, 1].map(|start| prompts.draw(start, 0, 0).expect("a draw"));
        assert_eq!(draws.iter().map(first_tokens).collect::<Vec<_>>(), [[1, 2], [2, 3]]);
        assert_eq!((draws[0].common.as_slice(), draws[1].repeated), ([0, 2].as_slice(), 0));
    }
}
