//! Models for the tests.

use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use engine::{DeviceChoice, EngineOptions, ModelFiles, ShapePolicy, spec::TensorSpec};
use schemas::tree::TreeShape;
use training::{
    TrainingError,
    head::{Head, SharedWeights},
    teacher::Teacher,
};

/// A folder of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// A target with its head: `tiny/eagle3`, `tiny/eagle2` or `mimo`.
pub fn options(pair: &str) -> EngineOptions {
    let (model_path, draft_model_path) = match pair {
        "mimo" => (repository("tests/data/families/mimo"), None),
        head => (repository("models/tiny/target"), Some(repository("models").join(head))),
    };
    EngineOptions {
        model_path,
        draft_model_path,
        policy: ShapePolicy::fixed(TreeShape::chain(3)),
        context_length: Some(64),
        max_running_requests: 4,
        device: DeviceChoice::Cpu,
        ..EngineOptions::default()
    }
}

/// A head and its teacher, computing in one type.
pub struct Loaded {
    pub head: Head,
    pub teacher: Teacher,
}

/// Loads both; `change` may change values.
pub fn load(options: &EngineOptions, dtype: DType, change: impl Fn(&str, &mut Vec<f32>)) -> Loaded {
    let models = ModelFiles::open(options).expect("the files are there");
    let spec = models.draft.clone().expect("a draft");
    let tensors = models.target.tensors();
    let matrix = |tensor: &TensorSpec| {
        let values = models.target_values(tensor).expect("values");
        let tensor = Tensor::from_vec(values, tensor.shape.as_slice(), &Device::Cpu);
        tensor.and_then(|tensor| tensor.to_dtype(dtype)).expect("a tensor")
    };
    let embedding = matrix(&tensors.embedding);
    let vocabulary = tensors.head.as_ref().map_or_else(|| embedding.clone(), matrix);
    let shared = SharedWeights { embedding, head: vocabulary };
    let values = |tensor: &TensorSpec| {
        let mut values = models.draft_values(tensor)?;
        change(&tensor.name, &mut values);
        Ok::<_, TrainingError>(values)
    };
    Loaded {
        head: Head::new(&spec, &values, &shared, (dtype, &Device::Cpu)).expect("a head"),
        teacher: Teacher::new(&shared.head, &spec, true).expect("a teacher"),
    }
}

/// Tokens that look random but are always the same.
pub fn tokens(count: usize, vocabulary: usize) -> Vec<u32> {
    let mut state = 9_u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as usize % (vocabulary - 3) + 2) as u32
    };
    std::iter::repeat_with(next).take(count).collect()
}
