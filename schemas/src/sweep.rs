//! The sweep file: what to measure, on which workload, and what to optimise.

mod drafts;
mod engine;
mod search;
mod space;
mod system;
mod workload;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    diagnostic::Diagnostic,
    drafting::SECOND_SOURCES,
    text::Source,
    toml_file::{self, FieldError},
    tree::NodeSource,
};

pub use self::{
    drafts::{OneDraft, OneWorkload, SweepDraft},
    engine::{Acceptance, EngineSettings, SweepModels, cuda_name},
    search::{Capture, Metric, Objective, Search, StrategyName, Until},
    space::{KnobLists, Space},
    system::{SIMULATED_LENGTH, SystemKind, SystemSettings, is_server_address},
    workload::{Batch, RandomPrompts, SweepArrivals, UserTurn, Workload},
};

/// A sweep: models, workload, space, search, objective. Paths are relative to the file's own
/// folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SweepFile {
    /// The models.
    pub models: SweepModels,
    /// Several drafts that race against one another, in place of `models.draft` and
    /// `models.algorithm`. The engine is loaded, or a server started, for one draft after the
    /// other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drafts: Vec<SweepDraft>,
    /// Which engine is measured, and how it is started.
    #[serde(default)]
    pub system: SystemSettings,
    /// Engine settings.
    #[serde(default)]
    pub engine: EngineSettings,
    /// The workload.
    pub workload: Workload,
    /// Batch sizes: how many requests run together.
    #[serde(default)]
    pub batch: Batch,
    /// Open loops: requests with arrival times.
    #[serde(default)]
    pub arrivals: SweepArrivals,
    /// The tree shapes to try. No speculation and the engine's default are always measured too.
    #[serde(default)]
    pub space: Space,
    /// Engine settings to try in addition to tree shapes.
    #[serde(default)]
    pub knobs: KnobLists,
    /// The CUDA graphs that may be captured.
    #[serde(default)]
    pub capture: Capture,
    /// The search strategy.
    #[serde(default)]
    pub search: Search,
    /// What to optimise.
    #[serde(default)]
    pub objective: Objective,
}

/// Maximum batch size, request count and length; larger numbers are assumed to be mistakes.
pub const LARGEST: usize = 1 << 20;
/// Maximum number of trials that a file may span, before its budget is applied.
const MOST_TRIALS: usize = 1_000_000;

impl SweepFile {
    /// Reads a sweep file.
    ///
    /// # Errors
    /// If it is not valid TOML, or has an unknown key or an invalid value; the finding points at
    /// the place.
    pub fn read(source: &Source) -> Result<Self, Box<Diagnostic>> {
        Self::read_all(source).map_err(toml_file::first)
    }

    /// As [`read`](Self::read), with all errors that can be told, in the order of the file.
    ///
    /// # Errors
    /// At least one finding.
    pub fn read_all(source: &Source) -> Result<Self, Vec<Diagnostic>> {
        let file = toml_file::read_checked(source, Self::check)?;
        // A list of one says the same as the single form, which all else reads.
        let file = if file.drafts.len() == 1 { file.for_draft("") } else { file };
        Ok(if file.workload.prompt_files.len() == 1 { file.each_workload().swap_remove(0).file } else { file })
    }

    /// The text of a sweep file with these values, secrets hidden; what has its default is left
    /// out.
    ///
    /// # Errors
    /// When a number is too large for TOML.
    pub fn write(&self) -> Result<String, toml::ser::Error> {
        let masked = Self { system: self.system.masked(), ..self.clone() };
        let mut table = toml::Table::try_from(masked)?;
        let defaults = [
            ("system", toml::Table::try_from(SystemSettings::default())?),
            ("engine", toml::Table::try_from(EngineSettings::default())?),
            ("arrivals", toml::Table::try_from(SweepArrivals::default())?),
            ("space", toml::Table::try_from(Space::default())?),
            ("knobs", toml::Table::try_from(KnobLists::default())?),
            ("capture", toml::Table::try_from(Capture::default())?),
            ("search", toml::Table::try_from(Search::default())?),
            ("objective", toml::Table::try_from(Objective::default())?),
        ];
        for (name, default) in &defaults {
            let Some(section) = table.get_mut(*name).and_then(toml::Value::as_table_mut) else { continue };
            section.retain(|key, value| default.get(key) != Some(value));
            if section.is_empty() {
                table.remove(*name);
            }
        }
        toml::to_string(&table)
    }

