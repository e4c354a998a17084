//! Checkpoints whose files are damaged or absurd: every field of every configuration with values
//! that no model has, texts that are no JSON, and headers of tensors that do not fit their file.
//! They end in an error that names the file and the field or the tensor, and never in a panic.
//!
//! Run by the crate `engine`: `cargo test -p engine --test broken_checkpoints`.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    thread,
};

use engine::{Engine, EngineOptions, Request, SamplingParams, ShapePolicy, StopConditions, options::DeviceChoice};
use serde_json::{Value, json};

use self::heads::block_head;

#[path = "support/block_heads.rs"]
mod heads;
#[path = "support/tensors.rs"]
mod tensors;

/// A pair whose files a test changes.
struct BrokenPair {
    name: String,
    target: PathBuf,
    draft: Option<PathBuf>,
    algorithm: Option<&'static str>,
    _folder: tempfile::TempDir,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        fs::copy(&path, to.join(path.file_name().expect("a name"))).expect("a copy");
    }
}

impl BrokenPair {
    fn new(name: &str, target: &Path, draft: Option<&Path>, algorithm: Option<&'static str>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let own = folder.path().join("target");
        copy(target, &own);
        let head = draft.map(|draft| {
            let head = folder.path().join("draft");
            copy(draft, &head);
            head
        });
        Self { name: name.into(), target: own, draft: head, algorithm, _folder: folder }
    }

    /// Loads the pair and runs a few rounds; the message of its error.
    fn run(&self) -> Result<(), String> {
        let options = EngineOptions {
            model_path: self.target.clone(),
            draft_model_path: self.draft.clone(),
            algorithm: self.algorithm.map(ToOwned::to_owned),
            device: DeviceChoice::Cpu,
            max_running_requests: 2,
            page_size: 4,
            ..EngineOptions::default()
        };
        let run = || {
            let mut engine = Engine::load(options).map_err(|error| error.to_string())?;
            let shape = if self.algorithm.is_some() { "2,1,3" } else { "0,1,1" };
            let policy = ShapePolicy::fixed(shape.parse().expect("a shape"));
            engine.set_policy(policy).map_err(|error| format!("shape: {error}"))?;
            let stop = StopConditions { max_new_tokens: Some(3), ignore_eos: true, ..StopConditions::default() };
            let request = Request { input_ids: vec![2, 3, 4, 5, 6], sampling: SamplingParams::default(), stop };
            engine.run(vec![request]).map_err(|error| format!("run: {error}"))?;
            Ok(())
        };
        let ended = catch_unwind(AssertUnwindSafe(run));
        ended.unwrap_or_else(|_| Err("it panicked".into()))
    }

    /// The folder whose files are changed: the draft's, if there is one.
    fn changed(&self) -> &Path {
        self.draft.as_deref().unwrap_or(&self.target)
    }
}

/// All models of the repository's test data: targets, MTP layers, and heads of each kind.
fn pairs() -> Vec<BrokenPair> {
    let mut pairs = Vec::new();
    let families = root().join("tests/data/families");
    for entry in fs::read_dir(&families).expect("families") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let has_mtp = ["glm4_moe", "mimo", "deepseek_v3", "qwen3_5"].iter().any(|family| name.starts_with(family));
        pairs.push(BrokenPair::new(&name, &path, None, None));
        if has_mtp {
            pairs.push(BrokenPair::new(&format!("{name} with MTP"), &path, None, Some("NEXTN")));
        }
    }
    let tiny = root().join("models/tiny");
    pairs.push(BrokenPair::new("tiny", &tiny.join("target"), None, None));
    for (draft, algorithm) in [("eagle2", "EAGLE"), ("eagle3", "EAGLE3")] {
        pairs.push(BrokenPair::new(draft, &tiny.join("target"), Some(&tiny.join(draft)), Some(algorithm)));
    }
    for algorithm in ["DFLASH", "DSPARK"] {
        let head = tempfile::tempdir().expect("a folder");
        block_head(head.path(), algorithm == "DSPARK");
        pairs.push(BrokenPair::new(algorithm, &families.join("qwen3"), Some(head.path()), Some(algorithm)));
    }
    pairs
}

