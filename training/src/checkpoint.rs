//! Checkpoints: everything that a run needs to continue exactly, in one file that is replaced
//! atomically.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use candle_core::{DType, Device, Tensor, Var};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use schemas::training_record::{CurvePoint, Evaluation, TrainingCost};
use serde::{Deserialize, Serialize};

use crate::{
    error::TrainingError,
    folder::{Trained, write_whole},
    optimizer::AdamW,
};

/// Progress of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedProgress {
    /// Number of completed steps.
    pub step: usize,
    /// Evaluations so far.
    pub evaluations: Vec<Evaluation>,
    /// The curve so far.
    pub curve: Vec<CurvePoint>,
    /// The step of the best checkpoint so far, if one was better than the previous head.
    pub best: Option<usize>,
    /// Why training has stopped, once it has.
    pub stopped: Option<String>,
    /// Time spent so far.
    pub cost: TrainingCost,
}

/// The contents of a checkpoint.
pub struct Checkpoint {
    /// Progress of the run.
    pub progress: SavedProgress,
    /// Values of the trained tensors.
    pub trained: Trained,
    /// Moments of the optimiser.
    pub moments: BTreeMap<String, (Tensor, Tensor)>,
}

/// The key of the progress in the file's metadata.
const PROGRESS: &str = "progress";

/// Writes a checkpoint.
///
/// # Errors
/// When it cannot be written.
pub fn save(
    path: &Path,
    progress: &SavedProgress,
    trained: &BTreeMap<String, Var>,
    optimizer: &AdamW,
) -> Result<(), TrainingError> {
    let mut tensors: BTreeMap<String, (Vec<usize>, Vec<u8>)> = BTreeMap::new();
    let mut add = |kind: &str, name: &str, tensor: &Tensor| {
        tensors.insert(format!("{kind}.{name}"), (tensor.dims().to_vec(), bytes(tensor)?));
        Ok::<_, TrainingError>(())
    };
    for (name, variable) in trained {
        add("value", name, variable)?;
    }
    for (name, (first, second)) in optimizer.moments() {
        add("first", name, first)?;
        add("second", name, second)?;
    }
    let views: Result<Vec<_>, _> = tensors
        .iter()
        .map(|(name, (shape, bytes))| Ok((name, TensorView::new(Dtype::F32, shape.clone(), bytes)?)))
        .collect();
    let text = serde_json::to_string(progress).unwrap_or_default();
    let metadata = HashMap::from([(PROGRESS.to_owned(), text)]);
    let file = views.and_then(|views| safetensors::serialize(views, Some(metadata)));
    let file = file.map_err(|error| TrainingError::malformed(path, error.to_string()))?;
    write_whole(path, &file)
}

/// Reads a checkpoint; `None` if there is none yet.
///
/// # Errors
/// When it cannot be read or is not a checkpoint.
pub fn load(path: &Path, device: &Device) -> Result<Option<Checkpoint>, TrainingError> {
    let file = match std::fs::read(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(TrainingError::read(path)(error)),
    };
    let broken = |reason: String| TrainingError::malformed(path, format!("not a checkpoint of training: {reason}"));
    let (_, header) = SafeTensors::read_metadata(&file).map_err(|error| broken(error.to_string()))?;
    let progress = header.metadata().as_ref().and_then(|metadata| metadata.get(PROGRESS));
    let progress = progress.ok_or_else(|| broken("it does not record the step of the run".into()))?;
    let progress: SavedProgress = serde_json::from_str(progress).map_err(|error| broken(error.to_string()))?;
    let tensors = SafeTensors::deserialize(&file).map_err(|error| broken(error.to_string()))?;
    let (mut trained, mut first, mut second) = (Trained::new(), BTreeMap::new(), BTreeMap::new());
    for (name, view) in tensors.iter() {
        let values = floats(view.data());
        match name.split_once('.') {
            Some(("value", name)) => {
                trained.insert(name.to_owned(), values);
            }
            Some(("first", name)) => {
                first.insert(name.to_owned(), Tensor::from_vec(values, view.shape(), device)?);
            }
            Some(("second", name)) => {
                second.insert(name.to_owned(), Tensor::from_vec(values, view.shape(), device)?);
            }
            _ => return Err(broken(format!("unknown tensor {name}"))),
        }
    }
    let moments = first.into_iter().filter_map(|(name, first)| Some((name.clone(), (first, second.remove(&name)?))));
    Ok(Some(Checkpoint { progress, trained, moments: moments.collect() }))
}

impl Checkpoint {
    /// Checks that it has the values of these tensors and of no others.
    ///
    /// # Errors
    /// The first tensor that differs.
    pub fn check(&self, path: &Path, trained: &BTreeMap<String, Var>) -> Result<(), TrainingError> {
        let count = |name: &String| self.trained.get(name).map(Vec::len);
        // Both ways: a tensor of another head would otherwise be dropped without a word.
        let missing = trained.iter().find(|(name, variable)| count(name) != Some(variable.elem_count()));
        let unknown = self.trained.keys().find(|name| !trained.contains_key(*name));
        match missing.map(|(name, _)| name).or(unknown) {
            Some(name) => Err(TrainingError::malformed(
                path,
                format!("a checkpoint of another head, which differs in `{name}`: delete it, or choose another --out"),
            )),
            None => Ok(()),
        }
    }
}

/// The values of the trained tensors.
///
/// # Errors
/// When they cannot be copied from their device.
pub fn values(trained: &BTreeMap<String, Var>) -> Result<Trained, TrainingError> {
    let of = |(name, variable): (&String, &Var)| {
        Ok((name.clone(), variable.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?))
    };
    trained.iter().map(of).collect()
}

fn bytes(tensor: &Tensor) -> Result<Vec<u8>, TrainingError> {
    let values = tensor.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
    Ok(values.iter().flat_map(|value| value.to_le_bytes()).collect())
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_of_another_head_is_refused_by_the_tensor_that_differs() {
        let variable = |count: usize| Var::zeros(count, DType::F32, &Device::Cpu).expect("a tensor");
        let trained = BTreeMap::from([("a".to_owned(), variable(2)), ("b".to_owned(), variable(3))]);
        let check = |tensors: &[(&str, usize)]| {
            let values = tensors.iter().map(|(name, count)| ((*name).to_owned(), vec![0.0; *count])).collect();
            let checkpoint =
                Checkpoint { progress: SavedProgress::default(), trained: values, moments: BTreeMap::new() };
            checkpoint.check(Path::new("checkpoint"), &trained).map_err(|error| error.to_string())
        };
        assert_eq!(check(&[("a", 2), ("b", 3)]), Ok(()));
        for (tensors, name) in
            [(&[("a", 2)][..], "`b`"), (&[("a", 2), ("b", 4)], "`b`"), (&[("a", 2), ("b", 3), ("c", 1)], "`c`")]
        {
            let found = check(tensors).expect_err(name);
            assert!(found.contains("another head") && found.contains(name), "{found}");
        }
    }
}