    /// The batch sizes of the closed loops, ascending, each once.
    pub fn batch_sizes(&self) -> Vec<usize> {
        let mut sizes = match &self.batch.sizes {
            Some(sizes) => sizes.clone(),
            // Something has to be measured; with arrivals, closed loops are measured on request
            // only.
            None if self.arrivals.count() == 0 => vec![1],
            None => Vec::new(),
        };
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// What is wrong with the values: an error for each table, then what holds between tables.
    fn check(&self) -> Vec<FieldError> {
        let tables = [
            self.check_drafts(),
            if self.drafts.is_empty() { self.models.check() } else { Ok(()) },
            self.system.check(),
            self.engine.check(),
            self.workload.check(),
            self.check_batch(),
            self.check_contexts(),
            self.arrivals.check(&self.workload),
            if self.drafts.is_empty() { self.space.check(self.nodes()) } else { Ok(()) },
            self.knobs.check(self.system.kind),
            self.capture.check(),
            self.search.check(),
            self.objective.check(),
        ];
        // What holds between tables is checked only on sound ones, whose numbers are in range.
        let wrong: Vec<FieldError> = tables.into_iter().filter_map(Result::err).collect();
        if !wrong.is_empty() {
            return wrong;
        }
        [self.check_system(), self.check_all_run(), self.check_size()].into_iter().filter_map(Result::err).collect()
    }

    fn nodes(&self) -> NodeSource {
        NodeSource::named(&self.models.algorithm)
    }

    /// Upper bound of the number of shapes of all drafts.
    fn most_shapes(&self) -> usize {
        self.each_draft().iter().fold(0, |sum: usize, one| sum.saturating_add(one.file.space.most_shapes()))
    }

    fn check_batch(&self) -> Result<(), FieldError> {
        let Some(sizes) = &self.batch.sizes else { return Ok(()) };
        if sizes.is_empty() && self.arrivals.count() == 0 {
            return Err(FieldError::at(&["batch", "sizes"], "expected at least one batch size"));
        }
        each_within(&["batch", "sizes"], sizes, LARGEST)
    }

    fn check_contexts(&self) -> Result<(), FieldError> {
        let contexts = &self.batch.contexts;
        each_within(&["batch", "contexts"], contexts, LARGEST)?;
        if let Some(at) = contexts.windows(2).position(|pair| pair[0] >= pair[1]) {
            return Err(FieldError::at(&["batch", "contexts"], "expected ascending numbers").element(at + 1));
        }
        if !contexts.is_empty() && self.batch_sizes().is_empty() {
            let reason = "buckets of contexts are measured at batch sizes, and there are none: add batch.sizes";
            return Err(FieldError::at(&["batch", "contexts"], reason));
        }
        Ok(())
    }

    fn check_size(&self) -> Result<(), FieldError> {
        let loads = self.batch_sizes().len() * (self.batch.contexts.len() + 1) + self.arrivals.count();
        let trials = [self.knobs.count(), loads, self.search.repeats]
            .iter()
            .fold(self.most_shapes(), |product, one| product.saturating_mul(*one));
        if trials > MOST_TRIALS {
            let reason = format!("configurations × loads × repeats are {trials} trials, more than {MOST_TRIALS}");
            return Err(FieldError::at(&["space"], reason));
        }
        Ok(())
    }

    /// Rejects settings that servers do not support.
    fn check_system(&self) -> Result<(), FieldError> {
        if self.system.is_in_process() {
            return self.check_predictable();
        }
        if self.system.url.is_some() {
            self.check_nothing_varies()?;
        }
        let kind = self.system.kind.name();
        if self.models.second_source.is_some() || self.drafts.iter().any(|draft| draft.second_source.is_some()) {
            let reason = format!("{kind} drafts from one source: remove second_source");
            return Err(FieldError::at(&["models", "second_source"], reason));
        }
        if self.models.model_shape.is_some() {
            let reason =
                format!("only spectune runs random weights of a shape: {kind} needs models.target and models.draft");
            return Err(FieldError::at(&["models", "model_shape"], reason));
        }
        if !self.space.tables.is_empty() {
            let reason = format!("tables are not supported with {kind}: list their shapes instead");
            return Err(FieldError::at(&["space", "tables"], reason));
        }
        if !self.batch.contexts.is_empty() && self.search.strategy == StrategyName::Guided {
            let reason = format!(
                "a guided search over {kind} predicts batches, not contexts: use grid, random or anneal, or leave \
                 batch.contexts out"
            );
            return Err(FieldError::at(&["batch", "contexts"], reason));
        }
        Ok(())
    }

    /// Rejects a search that predicts rounds whose number of rows depends on the text.
    ///
    /// Beside a draft whose rounds can be predicted, those of a text source are measured without a
    /// prediction.
    fn check_predictable(&self) -> Result<(), FieldError> {
        let looks_up = self.each_draft().iter().all(|one| matches!(one.file.nodes(), NodeSource::Text(_)));
        let algorithm = self.each_draft().first().map_or_else(String::new, |one| one.file.models.algorithm.clone());
        if looks_up && self.search.strategy == StrategyName::Guided {
            let reason = format!(
                "a guided search cannot predict rounds of {algorithm}, whose rows depend on the text: use grid, random \
                 or anneal"
            );
            return Err(FieldError::at(&["search", "strategy"], reason));
        }
        Ok(())
    }

    /// Rejects what would vary a server that already runs.
    fn check_nothing_varies(&self) -> Result<(), FieldError> {
        let reason = |what: &str| {
            format!(
                "a server at a URL is measured as it is, so {what} cannot be varied: remove this table, or give system.command in place of system.url"
            )
        };
        if self.workload.prompt_files.len() > 1 {
            return Err(FieldError::at(
                &["workload", "prompt_files"],
                "a server at a URL is measured with one prompt file",
            ));
        }
        if self.space != Space::default() {
            return Err(FieldError::at(&["space"], reason("tree shapes")));
        }
        if self.knobs != KnobLists::default() {
            return Err(FieldError::at(&["knobs"], reason("settings")));
        }
        Ok(())
    }

    /// The same with secret values hidden, as it may be shown and stored.
    pub fn masked(&self) -> Self {
        Self { system: self.system.masked(), ..self.clone() }
    }

    /// Rejects batches larger than `max_running_requests`: with requests waiting, the measured
    /// batch would be smaller.
    fn check_all_run(&self) -> Result<(), FieldError> {
        let Some((most, sizes)) = self.engine.max_running_requests.zip(self.batch.sizes.as_ref()) else {
            return Ok(());
        };
        let Some((at, size)) = sizes.iter().enumerate().find(|(_, size)| **size > most) else { return Ok(()) };
        let reason = format!(
            "{size} requests never run together, since engine.max_running_requests is {most}: raise or remove it"
        );
        Err(FieldError::at(&["batch", "sizes"], reason).element(at))
    }
}

/// Checks `models.second_source`, of a sweep or of a tuned file, beside `models.algorithm`.
pub(crate) fn check_second_source(word: Option<&str>, algorithm: &str) -> Result<(), FieldError> {
    match word {
        Some(word) if !SECOND_SOURCES.iter().any(|known| word.eq_ignore_ascii_case(known)) => {
            Err(FieldError::word(&["models", "second_source"], word, &SECOND_SOURCES))
        }
        Some(_) if matches!(NodeSource::named(algorithm), NodeSource::Text(_)) => {
            let reason = "a second source joins look-ups with the trees of a head, and this algorithm has none";
            Err(FieldError::at(&["models", "second_source"], reason))
        }
        _ => Ok(()),
    }
}

pub(crate) fn within(path: &'static [&'static str], value: usize) -> Result<(), FieldError> {
    out_of_range(value, LARGEST).map_or(Ok(()), |reason| Err(FieldError::at(path, reason)))
}