/// Runs a check of each pair, several at a time, and fails with all complaints together.
fn check_each(check: impl Fn(&BrokenPair) -> Vec<String> + Sync) {
    let pairs = pairs();
    let complaints: Vec<String> = thread::scope(|scope| {
        let check = &check;
        let parts: Vec<_> = (0..4)
            .map(|part| {
                let own: Vec<&BrokenPair> = pairs.iter().skip(part).step_by(4).collect();
                scope.spawn(move || own.into_iter().flat_map(check).collect::<Vec<_>>())
            })
            .collect();
        parts.into_iter().flat_map(|part| part.join().expect("a part")).collect()
    });
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

/// The places of all fields of an object, and of the objects in it.
fn fields(value: &Value, at: &str) -> Vec<String> {
    let Value::Object(object) = value else { return Vec::new() };
    object
        .iter()
        .flat_map(|(name, value)| {
            let place = format!("{at}/{name}");
            let inner = fields(value, &place);
            std::iter::once(place).chain(inner)
        })
        .collect()
}

/// Values that hardly any field has; `None` removes it.
fn absurd() -> [Option<Value>; 12] {
    [
        Some(json!(0)),
        Some(json!(-1)),
        Some(json!(1)),
        Some(json!(7)),
        Some(json!(1_u64 << 31)),
        Some(json!(1e30)),
        Some(json!(0.5)),
        Some(json!("12")),
        Some(Value::Null),
        Some(json!([])),
        Some(json!(true)),
        None,
    ]
}

fn changed(original: &Value, place: &str, value: Option<Value>) -> Value {
    let mut changed = original.clone();
    let (parent, name) = place.rsplit_once('/').expect("a place");
    let object = changed.pointer_mut(parent).and_then(Value::as_object_mut).expect("an object");
    match value {
        Some(value) => drop(object.insert(name.to_owned(), value)),
        None => drop(object.remove(name)),
    }
    changed
}

fn read(file: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(file).expect("a file")).expect("JSON")
}

/// Whether a message says where the fault is: the field, or a tensor that contradicts the file.
fn says_where(message: &str, place: &str) -> bool {
    let name = place.rsplit('/').next().unwrap_or_default();
    let of_tensor = message.contains("tensor ") && message.contains("config.json");
    // Without a field, what is missing may be another one that takes its place.
    let of_another = message.contains("config.json: ") && message.contains(" is missing");
    message.contains(name) || of_tensor || of_another || message.contains("one more layer: ")
}

#[test]
fn no_value_of_a_field_makes_it_panic_and_errors_say_where() {
    check_each(|pair| {
        let file = pair.changed().join("config.json");
        let original = read(&file);
        let mut complaints = Vec::new();
        for place in fields(&original, "") {
            for value in absurd() {
                fs::write(&file, changed(&original, &place, value.clone()).to_string()).expect("a config");
                let Err(message) = pair.run() else { continue };
                // A context of one token is one, and the request is refused for it.
                let is_short = message.contains("shorten the prompt");
                if message == "it panicked" || !(is_short || says_where(&message, &place)) {
                    complaints.push(format!("{} {place} {value:?}: {message}", pair.name));
                }
            }
        }
        fs::write(&file, original.to_string()).expect("a config");
        assert_eq!(pair.run(), Ok(()), "{}", pair.name);
        complaints
    });
}

#[test]
fn sizes_that_no_model_has_are_refused_by_name_and_value() {
    check_each(|pair| {
        let file = pair.changed().join("config.json");
        let original = read(&file);
        let mut complaints = Vec::new();
        let names =
            ["hidden_size", "num_attention_heads", "max_position_embeddings", "num_key_value_heads", "head_dim"];
        for place in
            fields(&original, "").iter().filter(|place| names.iter().any(|name| place.ends_with(&format!("/{name}"))))
        {
            let name = place.rsplit('/').next().unwrap_or_default();
            if place.contains("vision") || (name == "head_dim" && original.get("kv_lora_rank").is_some()) {
                continue;
            }
            for (value, shown) in [
                (json!(0), "is 0,"),
                (json!(-1), "is -1,"),
                (json!(1_u64 << 31), "is 2147483648"),
                (json!(1e30), "is 1e+30,"),
                (json!([]), "is [],"),
            ] {
                fs::write(&file, changed(&original, place, Some(value)).to_string()).expect("a config");
                let ended = pair.run();
                let is_named =
                    |message: &String| message.contains(&format!("{name} {shown}")) && message.contains("config.json");
                if !ended.as_ref().is_err_and(is_named) {
                    complaints.push(format!("{} {place} {shown}: {ended:?}", pair.name));
                }
            }
        }
        complaints
    });
}

