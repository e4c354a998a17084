//! Launch commands to paste: the answer in the form of each engine.

use std::path::Path;

use schemas::{
    export::{Exported, Form, Tuning, export},
    quoting::quoted,
    sweep::SweepModels,
    tree::TreeShape,
    tuned::TunedFile,
};
use serde::Serialize;
use tuner::trials::configuration::{Configuration, Knobs, TrialLoad};

use super::Answer;
use crate::{input::Sweep, section::Section};

/// A launch command to paste.
#[derive(Serialize)]
pub struct AnswerLaunch {
    /// The engine.
    pub engine: &'static str,
    /// The text; empty if the engine cannot run the configuration.
    pub text: String,
    /// Caveats.
    pub notes: Vec<String>,
}

/// Remarks on the launch commands of an engine.
#[derive(Serialize)]
pub struct FlagRemarks {
    /// The engine.
    engine: &'static str,
    /// The remarks, each once; one that holds for some loads only names them.
    remarks: Vec<String>,
}

/// The remarks on all launch commands, by engine: most are the same for every load.
pub fn flag_remarks(answers: &[Answer]) -> Vec<FlagRemarks> {
    let launches = |engine: &'static str| -> Vec<(&str, &AnswerLaunch)> {
        let all = answers.iter().flat_map(|answer| answer.launches.iter().map(|launch| (answer.load.as_str(), launch)));
        all.filter(|(_, launch)| launch.engine == engine && launch.has_text()).collect()
    };
    let mut engines: Vec<&'static str> = Vec::new();
    for launch in answers.iter().flat_map(|answer| &answer.launches) {
        if !engines.contains(&launch.engine) {
            engines.push(launch.engine);
        }
    }
    let of_engine = |engine: &'static str| {
        let launches = launches(engine);
        let mut notes: Vec<(&str, Vec<&str>)> = Vec::new();
        for (load, note) in
            launches.iter().flat_map(|(load, launch)| launch.notes.iter().map(move |note| (*load, note)))
        {
            match notes.iter_mut().find(|(known, _)| known == note) {
                Some((_, loads)) => loads.push(load),
                None => notes.push((note, vec![load])),
            }
        }
        let words = |(note, loads): (&str, Vec<&str>)| match loads.len() < launches.len() {
            true => format!("{}: {note}", loads.join(", ")),
            false => note.to_owned(),
        };
        FlagRemarks { engine, remarks: notes.into_iter().map(words).collect() }
    };
    engines.into_iter().map(of_engine).filter(|one| !one.remarks.is_empty()).collect()
}

impl AnswerLaunch {
    /// Whether the engine can run the configuration; if not, its notes say why.
    fn has_text(&self) -> bool {
        !self.text.is_empty()
    }
}

