//! What determines the result of a run: recorded in its folder, so that a run continues only as it
//! was started.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use engine::Engine;
use schemas::train::{Stop, TrainAnswers, TrainFile, Training};
use serde::{Deserialize, Serialize};
use serde_json::{Value, to_value};

use crate::{error::TrainingError, texts::Placements};

/// The version of the record. Format 1 had a hash of all settings of its version.
const FORMAT: u32 = 2;

/// What determines the result of a run.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct RunMeaning {
    format: u32,
    /// The version of spectune that started it.
    spectune: String,
    /// The settings of the training file that change the result, by their dotted keys.
    settings: BTreeMap<String, Value>,
    /// Hash of the target and the draft.
    models: String,
    /// Hash of the prompts, their roles and their known answers.
    prompts: String,
}

#[derive(Deserialize)]
struct MeaningFormat {
    format: u32,
}

impl RunMeaning {
    /// Of a run that starts now.
    pub fn new(file: &TrainFile, engine: &Engine, placements: &Placements) -> Self {
        let models = [engine.identity().target.as_str(), engine.identity().draft.as_deref().unwrap_or_default()];
        let prompts = placements.prompts.iter().map(|placed| {
            let request = &placed.prompt.request;
            format!("{} {:?} {:?} {:?}", placed.set, placed.role, request.input_ids, placed.prompt.answer)
        });
        Self {
            format: FORMAT,
            spectune: env!("CARGO_PKG_VERSION").into(),
            settings: settings(file),
            models: hash(models.into_iter().map(str::to_owned)),
            prompts: hash(prompts),
        }
    }

    /// Reads the record of a folder.
    ///
    /// # Errors
    /// When it is damaged, or of another version.
    pub fn read(path: &Path, text: &str) -> Result<Self, TrainingError> {
        let malformed = |error: serde_json::Error| TrainingError::malformed(path, error.to_string());
        let found: MeaningFormat = serde_json::from_str(text).map_err(malformed)?;
        match found.format.cmp(&FORMAT) {
            Ordering::Equal => serde_json::from_str(text).map_err(malformed),
            Ordering::Less => Err(TrainingError::Configuration(format!(
                "{}: an older version of spectune started this run, without recording its settings: continue it with that \
                 version, or choose another --out",
                path.display()
            ))),
            Ordering::Greater => Err(TrainingError::Configuration(format!(
                "{}: a newer version of spectune started this run (format {}, this one reads {FORMAT}): continue it with \
                 that version, or choose another --out",
                path.display(),
                found.format
            ))),
        }
    }

    /// Why a run that was recorded so cannot be continued by this one; `None` if it can. A setting
    /// that the version which started it did not have counts as its default.
    pub fn refusal(&self, now: &Self) -> Option<String> {
        let defaults = defaults();
        let mut differences = Vec::new();
        let keys: BTreeSet<&String> = self.settings.keys().chain(now.settings.keys()).collect();
        for key in keys {
            let default = || defaults.get(key).cloned().unwrap_or(Value::Null);
            let (before, after) = (self.settings.get(key), now.settings.get(key));
            if before.cloned().unwrap_or_else(default) == after.cloned().unwrap_or_else(default) {
                continue;
            }
            let in_words = |value: Option<&Value>| match value {
                None | Some(Value::Null) => "not given".to_owned(),
                Some(value) => value.to_string(),
            };
            differences.push(format!("{key} was {} and is {}", in_words(before), in_words(after)));
        }
        differences.extend((self.models != now.models).then(|| "the models differ".to_owned()));
        differences
            .extend((self.prompts != now.prompts).then(|| "the prompts, or which are held out, differ".to_owned()));
        if differences.is_empty() {
            return None;
        }
        let version = match self.spectune == now.spectune {
            true => String::new(),
            false => format!(" (spectune {} started it)", self.spectune),
        };
        Some(format!("{}{version}", differences.join("; ")))
    }
}

/// The settings that change the result of training, by their dotted keys. Locations are excluded,
/// and settings that only change how long training takes.
fn settings(file: &TrainFile) -> BTreeMap<String, Value> {
    const OTHERS: [&str; 6] = [
        "models.target",
        "models.draft",
        "training.checkpoint_every",
        "training.states_mib",
        "stop.patience",
        "tree.batch",
    ];
    let mut all = flattened([
        ("models", to_value(&file.models)),
        ("tree", to_value(&file.tree)),
        ("answers", to_value(&file.answers)),
        ("training", to_value(&file.training)),
        ("stop", to_value(&file.stop)),
    ]);
    OTHERS.iter().for_each(|key| drop(all.remove(*key)));
    all
}

/// The defaults of settings that have one.
fn defaults() -> BTreeMap<String, Value> {
    flattened([
        ("answers", to_value(TrainAnswers::default())),
        ("training", to_value(Training::default())),
        ("stop", to_value(Stop::default())),
    ])
}

/// The values of tables, by their dotted keys.
fn flattened<const N: usize>(tables: [(&str, serde_json::Result<Value>); N]) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    tables.into_iter().for_each(|(name, table)| flatten(name, table.unwrap_or_default(), &mut all));
    all
}

fn flatten(key: &str, value: Value, into: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                flatten(&format!("{key}.{name}"), value, into);
            }
        }
        value => drop(into.insert(key.to_owned(), value)),
    }
}

fn hash(parts: impl Iterator<Item = String>) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        // With the length, so that what ends one text cannot begin the next.
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use schemas::text::Source;

    use super::*;

    fn meaning(text: &str) -> RunMeaning {
        let file =
            "[models]\ntarget='t'\ndraft='d'\nalgorithm='EAGLE3'\n[tree]\nshape='3,1,4'\n[[prompts]]\nfile='p'\n";
        let file = TrainFile::read(&Source::new("train.toml", format!("{file}{text}"))).expect("a training file");
        RunMeaning {
            format: FORMAT,
            spectune: "0.1.0".into(),
            settings: settings(&file),
            models: "m".into(),
            prompts: "p".into(),
        }
    }

    #[test]
    fn a_setting_that_a_version_did_not_have_counts_as_its_default() {
        let mut older = meaning("");
        older.settings.remove("training.clip").expect("it has a default");
        older.settings.remove("models.draft_vocabulary");
        assert_eq!(older.refusal(&meaning("")), None);
        let refusal = older.refusal(&meaning("[training]\nclip = 3.5\nstates_mib = 7\n"));
        assert_eq!(refusal.as_deref(), Some("training.clip was not given and is 3.5"));
        let newer = RunMeaning { spectune: "0.2.0".into(), ..meaning("[training]\nseed = 4\n") };
        let refusal = older.refusal(&RunMeaning { models: "other".into(), ..newer }).expect("it differs");
        assert_eq!(refusal, "training.seed was 0 and is 4; the models differ (spectune 0.1.0 started it)");
    }

    #[test]
    fn a_record_of_another_version_is_refused_by_its_format() {
        let path = Path::new("out/run.json");
        let of = |text: &str| RunMeaning::read(path, text).expect_err("another version").to_string();
        assert!(of(r#"{"format": 1, "hash": "0"}"#).contains("out/run.json: an older version of spectune"));
        assert!(of(r#"{"format": 3}"#).contains("format 3, this one reads 2"));
        assert!(of("{").contains("out/run.json"));
        let written = serde_json::to_string(&meaning("")).expect("JSON");
        assert_eq!(RunMeaning::read(path, &written).expect("it is read"), meaning(""));
    }
}