#[test]
fn texts_that_are_no_configuration_are_errors_that_say_so() {
    let head = root().join("models/tiny/eagle3");
    for (name, folder) in [("tiny", root().join("models/tiny/target")), ("eagle3", head.clone())] {
        let draft = (name == "eagle3").then_some(head.as_path());
        let pair = BrokenPair::new(name, &root().join("models/tiny/target"), draft, draft.map(|_| "EAGLE3"));
        for file in ["config.json", "generation_config.json", "tokenizer_config.json", "special_tokens_map.json"] {
            let path = pair.changed().join(file);
            let Ok(text) = fs::read_to_string(folder.join(file)) else { continue };
            let check = |text: &str, words: &str| {
                fs::write(&path, text).expect("a file");
                let ended = pair.run();
                let is_named = |message: &String| message.contains(file) && message.contains(words);
                assert!(ended.as_ref().is_err_and(is_named), "{name} {file} {words}: {ended:?}");
            };
            check("", "the file is empty");
            check(" \n", "the file is empty");
            check(&format!("\u{feff}{text}"), "byte order mark");
            check("[1]", "expected an object, found a list");
            check("null", "expected an object, found null");
            check(&"[".repeat(100_000), "recursion limit");
            let body = text.trim_end();
            for length in (1..body.len()).step_by(body.len() / 7).chain([body.len() - 1]) {
                check(&body[..length], "EOF while parsing");
            }
            fs::write(&path, format!("{{\"hidden_size\": 1, {}", &text.trim_start()[1..])).expect("a file");
            assert_eq!(pair.run(), Ok(()), "{name} {file}: of a key that occurs twice the last value counts");
            fs::write(&path, text).expect("a file");
        }
    }
}

#[test]
fn no_value_in_the_files_of_a_tokenizer_makes_it_panic() {
    let tiny = root().join("models/tiny/target");
    let pair = BrokenPair::new("tiny", &tiny, None, None);
    for file in ["generation_config.json", "tokenizer_config.json", "special_tokens_map.json"] {
        let path = pair.target.join(file);
        let original = read(&path);
        for place in fields(&original, "") {
            for value in absurd() {
                fs::write(&path, changed(&original, &place, value.clone()).to_string()).expect("a file");
                let ended = pair.run();
                let is_named = |message: &String| message.contains(file);
                assert!(ended.as_ref().map_or_else(is_named, |()| true), "{file} {place} {value:?}: {ended:?}");
            }
        }
        fs::write(&path, original.to_string()).expect("a file");
    }
}

/// The bytes of a safetensors file with this header and this much data.
fn safetensors_file(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    bytes.extend(std::iter::repeat_n(0, data));
    bytes
}

#[test]
fn headers_that_do_not_fit_their_file_are_errors_that_name_it() {
    let pair = BrokenPair::new("qwen3", &root().join("tests/data/families/qwen3"), None, None);
    let path = pair.target.join("model.safetensors");
    let check = |bytes: &[u8], words: &str| {
        fs::write(&path, bytes).expect("a file");
        let ended = pair.run();
        let is_named = |message: &String| message.contains("model.safetensors: ") && message.contains(words);
        assert!(ended.as_ref().is_err_and(is_named), "{words}: {ended:?}");
    };
    check(b"", "0 bytes are too few");
    check(b"1234567", "7 bytes are too few");
    check(&99_u64.to_le_bytes(), "the header claims 99 bytes, more than the 0 that the file holds");
    check(&u64::MAX.to_le_bytes(), "more than the 100000000 that the format allows");
    check(&safetensors_file("", 4), "the header is not valid");
    check(&safetensors_file("[]", 4), "the header is not valid");
    check(&safetensors_file("{\"a\": 3}", 4), "the header is not valid");
    let one = |dtype: &str, shape: &str, from: i64, to: i64| {
        format!("{{\"a\": {{\"dtype\": \"{dtype}\", \"shape\": {shape}, \"data_offsets\": [{from}, {to}]}}}}")
    };
    check(
        &safetensors_file(&one("F32", "[1]", 0, 4), 3),
        "tensor a is at bytes 0..4, but the file has 3 bytes of data",
    );
    check(&safetensors_file(&one("F32", "[2]", 0, 4), 4), "tensor 'a' should have 8 bytes");
    check(&safetensors_file(&one("F32", "[1]", 4, 0), 4), "tensor 'a' should have 4 bytes");
    check(&safetensors_file(&one("F32", "[0]", 9, 9), 4), "tensor a is at bytes 9..9");
    check(&safetensors_file(&one("F32", "[1]", -4, 0), 4), "the header is not valid");
    check(&safetensors_file(&one("F32", "[18446744073709551615, 8]", 0, 4), 4), "impossible shape");
    check(&safetensors_file(&one("F32", "[-1]", 0, 4), 4), "the header is not valid");
    let two = "{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}, \
               \"b\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [4, 8]}}";
    check(&safetensors_file(two, 8), "tensors a and b overlap");
}