/// The launch commands: complete ones if a tuned file names the models, else only the shape's
/// flags.
pub fn launches(configuration: &Configuration, load: TrialLoad, section: &Section<'_>) -> Vec<AnswerLaunch> {
    let tuned = section.sweeps.iter().find_map(|sweep| Some((sweep, sweep.tuned.as_ref()?)));
    let Some((sweep, tuned)) = tuned else {
        let speculates = configuration.shapes().any(|shape| !shape.is_off());
        return if speculates { configuration.shapes().last().map(bare).into_iter().collect() } else { Vec::new() };
    };
    let batch_size = load.batch_size();
    let mut tuning = Tuning::from(tuned);
    let other = other_draft(configuration, sweep, tuned);
    if let Some(models) = &other {
        tuning.launch.speculative_algorithm = Some(models.algorithm.clone());
        tuning.launch.speculative_draft_model_path = Some(models.draft.clone()).filter(|path| !path.is_empty());
    }
    // The card is about this load only, regardless of the tuned file's rows for other loads.
    tuning.table = match configuration.table.as_slice() {
        [] => vec![(batch_size.unwrap_or(usize::MAX), configuration.shape)],
        rows => schemas::tuned::shortest_context_rows(rows.iter().map(|row| (row.max_running_batch, row.shape))),
    };
    // The verdicts are those of the tuned file's rows; the card has its own.
    tuning.verdicts.clear();
    apply(&configuration.knobs, &mut tuning);
    let mut forms = vec![("SGLang", Form::Sglang), ("slime", Form::Slime), ("vLLM", Form::Vllm)];
    if !configuration.table.is_empty() {
        forms.insert(1, ("SGLang, adaptive", Form::SglangAdaptive));
    }
    let exports = forms.into_iter().map(|(engine, form)| match export(&tuning, form, batch_size, None) {
        Ok(Exported { text, command, notes, general, .. }) => {
            let started = command.map(|command| format!("start with: {}", command.trim_end()));
            AnswerLaunch { engine, text, notes: general.into_iter().chain(notes).chain(started).collect() }
        }
        Err(reason) => AnswerLaunch { engine, text: String::new(), notes: vec![format!("no launch: {reason}")] },
    });
    let path = format!("{}/tuned.toml", sweep.name.trim_end_matches('/'));
    let own = AnswerLaunch {
        engine: "spectune",
        text: format!("spectune serve {}\n", quoted(&path)),
        notes: vec!["follows the whole table: the tree shape changes with the running batch".into()],
    };
    // The tuned file has one draft: for another one, these flags are the whole answer.
    exports.chain([own].into_iter().filter(|_| other.is_none())).collect()
}

/// The models of a configuration's draft, with an absolute path, if the tuned file has another
/// draft.
fn other_draft(configuration: &Configuration, sweep: &Sweep, tuned: &TunedFile) -> Option<SweepModels> {
    let header = sweep.header.as_ref().filter(|_| !configuration.draft.is_empty())?;
    let mut models = header.file.for_draft(&configuration.draft).models;
    if !models.draft.is_empty() {
        let path = Path::new(header.folder.as_deref().unwrap_or_default()).join(&models.draft);
        models.draft = path.canonicalize().unwrap_or(path).display().to_string();
    }
    let is_own = models.algorithm == tuned.models.algorithm && models.draft == tuned.models.draft;
    (!is_own).then_some(models)
}

/// Overrides the tuned file's settings with a configuration's.
fn apply(knobs: &Knobs, tuning: &mut Tuning) {
    let Knobs {
        max_running_requests,
        mem_fraction_static,
        attention_backend,
        page_size,
        chunked_prefill_size,
        capture_sizes,
    } = knobs;
    let number = |value: Option<usize>| value.and_then(|value| i64::try_from(value).ok());
    let numbers = |sizes: &Vec<usize>| sizes.iter().filter_map(|size| number(Some(*size))).collect();
    let launch = &mut tuning.launch;
    launch.max_running_requests = number(*max_running_requests).or(launch.max_running_requests);
    launch.mem_fraction_static = mem_fraction_static.map(|share| share.0).or(launch.mem_fraction_static);
    launch.attention_backend = attention_backend.clone().or(launch.attention_backend.take());
    launch.page_size = number(*page_size).or(launch.page_size);
    launch.chunked_prefill_size = number(*chunked_prefill_size).or(launch.chunked_prefill_size);
    launch.cuda_graph_bs = capture_sizes.as_ref().map(numbers).or(launch.cuda_graph_bs.take());
}

fn bare(shape: TreeShape) -> AnswerLaunch {
    let TreeShape { num_steps, topk, num_draft_tokens, row_budget } = shape;
    // No other engine has such a budget.
    let engine = if row_budget.is_some() { "spectune" } else { "SGLang" };
    let budget = row_budget.map_or_else(String::new, |rows| format!(" --speculative-row-budget {rows}"));
    AnswerLaunch {
        engine,
        text: format!(
            "--speculative-num-steps {num_steps} --speculative-eagle-topk {topk} --speculative-num-draft-tokens \
             {num_draft_tokens}{budget}\n"
        ),
        notes: vec!["the sweep has written no tuned file yet, so the models' flags are not known here".into()],
    }
}