pub(crate) fn each_within(path: &'static [&'static str], values: &[usize], largest: usize) -> Result<(), FieldError> {
    let mut reasons = values.iter().enumerate().filter_map(|(at, value)| Some((at, out_of_range(*value, largest)?)));
    reasons.next().map_or(Ok(()), |(at, reason)| Err(FieldError::at(path, reason).element(at)))
}

fn out_of_range(value: usize, largest: usize) -> Option<String> {
    let wrong = !(1..=largest).contains(&value);
    wrong.then(|| format!("{value} is out of range, expected 1 to {largest}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = r#"
[models]
target = "target"
draft = "draft"
algorithm = "EAGLE3"

[workload]
prompts = "prompts.jsonl"

[space]
num_steps = [1, 3]
topk = [1, 4]
num_draft_tokens = [4, 8]
"#;

    /// Reads `GOOD` with one text replaced; returns line, column and message of the finding.
    fn check(from: &str, to: &str) -> Result<SweepFile, (usize, usize, String)> {
        let source = Source::new("sweep.toml", GOOD.replacen(from, to, 1));
        SweepFile::read(&source).map_err(|finding| {
            let place = source.position(finding.span.start);
            (place.line, place.column, finding.message)
        })
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let file = check("", "").expect("a good file");
        assert_eq!((file.batch_sizes(), file.search.repeats, file.workload.output_length), (vec![1], 3, 128));
        assert_eq!((file.objective.metric, file.workload.chat), (Metric::Throughput, None));
    }

    #[test]
    fn errors_point_at_the_place_in_the_users_file() {
        for (from, to, line, column, message) in [
            ("[space]", "[spice]", 10, 2, "unknown key `spice`"),
            ("topk = [1, 4]", "topkk = [1, 4]", 12, 1, "unknown key `topkk`"),
            ("num_steps = [1, 3]", "num_steps = [1, \"3\"]", 11, 17, "found the text \"3\""),
            ("num_steps = [1, 3]", "num_steps = [1, 0]", 11, 17, "0 is out of range, expected 1 to 1024"),
            ("num_steps = [1, 3]", "num_steps = [1, -3]", 11, 17, "at least 0, found -3"),
            ("topk = [1, 4]", "topk = [1]\nshapes = [\"3,1,4\", \"3,1,9\"]", 13, 20, "must be num_steps + 1 = 4"),
            ("topk = [1, 4]", "topk = [1]\nshapes = [\"2000,1,2001\"]", 13, 11, "a number above 1024"),
            ("num_draft_tokens = [4, 8]", "", 10, 1, "num_draft_tokens is missing"),
            ("topk = [1, 4]", "", 10, 1, "num_steps and topk go together"),
            ("num_steps = [1, 3]\ntopk = [1, 4]", "", 12, 20, "has no effect without"),
            (
                "prompts = \"prompts.jsonl\"",
                "requests = 3",
                7,
                1,
                "exactly one of prompts, input_ids, random and trace",
            ),
            ("prompts = \"prompts.jsonl\"", "prompts = \"a\"\noutput_length = 0", 9, 17, "0 is out of range"),
            ("prompts = \"prompts.jsonl\"", "random = { input_length = 9, ratio = 1.5 }", 8, 38, "at most 1"),
            ("algorithm = \"EAGLE3\"", "", 2, 1, "`algorithm` is missing"),
            ("algorithm = \"EAGLE3\"", "algorithm = \"EAGLE3\"\ndtype = \"f32\"", 6, 9, "not one of auto, half"),
            ("[space]", "[engine]\ndevice = \"gpu\"\n[space]", 11, 10, "not one of auto, cpu, cuda, cuda:N"),
            ("[space]", "[batch]\nsizes = [1, 9999999]\n[space]", 11, 13, "9999999 is out of range"),
            (
                "[space]",
                "[engine]\nmax_running_requests = 2\n[batch]\nsizes = [2, 3]\n[space]",
                13,
                13,
                "engine.max_running_requests is 2",
            ),
            ("[space]", "[search]\nrepeats = 1048576\n[space]", 12, 1, "more than 1000000"),
            ("[space]", "[search]\nstrategy = \"best\"\n[space]", 11, 12, "`best` is not one of"),
            ("[space]", "[batch]\ncontexts = [512, 512]\n[space]", 11, 18, "ascending"),
            ("[space]", "[batch]\ncontexts = [0]\n[space]", 11, 13, "0 is out of range"),
            ("[space]", "[batch]\nsizes = []\ncontexts = [9]\n[arrivals]\nrates = [1]\n[space]", 12, 12, "batch.sizes"),
            ("[space]", "[arrivals]\nrates = [1.5, -1.0]\n[space]", 11, 15, "above 0"),
            ("[space]", "[arrivals]\nrecorded = true\n[space]", 11, 12, "only workload.trace"),
            ("[space]", "[objective]\nmetric = \"goodput\"\n[space]", 11, 10, "goodput needs a limit"),
            ("[space]", "[objective]\nitl_ms = 20\n[space]", 11, 10, "unless metric is"),
            (
                "[space]",
                "[knobs]\nattention_backend = [\"rows\", \"fa3\"]\n[space]",
                11,
                30,
                "not one of auto, rows, tiles",
            ),
            ("target = \"target\"\n", "model_shape = \"llama-3.1-8b\"\n", 3, 15, "remove target and draft"),
        ] {
            let found = check(from, to).expect_err(to);
            assert_eq!((found.0, found.1), (line, column), "{to}: {}", found.2);
            assert!(found.2.contains(message), "{to}: {}", found.2);
        }
    }

    /// Places and messages of all errors of a text.
    fn all(text: &str) -> Vec<String> {
        let source = Source::new("sweep.toml", text);
        let place = |at| {
            let place = source.position(at);
            format!("{}:{}", place.line, place.column)
        };
        let findings = SweepFile::read_all(&source).expect_err(text);
        findings.iter().map(|finding| format!("{} {}", place(finding.span.start), finding.message)).collect()
    }

    #[test]
    fn all_errors_of_a_file_are_found_in_its_order() {
        let text = "[models]\ntargt = 't'\ndraft = 3\nalgorithm = 'EAGLE3'\n[engine]\ndevice = 'gpu'\n[workload]\n\
                    prompts = 'p'\nrequests = 0\n[space]\nnum_steps = [1, '3']\ntopkk = [1]\n[spice]\na = 1\n\
                    [search]\nrepeats = 'many'\nstrategy = 'best'\n[[objective]]\n";
        let found = all(text);
        let starts = [
            "2:1 unknown key `targt`",
            "3:9 expected a text in quotes, found 3",
            "6:10 \"gpu\" is not one of",
            "9:12 0 is out of range",
            "11:17 expected a whole number",
            "12:1 unknown key `topkk`",
            "13:2 unknown key `spice`",
            "16:11 expected a whole number",
            "17:12 `best` is not one of",
        ];
        for start in starts {
            assert!(found.iter().any(|line| line.starts_with(start)), "{start}: {found:#?}");
        }
        // `target` is missing, and the objective is a list.
        assert!(found.len() <= starts.len() + 2, "{found:#?}");
        let lines = |line: &String| line.split(':').next().and_then(|line| line.parse::<usize>().ok());
        assert!(found.iter().map(lines).collect::<Vec<_>>().is_sorted(), "{found:#?}");
    }

    #[test]
    fn a_missing_table_hides_no_other_error() {
        let text = "[models]\ntarget = 't'\ndraft = 'd'\nalgorithm = 'EAGLE3'\n[engine]\ndevice = 'gpu'\n\
                    [search]\nrepeats = 'x'\n";
        let found = all(text);
        let starts = ["1:1 the key `workload` is missing", "6:10 \"gpu\"", "8:11 expected a whole number"];
        assert_eq!(found.len(), starts.len(), "{found:#?}");
        for (found, start) in found.iter().zip(starts) {
            assert!(found.starts_with(start), "{found} is not {start}");
        }
    }

    #[test]
    fn one_error_is_reported_once() {
        for (from, to) in [
            ("topk = [1, 4]", "topkk = [1, 4]"),
            ("[workload]", "[wrkload]"),
            ("target = \"target\"", "target = 3"),
            ("algorithm = \"EAGLE3\"", ""),
            ("prompts = \"prompts.jsonl\"", "prompts = prompts.jsonl"),
        ] {
            let found = all(&GOOD.replacen(from, to, 1));
            assert!(found.len() == 1 || to == "[wrkload]" && found.len() == 2, "{to}: {found:#?}");
        }
    }

    proptest! {
        #[test]
        fn no_broken_file_panics(at in 0..400_usize, cut in 0..40_usize, put in "[\\[\\]{}=\"',.#a-z0-9\n äé-]{0,12}") {
            let text = GOOD.to_owned() + "[batch]\nsizes = [1]\n[search]\nstrategy = \"grid\"\n[objective]\n";
            let (from, to) = (at.min(text.len()), (at + cut).min(text.len()));
            let broken = format!("{}{put}{}", &text[..from], &text[to..]);
            let _ = crate::kind::FileKind::from_text(&broken);
            let source = Source::new("sweep.toml", broken);
            if let Err(finding) = SweepFile::read(&source) {
                prop_assert!(finding.span.end <= source.text().len());
                prop_assert!(!finding.message.contains("usize") && !finding.message.contains("struct "));
            }
        }

        #[test]
        fn no_list_of_numbers_panics(steps in numbers(), topk in numbers(), drafts in numbers(), shape in numbers()) {
            let shape: Vec<String> = shape.iter().map(ToString::to_string).collect();
            let space = format!(
                "num_steps = {steps:?}\ntopk = {topk:?}\nnum_draft_tokens = {drafts:?}\nshapes = [\"{}\"]",
                shape.join(",")
            );
            let text = GOOD.split("num_steps").next().unwrap_or_default().to_owned() + &space;
            let _ = SweepFile::read(&Source::new("sweep.toml", text));
        }
    }

    fn numbers() -> impl Strategy<Value = Vec<i64>> {
        prop::collection::vec(prop_oneof![0..9_i64, Just(i64::MAX), any::<i64>()], 0..4)
    }
}
