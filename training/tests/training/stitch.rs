//! MTP layers written back into a copy of their target: everything else stays byte for byte the
//! same, wherever the layer is stored.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::atomic::AtomicBool,
};

use engine::{
    DeviceChoice, Engine, EngineOptions, ModelFiles, Request, SamplingParams, ShapePolicy, StopConditions,
    spec::TensorSpec,
};
use half::bf16;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use schemas::{text::Source, train::TrainFile};
use serde_json::{Value, json};
use tempfile::TempDir;
use training::{
    LoadedPrompts, StepsOn, TrainRequest, TrainingPrompt,
    folder::{Trained, stitch},
    head::trained_tensors,
};

use crate::common::{repository, tokens};

/// A tensor: type, shape, bytes.
type Stored = (Dtype, Vec<usize>, Vec<u8>);

fn options(folder: &Path) -> EngineOptions {
    EngineOptions {
        model_path: folder.to_owned(),
        draft_model_path: None,
        algorithm: Some("NEXTN".into()),
        policy: ShapePolicy::fixed("3,1,4".parse().expect("a shape")),
        context_length: Some(64),
        max_running_requests: 2,
        device: DeviceChoice::Cpu,
        ..EngineOptions::default()
    }
}

fn read(file: &Path) -> BTreeMap<String, Stored> {
    let bytes = fs::read(file).expect("a file");
    let tensors = SafeTensors::deserialize(&bytes).expect("tensors");
    let owned = |view: &TensorView<'_>| (view.dtype(), view.shape().to_vec(), view.data().to_vec());
    tensors.tensors().iter().map(|(name, view)| (name.clone(), owned(view))).collect()
}

fn write(file: &Path, tensors: &BTreeMap<String, Stored>) {
    let views = tensors.iter().map(|(name, (dtype, shape, data))| {
        (name, TensorView::new(*dtype, shape.clone(), data).expect("a tensor of the right length"))
    });
    safetensors::serialize_to_file(views, None, file).expect("a file");
}

/// The tiny MiMo in shards, with the shard of each tensor given by `shard`.
fn sharded(shard: impl Fn(&str) -> usize) -> TempDir {
    let (folder, source) = (tempfile::tempdir().expect("a folder"), repository("tests/data/families/mimo"));
    fs::copy(source.join("config.json"), folder.path().join("config.json")).expect("copied");
    let mut shards: BTreeMap<usize, BTreeMap<String, Stored>> = BTreeMap::new();
    for (name, tensor) in read(&source.join("model.safetensors")) {
        shards.entry(shard(&name)).or_default().insert(name, tensor);
    }
    let mut map = serde_json::Map::new();
    for (number, tensors) in &shards {
        let file = format!("model-{:05}-of-{:05}.safetensors", number + 1, shards.len());
        write(&folder.path().join(&file), tensors);
        map.extend(tensors.keys().map(|name| (name.clone(), Value::from(file.clone()))));
    }
    let index = json!({"metadata": {}, "weight_map": map});
    fs::write(folder.path().join("model.safetensors.index.json"), index.to_string()).expect("written");
    folder
}

/// New values for all trained tensors.
fn changed(models: &ModelFiles, tensors: &[TensorSpec]) -> Trained {
    let values = |tensor: &TensorSpec| {
        let values = models.draft_values(tensor).expect("values");
        (tensor.name.clone(), values.iter().map(|value| value * 1.25 + 0.01).collect())
    };
    tensors.iter().map(values).collect()
}

fn outputs(folder: &Path) -> Vec<Vec<u32>> {
    let mut engine = Engine::load(options(folder)).expect("it loads");
    let request = |from: usize| Request {
        input_ids: tokens(12, 64)[from..from + 6].to_vec(),
        sampling: SamplingParams::default(),
        stop: StopConditions { max_new_tokens: Some(12), ignore_eos: true, ..StopConditions::default() },
    };
    let completions = engine.run(vec![request(0), request(5)]).expect("it runs");
    completions.into_iter().map(|one| one.output_ids).collect()
}

