//! Describes what a sweep measured, from its sweep file.

use schemas::sweep::{Metric, Objective, SweepDraft, SweepFile, SweepModels, Workload};

use super::Sweep;
use crate::{figures, names};

impl Sweep {
    /// Facts as pairs of label and value; empty without the sweep file.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let Some(file) = self.file() else { return Vec::new() };
        let mut facts = vec![
            ("target", file.models.target.clone()),
            (if file.drafts.is_empty() { "draft" } else { "drafts" }, drafts(file)),
            ("dtype", dtype(&file.models)),
            ("prompts", prompts(&file.workload)),
            ("requests", requests(&file.workload, &file.batch_sizes())),
            ("sampling", sampling(&file.workload)),
            (
                "search",
                format!(
                    "{}, {}",
                    file.search.strategy.name(),
                    figures::counted(file.search.repeats, "repeat", "repeats")
                ),
            ),
            ("objective", objective(&file.objective)),
        ];
        if let Some(planned) = self.planned() {
            facts.push(("trials", format!("{} finished of {planned} planned", self.records.len())));
        }
        let ended = self.tuned.as_ref().map(|tuned| tuned.measured.search.as_str()).unwrap_or_default();
        if !ended.is_empty() {
            facts.push(("ended", ended.to_owned()));
        }
        facts
    }
}

/// The drafts with their algorithms; of several, each after its name.
fn drafts(file: &SweepFile) -> String {
    let one = |name: &str, models: &SweepModels| match (name, models.draft.as_str()) {
        ("", path) => format!("{path} ({})", models.algorithm),
        (name, "") => format!("{name} ({})", models.algorithm),
        (name, path) => format!("{name}: {path} ({})", models.algorithm),
    };
    file.each_draft().iter().map(|each| one(&each.name, &each.file.models)).collect::<Vec<_>>().join("; ")
}

fn dtype(models: &SweepModels) -> String {
    let SweepModels { dtype, quantization, fp8_compute, kv_cache_dtype, .. } = models;
    let weights = quantization.as_ref().map(|name| format!("weights quantised to {name} when loaded"));
    let compute = match fp8_compute.as_deref() {
        Some("products") => {
            Some("layers in fp8 multiply activations rounded to fp8 (fp8_compute = products)".to_owned())
        }
        _ => None,
    };
    // `auto` is the type of the model, which is named already.
    let cache = kv_cache_dtype.as_ref().filter(|name| *name != "auto").map(|name| format!("KV cache as {name}"));
    match [weights, compute, cache].into_iter().flatten().collect::<Vec<_>>() {
        none if none.is_empty() => dtype.clone(),
        some => format!("{dtype}; {}: outputs match the quantised target", some.join(", ")),
    }
}

impl Sweep {
    /// A short description of the workload; `None` without the sweep file.
    pub fn workload(&self) -> Option<String> {
        let workload = &self.file()?.workload;
        let from = self.prompts()?;
        let length = figures::count(workload.output_length as u64);
        let requests = figures::counted(workload.requests, "request", "requests");
        let most = if workload.ignore_eos { "" } else { "at most " };
        Some(format!("{from}, {requests} of {most}{length} new tokens, {}", sampling(workload)))
    }

    /// The name of the file of its prompts, or what they are; `None` without the sweep file.
    pub fn prompts(&self) -> Option<String> {
        let workload = &self.file()?.workload;
        let from = [&workload.prompts, &workload.input_ids, &workload.trace].into_iter().flatten().next();
        match (from, &workload.random) {
            (Some(path), _) => Some(path.rsplit(['/', '\\']).next().unwrap_or(path).to_owned()),
            (None, Some(random)) => {
                Some(format!("random prompts of {} tokens", figures::count(random.input_length as u64)))
            }
            (None, None) => None,
        }
    }

