//! A small random target with its heads, in the published format, in a folder that goes away with it.

use std::{
    collections::BTreeMap,
    fs::{create_dir_all, remove_dir_all, write},
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};

use crate::{error::EngineError, sampling::uniform};

/// Tokens of the target: few, so that a random draft is right now and then.
pub const VOCABULARY: usize = 24;
/// The heads, by their algorithm.
pub const HEADS: [&str; 2] = ["EAGLE3", "EAGLE"];

const HIDDEN: usize = 48;
const INTERMEDIATE: usize = 80;
const LAYERS: usize = 6;
/// A size that the GPU has kernels for.
const HEAD_DIM: usize = 64;
const QUERY_HEADS: usize = 2;
const KEY_VALUE_HEADS: usize = 1;
const DRAFT_VOCABULARY: usize = 16;

/// The folders of the models.
pub struct RandomModels {
    folder: PathBuf,
}

impl RandomModels {
    /// Writes them.
    ///
    /// # Errors
    /// When the folder for temporary files cannot be written.
    pub fn write() -> Result<Self, EngineError> {
        let name = format!("spectune-selftest-{}-{:?}", std::process::id(), std::thread::current().id());
        let models = Self { folder: std::env::temp_dir().join(name.replace(['(', ')'], "")) };
        let base = json!({
            "model_type": "llama", "hidden_act": "silu", "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE,
            "num_attention_heads": QUERY_HEADS, "num_key_value_heads": KEY_VALUE_HEADS, "head_dim": HEAD_DIM,
            "vocab_size": VOCABULARY, "rms_norm_eps": 1e-5, "max_position_embeddings": 128, "torch_dtype": "float32",
        });
        save(
            &models.target(),
            with(
                &base,
                json!({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": LAYERS, "tie_word_embeddings": false}),
            ),
            target(),
        )?;
        save(
            &models.head("EAGLE3"),
            with(
                &base,
                json!({"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": DRAFT_VOCABULARY}),
            ),
            eagle3(),
        )?;
        save(
            &models.head("EAGLE"),
            with(&base, json!({"architectures": ["LlamaForCausalLMEagle"], "num_hidden_layers": 1, "bias": false})),
            eagle(),
        )?;
        Ok(models)
    }

    /// The target's folder.
    pub fn target(&self) -> PathBuf {
        self.folder.join("target")
    }

    /// A head's folder.
    pub fn head(&self, algorithm: &str) -> PathBuf {
        self.folder.join(algorithm)
    }
}

impl Drop for RandomModels {
    fn drop(&mut self) {
        // What is left behind in the folder for temporary files harms nobody.
        let _ = remove_dir_all(&self.folder);
    }
}

/// Names and shapes.
type Shapes = BTreeMap<String, Vec<usize>>;

fn target() -> Shapes {
    let mut shapes = Shapes::from([
        ("model.embed_tokens.weight".into(), vec![VOCABULARY, HIDDEN]),
        ("lm_head.weight".into(), vec![VOCABULARY, HIDDEN]),
        ("model.norm.weight".into(), vec![HIDDEN]),
    ]);
    for layer in 0..LAYERS {
        let prefix = format!("model.layers.{layer}");
        shapes.insert(format!("{prefix}.input_layernorm.weight"), vec![HIDDEN]);
        shapes.extend(block(&prefix, HIDDEN));
    }
    shapes
}

fn eagle3() -> Shapes {
    let mut shapes = Shapes::from([
        ("fc.weight".into(), vec![HIDDEN, 3 * HIDDEN]),
        ("midlayer.input_layernorm.weight".into(), vec![HIDDEN]),
        ("midlayer.hidden_norm.weight".into(), vec![HIDDEN]),
        ("norm.weight".into(), vec![HIDDEN]),
        ("lm_head.weight".into(), vec![DRAFT_VOCABULARY, HIDDEN]),
        ("d2t".into(), vec![DRAFT_VOCABULARY]),
    ]);
    shapes.extend(block("midlayer", 2 * HIDDEN));
    shapes
}

fn eagle() -> Shapes {
    let mut shapes = Shapes::from([("fc.weight".into(), vec![HIDDEN, 2 * HIDDEN])]);
    shapes.extend(block("layers.0", HIDDEN));
    shapes
}

fn block(prefix: &str, input: usize) -> Shapes {
    let queries = QUERY_HEADS * HEAD_DIM;
    let keys = KEY_VALUE_HEADS * HEAD_DIM;
    [
        ("post_attention_layernorm", vec![HIDDEN]),
        ("self_attn.q_proj", vec![queries, input]),
        ("self_attn.k_proj", vec![keys, input]),
        ("self_attn.v_proj", vec![keys, input]),
        ("self_attn.o_proj", vec![HIDDEN, queries]),
        ("mlp.gate_proj", vec![INTERMEDIATE, HIDDEN]),
        ("mlp.up_proj", vec![INTERMEDIATE, HIDDEN]),
        ("mlp.down_proj", vec![HIDDEN, INTERMEDIATE]),
    ]
    .map(|(name, shape)| (format!("{prefix}.{name}.weight"), shape))
    .into()
}

fn with(base: &Value, more: Value) -> Value {
    let mut config = base.clone();
    if let (Some(config), Value::Object(more)) = (config.as_object_mut(), more) {
        config.extend(more);
    }
    config
}

fn save(folder: &Path, config: Value, shapes: Shapes) -> Result<(), EngineError> {
    let failed = |source| EngineError::Read { path: folder.to_owned(), source };
    create_dir_all(folder).map_err(failed)?;
    write(folder.join("config.json"), config.to_string()).map_err(failed)?;
    let (mut header, mut data) = (Map::new(), Vec::new());
    for (number, (name, shape)) in shapes.into_iter().enumerate() {
        let begin = data.len();
        let dtype = if name == "d2t" {
            // Every second token, while they last.
            let offsets = (0..shape[0] as i64).map(|at| at.min((VOCABULARY - DRAFT_VOCABULARY) as i64));
            data.extend(offsets.flat_map(i64::to_le_bytes));
            "I64"
        } else {
            data.extend(values(number as u64, &shape).into_iter().flat_map(f32::to_le_bytes));
            "F32"
        };
        header.insert(name, json!({"dtype": dtype, "shape": shape, "data_offsets": [begin, data.len()]}));
    }
    // The format of safetensors: the header's length, the header, the data.
    let header = Value::from(header).to_string();
    let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
    write(folder.join("model.safetensors"), file).map_err(failed)
}

/// Uniform weights of the usual spread; norms around one.
fn values(seed: u64, shape: &[usize]) -> Vec<f32> {
    let count = shape.iter().product();
    let number = |at| uniform(seed, at) as f32 * 2.0 - 1.0;
    match shape {
        [_] => (0..count).map(|at| 1.0 + 0.1 * number(at)).collect(),
        _ => (0..count).map(|at| number(at) * (3.0 / shape[shape.len() - 1] as f32).sqrt()).collect(),
    }
}
