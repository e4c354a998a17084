//! Checkpoints in folders, intact and damaged.

use std::{fs, path::Path};

use facts::{FactsFolder, GatheredFacts, ModelPlaces, gather};
use tempfile::TempDir;

fn copy(name: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny").join(name);
    for entry in from.read_dir().expect("the demo models").flatten() {
        fs::copy(entry.path(), folder.path().join(entry.file_name())).expect("a copy");
    }
    folder
}

fn read(folder: &TempDir) -> GatheredFacts {
    gather(&FactsFolder::new(folder.path()), "it", ModelPlaces { tokenizer: true }).expect("facts")
}

#[test]
fn a_folder_tells_config_headers_and_tokenizer() {
    let head = read(&copy("eagle3"));
    assert_eq!(head.notes, Vec::<String>::new());
    let tensors = head.facts.tensors.as_ref().expect("headers");
    let fc = tensors.find("fc.weight").expect("a tensor");
    assert_eq!((fc.dtype.as_str(), fc.shape.as_slice()), ("BF16", &[128, 384][..]));
    assert_eq!(head.facts.tokenizer, None);

    let target = copy("target");
    fs::write(target.path().join("generation_config.json"), r#"{"min_p": 0.05}"#).expect("a file");
    let target = read(&target).facts;
    assert_eq!(target.tokenizer.map(|tokenizer| tokenizer.vocab_size), Some(2048));
    assert_eq!(target.generation.as_ref().and_then(|generation| generation.min_p), Some(0.05));
    let weights = target.loaded_bytes("bfloat16").expect("known");
    assert!((3_000_000..4_000_000).contains(&weights), "{weights}");
}

#[track_caller]
fn check(file: &str, content: &[u8], note: &str) {
    let folder = copy("target");
    fs::write(folder.path().join(file), content).expect("a file");
    let gathered = read(&folder);
    assert!(
        gathered.notes.iter().any(|reported| reported.contains(file) && reported.contains(note)),
        "{:?}",
        gathered.notes
    );
}

#[test]
fn what_is_broken_is_left_out_and_reported() {
    check("model.safetensors", &[1, 2, 3], "too few");
    check("model.safetensors", &[0xFF; 64], "truncated");
    check("model.safetensors", &(1_u64 << 60).to_le_bytes(), "1152921504606846976");
    check("tokenizer.json", b"{", "not a valid tokenizer.json");
    check("tokenizer.json", &[0xC0], "not UTF-8");
    check("generation_config.json", b"3", "expected an object, found a number");
}

/// Opening a pipe in place of a file would block until a writer opens it.
#[cfg(unix)]
#[test]
fn a_pipe_is_reported_and_not_waited_for() {
    let folder = copy("target");
    let pipe = folder.path().join("model.safetensors");
    fs::remove_file(&pipe).expect("removed");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    let notes = read(&folder).notes;
    assert!(
        notes.iter().any(|note| note.contains("model.safetensors") && note.contains("not a regular file")),
        "{notes:?}"
    );
}

#[cfg(unix)]
#[test]
fn a_link_whose_file_is_gone_is_reported_as_such() {
    let folder = copy("target");
    for name in ["config.json", "tokenizer.json"] {
        fs::remove_file(folder.path().join(name)).expect("removed");
        std::os::unix::fs::symlink("../blobs/gone", folder.path().join(name)).expect("a link");
    }
    let reported = gather(&FactsFolder::new(folder.path()), "it", ModelPlaces { tokenizer: true })
        .err()
        .map(|error| error.to_string());
    let reported = reported.unwrap_or_default();
    assert!(reported.contains("config.json: it is a link to ../blobs/gone, which does not exist"), "{reported}");
}

#[test]
fn pickled_weights_are_named() {
    let folder = copy("eagle2");
    fs::rename(folder.path().join("model.safetensors"), folder.path().join("pytorch_model.bin")).expect("renamed");
    assert!(read(&folder).notes.iter().any(|note| note.contains("pickle")));
}

#[test]
fn a_shard_that_is_not_there_leaves_the_names() {
    let folder = copy("target");
    fs::remove_file(folder.path().join("model.safetensors")).expect("removed");
    let index = r#"{"metadata": {}, "weight_map": {"model.norm.weight": "model-1.safetensors"}}"#;
    fs::write(folder.path().join("model.safetensors.index.json"), index).expect("a file");
    let gathered = read(&folder);
    let names: Vec<&str> = gathered.facts.tensor_names().into_iter().flatten().collect();
    assert_eq!(names, ["model.norm.weight"]);
    assert!(gathered.notes.iter().any(|note| note.contains("does not exist")), "{:?}", gathered.notes);
}

#[test]
fn a_folder_without_a_config_is_no_model() {
    let folder = tempfile::tempdir().expect("a folder");
    let error =
        gather(&FactsFolder::new(folder.path()), "it", ModelPlaces::default()).expect_err("no model").to_string();
    assert!(error.contains("config.json") && error.contains("not a Hugging Face checkpoint"), "{error}");
    fs::write(folder.path().join("config.json"), "3").expect("a file");
    assert!(gather(&FactsFolder::new(folder.path()), "it", ModelPlaces::default()).is_err());
}

#[test]
fn mtp_layers_outside_the_index_are_known() {
    let folder = copy("target");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("a file");
    fs::rename(folder.path().join("model.safetensors"), folder.path().join("model-1.safetensors")).expect("a file");
    write(
        "config.json",
        r#"{"architectures": ["Glm4MoeForCausalLM"], "num_hidden_layers": 99, "num_nextn_predict_layers": 1}"#,
    );
    let index = |shard: &str| format!(r#"{{"weight_map": {{"model.norm.weight": "model-1.safetensors"{shard}}}}}"#);
    write("model.safetensors.index.json", &index(""));
    assert!(!read(&folder).facts.loose_mtp);
    write("mtp.safetensors", "not looked into");
    assert!(read(&folder).facts.loose_mtp);
    assert_eq!(read(&folder).facts.dropped_mtp_layers(), Some(1));
    write("model.safetensors.index.json", &index(r#", "model.layers.99.eh_proj.weight": "mtp.safetensors""#));
    assert!(!read(&folder).facts.loose_mtp);
}
