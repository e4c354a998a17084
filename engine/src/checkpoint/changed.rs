//! Copies of the checkpoints of tests, which a test may change.

use std::{fs, path::Path};

use serde_json::{Map, Value};
use tempfile::TempDir;

use super::{Folder, Weights};

#[path = "../../../tests/support/block_heads.rs"]
mod block_heads;
#[path = "../../../tests/support/tensors.rs"]
pub mod tensors;

use tensors::{Tensors, change_tensors, write};

/// A folder of its own with config.json and model.safetensors.
#[derive(Debug)]
pub struct Changed(TempDir);

impl Changed {
    /// A copy of a checkpoint of the repository.
    pub fn from_checkpoint(checkpoint: &str) -> Self {
        let (from, to) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(checkpoint), Self::new());
        for file in ["config.json", "model.safetensors"] {
            fs::copy(from.join(file), to.0.path().join(file)).expect("a file");
        }
        to
    }

    /// A DFLASH head for the family `qwen3`, which reads the outputs of its first two layers.
    pub fn block_head() -> Self {
        let new = Self::new();
        block_heads::block_head(new.0.path(), false);
        new
    }

    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    /// The same with these fields in its config.json.
    pub fn with(self, fields: Value) -> Self {
        let Value::Object(fields) = fields else { panic!("fields are an object") };
        fields.into_iter().fold(self, |changed, (name, value)| changed.change(&name, |old| *old = value))
    }

    /// The same with another value of a field of its config.json.
    pub fn change(self, name: &str, change: impl FnOnce(&mut Value)) -> Self {
        let file = self.0.path().join("config.json");
        let mut config: Value = serde_json::from_str(&fs::read_to_string(&file).expect("a file")).expect("JSON");
        change(&mut config[name]);
        fs::write(file, config.to_string()).expect("a file");
        self
    }

    /// The same with some fields of its config.json within another one.
    pub fn nest(self, within: &str, is_nested: impl Fn(&str) -> bool) -> Self {
        let file = self.0.path().join("config.json");
        let config: Value = serde_json::from_str(&fs::read_to_string(&file).expect("a file")).expect("JSON");
        let Value::Object(fields) = config else { panic!("a config is an object") };
        let (inner, mut outer): (Map<_, _>, Map<_, _>) = fields.into_iter().partition(|(name, _)| is_nested(name));
        outer.insert(within.to_owned(), inner.into());
        fs::write(file, Value::Object(outer).to_string()).expect("a file");
        self
    }

    /// The same with other tensors.
    pub fn with_tensors(self, change: impl FnOnce(&mut Tensors)) -> Self {
        change_tensors(self.0.path(), change);
        self
    }

    /// The same with its tensors in shards, and an index.
    pub fn in_shards(self, shards: &[(&str, Tensors)], index: &Value) -> Self {
        fs::remove_file(self.0.path().join("model.safetensors")).expect("the file");
        for (name, tensors) in shards {
            write(&self.0.path().join(name), tensors);
        }
        fs::write(self.0.path().join("model.safetensors.index.json"), index.to_string()).expect("a file");
        self
    }

    /// Its folder and tensors.
    pub fn open(&self) -> (Folder, Weights) {
        let folder = Folder::open(self.0.path()).expect("a folder");
        let weights = folder.weights().expect("its tensors");
        (folder, weights)
    }

    /// Its tensors as they are stored.
    pub fn stored(&self) -> Tensors {
        tensors::read(self.0.path())
    }
}

#[test]
fn the_index_decides_which_shard_a_tensor_is_read_from() {
    const NORM: &str = "model.norm.weight";
    let copy = Changed::from_checkpoint("tests/data/families/qwen3");
    let (all, mut first) = (copy.stored(), Tensors::new());
    let mut other = all[NORM].clone();
    other.2.fill(0);
    first.insert(NORM.into(), other);
    let map = |shard: &str| all.keys().map(|name| (name.clone(), shard.into())).collect::<serde_json::Map<_, _>>();
    let mut map = map("model-2.safetensors");
    // A shard is read only if the index names it for some tensor.
    first.insert("lm_head.weight".into(), all["lm_head.weight"].clone());
    map.insert("lm_head.weight".into(), "model-1.safetensors".into());
    let values = |weights: &Weights| weights.vector(NORM, 32).expect("the norm");
    let expected = values(&copy.open().1);
    let index = serde_json::json!({"weight_map": map});
    let shards = [("model-1.safetensors", first), ("model-2.safetensors", all)];
    let found = values(&copy.in_shards(&shards, &index).open().1);
    assert_eq!(found, expected);
    assert!(found.iter().any(|value| *value != 0.0));
}
