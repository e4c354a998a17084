//! Launch commands to paste: the answer in the form of each engine.

use schemas::{
    export::{Exported, Form, Tuning, export},
    launch::quoted,
    tree::TreeShape,
};
use serde::Serialize;
use tuner::configuration::{Configuration, Knobs, Load};

use crate::section::Section;

/// A launch command to paste.
#[derive(Serialize)]
pub struct Launch {
    /// The engine.
    pub engine: &'static str,
    /// The text; empty if the engine cannot run the configuration.
    pub text: String,
    /// Caveats.
    pub notes: Vec<String>,
}

/// The launch commands: complete ones if a tuned file names the models, else only the shape's flags.
pub fn launches(configuration: &Configuration, load: Load, section: &Section<'_>) -> Vec<Launch> {
    let tuned = section.sweeps.iter().find_map(|sweep| Some((sweep, sweep.tuned.as_ref()?)));
    let Some((sweep, tuned)) = tuned else {
        let speculates = configuration.shapes().any(|shape| !shape.is_off());
        return if speculates { configuration.shapes().last().map(bare).into_iter().collect() } else { Vec::new() };
    };
    let batch_size = load.batch_size();
    let mut tuning = Tuning::from(tuned);
    // The card is about this load only, regardless of the tuned file's rows for other loads.
    tuning.table = match configuration.table.as_slice() {
        [] => vec![(batch_size.unwrap_or(usize::MAX), configuration.shape)],
        rows => rows.iter().map(|row| (row.max_running_batch, row.shape)).collect(),
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
            Launch { engine, text, notes: general.into_iter().chain(notes).chain(started).collect() }
        }
        Err(reason) => Launch { engine, text: String::new(), notes: vec![format!("no launch: {reason}")] },
    });
    let path = format!("{}/tuned.toml", sweep.name.trim_end_matches('/'));
    let own = Launch {
        engine: "spectune",
        text: format!("spectune serve {}\n", quoted(&path)),
        notes: vec!["follows the whole table: the tree shape changes with the running batch".into()],
    };
    exports.chain([own]).collect()
}

/// Overrides the tuned file's settings with a configuration's.
fn apply(knobs: &Knobs, tuning: &mut Tuning) {
    let Knobs { max_running_requests, mem_fraction_static, attention_backend, page_size, chunked_prefill_size } = knobs;
    let number = |value: Option<usize>| value.and_then(|value| i64::try_from(value).ok());
    let launch = &mut tuning.launch;
    launch.max_running_requests = number(*max_running_requests).or(launch.max_running_requests);
    launch.mem_fraction_static = mem_fraction_static.map(|share| share.0).or(launch.mem_fraction_static);
    launch.attention_backend = attention_backend.clone().or(launch.attention_backend.take());
    launch.page_size = number(*page_size).or(launch.page_size);
    launch.chunked_prefill_size = number(*chunked_prefill_size).or(launch.chunked_prefill_size);
}

fn bare(shape: TreeShape) -> Launch {
    let TreeShape { num_steps, topk, num_draft_tokens } = shape;
    Launch {
        engine: "SGLang",
        text: format!(
            "--speculative-num-steps {num_steps} --speculative-eagle-topk {topk} --speculative-num-draft-tokens \
             {num_draft_tokens}\n"
        ),
        notes: vec!["the sweep has written no tuned file yet, so the models' flags are not known here".into()],
    }
}