    /// Display names of target and draft; `None` without the sweep file.
    pub fn models(&self) -> Option<String> {
        let models = &self.file()?.models;
        if let Some(shape) = &models.model_shape {
            return Some(format!("random weights of {shape} ({})", models.algorithm));
        }
        if let (false, Some(file)) = (models.target.is_empty(), self.file().filter(|file| file.has_several_drafts())) {
            let drafts: Vec<String> = file.drafts.iter().map(SweepDraft::display_name).collect();
            return Some(format!("{} with drafts {}", names::model(&models.target), drafts.join(", ")));
        }
        let [target, draft] = [&models.target, &models.draft].map(|path| names::model(path));
        Some(format!("{target} with {draft} ({})", models.algorithm))
    }
}

fn objective(objective: &Objective) -> String {
    match objective.metric {
        Metric::Throughput => "throughput: output tokens per second over all requests, higher is better".into(),
        Metric::Latency => "latency: median end-to-end time of a request, lower is better".into(),
        Metric::Goodput => {
            let limit = |name: &str, limit: Option<f64>| limit.map(|limit| format!("{name} ≤ {limit} ms"));
            let limits = [limit("time to first token", objective.ttft_ms), limit("inter-token time", objective.itl_ms)];
            format!(
                "goodput: output tokens per second of the requests with {}, higher is better",
                limits.into_iter().flatten().collect::<Vec<_>>().join(" and ")
            )
        }
        Metric::Pareto => "pareto: throughput against speed per user; ranked by throughput".into(),
    }
}

fn prompts(workload: &Workload) -> String {
    let template = match workload.chat {
        Some(true) => ", in the chat template",
        Some(false) => "",
        None => ", conversations in the chat template where the target has one",
    };
    match (&workload.prompts, &workload.input_ids, &workload.random, &workload.trace) {
        (Some(path), ..) => format!("{path}{template}"),
        (_, Some(path), ..) => format!("{path} (token ids)"),
        (_, _, Some(random), _) => format!(
            "random tokens, {} at most: accept lengths on them say nothing about text",
            figures::count(random.input_length as u64)
        ),
        (_, _, _, Some(path)) => format!("{path} (a trace of requests)"),
        (None, None, None, None) => figures::MISSING.into(),
    }
}

/// The number of requests. Larger batches send as many requests as their size.
fn requests(workload: &Workload, batch_sizes: &[usize]) -> String {
    let larger: Vec<String> =
        batch_sizes.iter().filter(|size| **size > workload.requests).map(|size| figures::count(*size as u64)).collect();
    let larger = match larger.as_slice() {
        [] => String::new(),
        [size] => format!(" ({size} at batch {size}, repeating them)"),
        sizes => format!(" (at batches of {} as many as run, repeating them)", sizes.join(" and ")),
    };
    let length = figures::count(workload.output_length as u64);
    let end = if workload.ignore_eos { "exactly" } else { "at most" };
    format!("{} per trial{larger}, {end} {length} new tokens each", figures::count(workload.requests as u64))
}

fn sampling(workload: &Workload) -> String {
    if workload.temperature == 0.0 {
        return "greedy".into();
    }
    let mut text = format!("temperature {}", workload.temperature);
    if workload.top_p < 1.0 {
        text.push_str(&format!(", top-p {}", workload.top_p));
    }
    if workload.top_k > 0 {
        text.push_str(&format!(", top-k {}", workload.top_k));
    }
    text
}

#[cfg(test)]
mod tests {
    use schemas::{sweep::SweepFile, text::Source};

    use super::*;

    #[test]
    fn requests_are_reported_as_they_are_sent() {
        let check = |sizes: &str, expected: &str| {
            let text = format!(
                "[models]\ntarget = 't'\ndraft = 'd'\nalgorithm = 'EAGLE3'\n\
                 [workload]\nprompts = 'p'\nrequests = 6\noutput_length = 32\n[batch]\nsizes = {sizes}"
            );
            let file = SweepFile::read(&Source::new("sweep.toml", text)).expect("a sweep file");
            let found = requests(&file.workload, &file.batch_sizes());
            assert_eq!(found, format!("{expected} 32 new tokens each"), "{sizes}");
        };
        check("[1, 6]", "6 per trial, exactly");
        check("[2, 100]", "6 per trial (100 at batch 100, repeating them), exactly");
        check("[2, 8, 100]", "6 per trial (at batches of 8 and 100 as many as run, repeating them), exactly");
    }
}