/// Stitches new values into a sharded target and compares all files.
fn check(shard: impl Fn(&str) -> usize) {
    let original = sharded(shard);
    let models = ModelFiles::open(&options(original.path())).expect("a target with its layer");
    let spec = models.draft.clone().expect("a draft");
    let tensors = trained_tensors(&spec, models.target.vocabulary);
    let trained = changed(&models, &tensors);
    let out = tempfile::tempdir().expect("a folder");
    let stitched = out.path().join("head");
    stitch(&models, &tensors, &trained, &stitched).expect("stitched");

    let names: BTreeSet<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    let (mut rewritten, mut seen) = (0, 0);
    for entry in original.path().read_dir().expect("a folder") {
        let path = entry.expect("an entry").path();
        let copy = stitched.join(path.file_name().expect("a name"));
        if path.extension().is_none_or(|ending| ending != "safetensors") {
            assert_eq!(fs::read(&path).expect("a file"), fs::read(&copy).expect("its copy"), "{}", path.display());
            continue;
        }
        let (before, after) = (read(&path), read(&copy));
        assert!(before.keys().eq(after.keys()), "{}", path.display());
        let holds = before.keys().any(|name| names.contains(name.as_str()));
        rewritten += usize::from(holds);
        let link = fs::symlink_metadata(&copy).expect("it is there").is_symlink();
        assert_eq!(link, cfg!(unix) && !holds, "{}: only shards without the layer are links", copy.display());
        for (name, tensor) in &before {
            let Some(values) = trained.get(name) else {
                assert_eq!(tensor, &after[name], "{name}");
                continue;
            };
            seen += 1;
            let expected: Vec<u8> = values.iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes()).collect();
            assert_ne!(tensor.2, expected, "{name}");
            assert_eq!((Dtype::BF16, &tensor.1, &expected), (after[name].0, &after[name].1, &after[name].2), "{name}");
        }
    }
    assert_eq!(seen, tensors.len(), "every trained tensor is in some shard");
    assert!(rewritten >= 1);

    // The engine reads the new values, and greedy output does not depend on the draft.
    let after = ModelFiles::open(&options(&stitched)).expect("the stitched target");
    assert_eq!((&models.target, &models.draft), (&after.target, &after.draft));
    for tensor in &tensors {
        let rounded: Vec<f32> = trained[&tensor.name].iter().map(|value| bf16::from_f32(*value).to_f32()).collect();
        assert_eq!(after.draft_values(tensor).expect("values"), rounded, "{}", tensor.name);
    }
    assert_eq!(outputs(original.path()), outputs(&stitched));
}

#[test]
fn a_layer_in_a_shard_of_its_own() {
    check(|name| usize::from(name.contains("mtp_layers")));
}

#[test]
fn a_layer_among_others_in_several_shards() {
    // Three shards: two contain parts of the layer and other tensors, one contains no part of it.
    check(|name| match name {
        name if name.contains("mtp_layers") && name.contains("mlp") => 0,
        name if name.contains("mtp_layers") => 1,
        name if name.contains("layers.0") => 0,
        name if name.contains("layers.1") => 1,
        _ => 2,
    });
}

/// The error of a run on a target's own layer, which is refused.
fn refused(folder: &Path) -> String {
    let file = "[models]\ntarget = \"t\"\nalgorithm = \"NEXTN\"\n[tree]\nshape = \"3,1,4\"\nbatch = 0\n\
                [stop]\nheld_out = 0.5\n[[prompts]]\nfile = \"x\"\n";
    let file = TrainFile::read(&Source::new("train.toml", file)).expect("a training file");
    let prompts = (0..24).map(|from| {
        let request = Request {
            input_ids: tokens(40, 64)[from..from + 6].to_vec(),
            sampling: SamplingParams::default(),
            stop: StopConditions { max_new_tokens: Some(8), ignore_eos: true, ..StopConditions::default() },
        };
        TrainingPrompt { request, answer: None }
    });
    let out = tempfile::tempdir().expect("a folder");
    let request = TrainRequest {
        file: &file,
        options: options(folder),
        steps_on: StepsOn::Processor,
        sets: vec![LoadedPrompts { name: "x".into(), prompts: prompts.collect() }],
        general: Vec::new(),
        out: &out.path().join("run"),
        resume: false,
        interrupted: &AtomicBool::new(false),
    };
    let engine = Engine::load(options(folder)).expect("it loads");
    let error = training::run(request, engine, &mut |progress| panic!("nothing is answered: {progress:?}"));
    assert!(!out.path().join("run").exists(), "nothing is written");
    error.expect_err("refused").to_string()
}

#[test]
fn a_layer_in_fp8_is_refused_before_anything_is_answered() {
    // The layer's matrices in FP8 with block scales, as the quantisers of MiMo's family write them;
    // all scales are one.
    let folder = tempfile::tempdir().expect("a folder");
    let source = repository("tests/data/families/mimo");
    let mut tensors = read(&source.join("model.safetensors"));
    let matrices: Vec<String> = tensors
        .keys()
        .filter(|name| name.contains("proj.weight") && name.contains("layers.") && !name.contains("input_proj"))
        .cloned()
        .collect();
    for name in matrices {
        let (dtype, shape, data) = tensors.get_mut(&name).expect("a matrix");
        (*dtype, *data) = (Dtype::F8_E4M3, vec![0x38; shape.iter().product()]);
        tensors.insert(format!("{name}_scale_inv"), (Dtype::F32, vec![1, 1], 1_f32.to_le_bytes().to_vec()));
    }
    write(&folder.path().join("model.safetensors"), &tensors);
    let text = fs::read_to_string(source.join("config.json")).expect("a config");
    let mut config: Value = serde_json::from_str(&text).expect("JSON");
    config["quantization_config"] =
        json!({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]});
    fs::write(folder.path().join("config.json"), config.to_string()).expect("written");
    let error = refused(folder.path());
    assert!(error.contains("F8_E4M3") && error.contains("the unquantised checkpoint"), "{error}");
}

#[test]
fn a_layer_that_cannot_be_trained_is_refused_before_anything_is_answered() {
    let error = refused(&repository("tests/data/families/deepseek_v3"));
    assert!(error.contains("latent attention"), "{error}");
}
