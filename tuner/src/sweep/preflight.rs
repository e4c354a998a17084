//! What a sweep refuses before it loads anything, each with the key of the sweep file that is to
//! blame. The linter and the sweep both ask here.

use std::path::Path;

use engine::{EngineOptions, load};
use schemas::{paths::tidy, sweep::SweepFile};

use super::SweepInputs;
use crate::{
    space::settings,
    system::server,
    workload::{self, LoadedWorkload, ModelText},
};

/// A value of a sweep file that a sweep refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepRefusal {
    /// The key.
    pub key: &'static [&'static str],
    /// The element of the list at the key.
    pub element: Option<usize>,
    /// What is wrong.
    pub reason: String,
    /// What to do, if the reason does not say it.
    pub help: Option<String>,
}

impl SweepRefusal {
    fn at(key: &'static [&'static str], reason: impl ToString) -> Self {
        Self { key, element: None, reason: reason.to_string(), help: None }
    }
}

/// Checks models, prompts and space of a sweep file whose files and models exist. Only headers of
/// checkpoints are read. Paths are relative to `folder`.
pub fn refusals(file: &SweepFile, folder: &Path) -> Vec<SweepRefusal> {
    let inputs = SweepInputs { file: file.clone(), folder: folder.to_owned(), shard: None, device: None };
    let mut refusals = Vec::new();
    let imported = match inputs.imported() {
        Ok(imported) => imported,
        Err(error) => return vec![SweepRefusal::at(&["models", "acceptance"], error)],
    };
    for (at, path) in file.space.tables.iter().enumerate() {
        if let Err(error) = inputs.table(path) {
            refusals.push(SweepRefusal { element: Some(at), ..SweepRefusal::at(&["space", "tables"], error) });
        }
    }
    // Every later check reads the tables, and would report the same again.
    if !refusals.is_empty() {
        return refusals;
    }
    let mut space = match inputs.space(imported.as_ref()) {
        Ok(space) => space,
        Err(error) => return vec![SweepRefusal::at(model_key(file), error)],
    };
    match inputs.options(&space) {
        Err(error) => refusals.push(SweepRefusal::at(&["engine"], error)),
        Ok(options) => {
            if file.models.model_shape.is_none() {
                // Of several drafts, one that cannot be loaded only takes no part.
                if !file.has_several_drafts() {
                    refusals.extend(models(file, &options));
                }
                refusals.extend(requests(file, folder, &options));
            }
        }
    }
    refusals.extend(server::refusal(&file.system).map(|reason| SweepRefusal::at(&["system", "command"], reason)));
    let experiment = inputs.experiment(&mut space);
    refusals.extend(experiment.err().map(|error| SweepRefusal::at(&["search", "trials"], error)));
    refusals
}

fn model_key(file: &SweepFile) -> &'static [&'static str] {
    if file.models.model_shape.is_some() { &["models", "model_shape"] } else { &["models", "target"] }
}

/// What is wrong with the models, if spectune's own engine runs them; other engines know other
/// models.
fn models(file: &SweepFile, options: &EngineOptions) -> Option<SweepRefusal> {
    if !file.system.is_in_process() {
        return None;
    }
    // First without the requested context length, to see which of the two keys is wrong.
    let whole = EngineOptions { context_length: None, ..options.clone() };
    if let Err(error) = load::target_context_length(&whole) {
        return Some(SweepRefusal::at(&["models", "target"], error));
    }
    if let Err(error) = load::target_context_length(options) {
        return Some(SweepRefusal::at(&["engine", "context_length"], error));
    }
    let error = load::draft_algorithm(options).err()?;
    let Some(draft) = &options.draft_model_path else { return Some(SweepRefusal::at(&["models", "algorithm"], error)) };
    // Whether the algorithm or the draft is wrong.
    let any = EngineOptions { algorithm: None, ..options.clone() };
    Some(match load::draft_algorithm(&any) {
        Ok(Some(found)) => SweepRefusal {
            help: Some(format!("write algorithm = \"{found}\", or give another draft")),
            ..SweepRefusal::at(
                &["models", "algorithm"],
                format!(
                    "algorithm is {}, but {} holds a draft for {found} (judging by its tensors)",
                    file.models.algorithm,
                    tidy(draft).display()
                ),
            )
        },
        Ok(None) => SweepRefusal::at(&["models", "draft"], error),
        Err(error) => SweepRefusal::at(&["models", "draft"], error),
    })
}

/// What is wrong with the workload: unreadable prompts, no tokenizer, prompts that do not fit the
/// context, buckets of contexts that no request reaches.
fn requests(file: &SweepFile, folder: &Path, options: &EngineOptions) -> Option<SweepRefusal> {
    let model = match ModelText::open(&options.model_path, file.engine.context_length) {
        Ok(model) => model,
        Err(error) => return Some(SweepRefusal::at(&["models", "target"], error)),
    };
    let error = match LoadedWorkload::load(&file.workload, folder, &model) {
        Ok(loaded) => {
            let empty = loaded.check_buckets(&settings::loads(file), &workload::name(&file.workload, folder));
            return empty.err().map(|error| SweepRefusal::at(&["batch", "contexts"], error));
        }
        Err(error) => error,
    };
    let sources: [(&'static [&'static str], bool); 4] = [
        (&["workload", "prompts"], file.workload.prompts.is_some()),
        (&["workload", "input_ids"], file.workload.input_ids.is_some()),
        (&["workload", "trace"], file.workload.trace.is_some()),
        (&["workload", "random"], file.workload.random.is_some()),
    ];
    let key = sources.into_iter().find(|(_, given)| *given).map_or(&["workload"][..], |(key, _)| key);
    Some(SweepRefusal::at(key, error))
}
