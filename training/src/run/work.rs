//! The folder of a run.

use std::{fs, path::PathBuf};

use engine::{Engine, ModelFiles, ReplayText};
use schemas::{train::TrainStart, training_record::RUN_FILE};

use super::{TrainRequest, meaning::RunMeaning};
use crate::{error::TrainingError, folder, head::trained_tensors, scratch, texts::Placements};

/// The folder of a run.
pub struct TrainWork {
    out: PathBuf,
}

impl TrainWork {
    /// Creates the folder, or checks that it belongs to this run.
    pub fn open(request: &TrainRequest<'_>, engine: &Engine, placements: &Placements) -> Result<Self, TrainingError> {
        let out = request.out.to_owned();
        let path = out.join(RUN_FILE);
        let meaning = RunMeaning::new(request.file, engine, placements);
        let work = Self { out };
        if path.exists() {
            let text = fs::read_to_string(&path).map_err(TrainingError::read(&path))?;
            let folder = work.out.display();
            if !request.resume {
                return Err(TrainingError::Configuration(format!(
                    "{folder} already contains a training run: continue it with --resume, or choose another --out"
                )));
            }
            if let Some(reason) = RunMeaning::read(&path, &text)?.refusal(&meaning) {
                return Err(TrainingError::Configuration(format!(
                    "{folder} contains a run with other models, prompts or settings, which cannot be continued: {reason}. \
                     Choose another --out (only training.checkpoint_every, training.states_mib, stop.patience, tree.batch and \
                     [engine] may change)"
                )));
            }
        } else {
            fs::create_dir_all(work.heads()).map_err(TrainingError::write(&work.out))?;
            // Last, so that a folder that has this file has all that a run expects.
            folder::write_whole(&path, serde_json::to_string(&meaning).unwrap_or_default().as_bytes())?;
        }
        Ok(work)
    }

    /// The target's answers.
    pub fn answers(&self) -> PathBuf {
        self.out.join("answers.jsonl")
    }

    /// The initial head.
    pub fn start(&self) -> PathBuf {
        self.out.join("start")
    }

    /// The newest checkpoint.
    pub fn checkpoint(&self) -> PathBuf {
        self.out.join("checkpoint.safetensors")
    }

    /// The head after this many steps.
    pub fn head_at(&self, step: usize) -> PathBuf {
        self.heads().join(format!("step-{step:06}"))
    }

    /// The trained head that is written at the end.
    pub fn head(&self) -> PathBuf {
        self.out.join("head")
    }

    /// The record of the run.
    pub fn record(&self) -> PathBuf {
        self.out.join("training.json")
    }

    fn heads(&self) -> PathBuf {
        self.out.join("heads")
    }

    /// Creates the initial head, unless it exists.
    pub fn make_start(
        &self,
        request: &TrainRequest<'_>,
        engine: &Engine,
        placements: &Placements,
        texts: &[Option<ReplayText>],
    ) -> Result<(), TrainingError> {
        let start = self.start();
        if start.is_dir() {
            return Ok(());
        }
        let models = ModelFiles::open(&request.options)?;
        if request.file.models.start == TrainStart::Random {
            let texts: Vec<&ReplayText> =
                texts.iter().zip(&placements.prompts).filter_map(|(text, _)| text.as_ref()).collect();
            return scratch::write(&models, engine.options(), request.file, &texts, &start);
        }
        let spec = models.draft.as_ref();
        let spec = spec.ok_or_else(|| TrainingError::Configuration("there is no draft to start from".into()))?;
        if request.file.models.is_own_layer() {
            folder::extract_layer(&models, &trained_tensors(spec, models.target.vocabulary), &start)
        } else {
            folder::copy_head(models.draft_folder(), &start)
        }
    }

    /// Removes all heads except the best one.
    pub fn clean(&self, best: Option<usize>) -> Result<(), TrainingError> {
        let heads = self.heads();
        let best = best.map(|step| self.head_at(step));
        for entry in heads.read_dir().map_err(TrainingError::read(&heads))? {
            let path = entry.map_err(TrainingError::read(&heads))?.path();
            if Some(&path) != best.as_ref() {
                folder::remove(&path)?;
            }
        }
        Ok(())
    }
}