#[test]
fn tensors_of_another_type_or_size_are_named() {
    let name = "model.layers.0.mlp.gate_proj.weight";
    let pair = BrokenPair::new("qwen3", &root().join("tests/data/families/qwen3"), None, None);
    let original = tensors::read(&pair.target);
    for (dtype, shape, words) in [
        (safetensors::Dtype::I64, vec![24, 32], "I64"),
        (safetensors::Dtype::BOOL, vec![24, 32], "BOOL"),
        (safetensors::Dtype::F32, vec![32, 24], "has shape [32, 24], expected [24, 32]"),
        (safetensors::Dtype::F32, vec![24 * 32], "has shape [768], expected [24, 32]"),
        (safetensors::Dtype::F32, vec![0, 32], "has shape [0, 32], expected [24, 32]"),
        (safetensors::Dtype::F32, vec![], "has shape [], expected [24, 32]"),
    ] {
        let mut changed = original.clone();
        let bytes = shape.iter().product::<usize>() * dtype.bitsize() / 8;
        changed.insert(name.into(), (dtype, shape.clone(), vec![0; bytes]));
        tensors::write(&pair.target.join("model.safetensors"), &changed);
        let ended = pair.run();
        let is_named = |message: &String| {
            message.contains("model.safetensors") && message.contains(name) && message.contains(words)
        };
        assert!(ended.as_ref().is_err_and(is_named), "{dtype:?} {shape:?}: {ended:?}");
    }
}

#[test]
fn an_index_that_does_not_lead_to_its_shards_is_an_error_that_names_it() {
    const INDEX: &str = "model.safetensors.index.json";
    let pair = BrokenPair::new("qwen3", &root().join("tests/data/families/qwen3"), None, None);
    let shard = pair.target.join("model-1.safetensors");
    fs::rename(pair.target.join("model.safetensors"), &shard).expect("a shard");
    let names: Vec<String> = tensors::read(&root().join("tests/data/families/qwen3")).into_keys().collect();
    let index = |file: &str| {
        let map: serde_json::Map<String, Value> = names.iter().map(|name| (name.clone(), file.into())).collect();
        json!({"metadata": {}, "weight_map": map}).to_string()
    };
    let check = |text: &str, words: &[&str]| {
        fs::write(pair.target.join(INDEX), text).expect("an index");
        let ended = pair.run();
        let is_named = |message: &String| words.iter().all(|word| message.contains(word));
        assert!(ended.as_ref().is_err_and(is_named), "{words:?}: {ended:?}");
    };
    for outside in ["../model-1.safetensors", "/etc/model.safetensors", "a/model.safetensors", "..", "model.bin"] {
        check(&index(outside), &[INDEX, &format!("{outside:?}"), "not a file of this checkpoint"]);
    }
    check(&index("model-2.safetensors"), &["cannot read", "model-2.safetensors"]);
    check("", &[INDEX, "the file is empty"]);
    check("{}", &[INDEX, "weight_map"]);
    check("{\"weight_map\": {}}", &[INDEX, "names 0 shards"]);
    check("{\"weight_map\": {\"a\": 3}}", &[INDEX, "not a valid index"]);
    fs::write(pair.target.join(INDEX), index("model-1.safetensors")).expect("an index");
    assert_eq!(pair.run(), Ok(()));
    fs::write(&shard, "").expect("a shard");
    check(&index("model-1.safetensors"), &["model-1.safetensors", "0 bytes are too few"]);
}
