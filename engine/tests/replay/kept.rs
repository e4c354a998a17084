//! States of the target that are kept in a file: replays with the file give the same results as
//! without it, whatever happened to the file.

use std::{fs, ops::ControlFlow, path::Path};

use engine::{Engine, KeepStates, ReplayText, ShapeAcceptance};
use schemas::tree::TreeShape;

use super::{load, many_shapes, replay, requests, run, samplings, shape, texts};

const ROOMY: u64 = 1 << 30;
/// Length of a checksum in the file, in bytes.
const CHECKSUM: usize = 16;

/// A replay with a file, and its messages.
fn keep(
    engine: &mut Engine,
    texts: &[ReplayText],
    shapes: &[TreeShape],
    path: &Path,
    most_bytes: u64,
) -> (Vec<Vec<ShapeAcceptance>>, String) {
    let mut said = String::new();
    let mut note = |words: &str| said += &format!("{words}\n");
    let keep = KeepStates { path, most_bytes, note: &mut note };
    let found = engine.replay_keeping(texts, shapes, keep, &mut |_| ControlFlow::Continue(()));
    (found.expect("they can be replayed").expect("no one broke it off"), said)
}

/// Greedy and sampled texts.
fn some_texts(engine: &mut Engine) -> Vec<ReplayText> {
    let requests = requests(engine, &samplings(), 24);
    let completions = run(engine, TreeShape::OFF, &requests);
    texts(&requests, &completions)
}

/// Byte offset of the first piece.
fn header(file: &[u8]) -> usize {
    let length: [u8; 4] = file[8..12].try_into().expect("four bytes");
    12 + u32::from_le_bytes(length) as usize + CHECKSUM
}

#[test]
fn a_replay_from_kept_states_is_the_one_that_kept_them() {
    let folder = tempfile::tempdir().expect("a folder");
    for (head, prefill, slots) in [("eagle3", 2048, 8), ("eagle3", 7, 2), ("eagle2", 7, 4)] {
        let path = folder.path().join(format!("{head}-{prefill}"));
        let mut engine =
            load(head, |options| (options.chunked_prefill_size, options.max_running_requests) = (prefill, slots));
        let texts = some_texts(&mut engine);
        let (few, many) = ([shape("3,1,4"), TreeShape::OFF], many_shapes(12));
        let (expected, expected_of_many) = (replay(&mut engine, &texts, &few), replay(&mut engine, &texts, &many));
        assert_eq!(keep(&mut engine, &texts, &few, &path, ROOMY), (expected.clone(), String::new()), "{head}");
        let written = fs::read(&path).expect("the states");
        // More shapes with another topk, and a newly loaded engine: the states are the same.
        for engine in [&mut engine, &mut load(head, |options| options.chunked_prefill_size = prefill)] {
            for (shapes, expected) in [(&many[..], &expected_of_many), (&few[..], &expected)] {
                let (found, said) = keep(engine, &texts, shapes, &path, ROOMY);
                assert_eq!(found, *expected, "{head}");
                assert!(said.ends_with("contains the hidden states of 9 of 9 texts from an earlier run\n"), "{said}");
            }
        }
        assert!(fs::read(&path).expect("the states") == written);
        // No state is left that could affect a run.
        let requests = requests(&engine, &samplings(), 24);
        let runs = run(&mut engine, few[0], &requests);
        assert!(runs.iter().zip(&expected).all(|(run, found)| run.accept_histogram == found[0].accept_histogram));
    }
}

#[test]
fn the_draft_reads_what_is_in_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("states");
    let mut engine = load("eagle3", |_| {});
    let texts = some_texts(&mut engine).split_off(8);
    let shapes = [shape("4,4,16")];
    let (expected, _) = keep(&mut engine, &texts, &shapes, &path, ROOMY);
    // One text, processed at once, is one piece: overwrite its states, with a valid checksum.
    let mut file = fs::read(&path).expect("the states");
    let (begin, end) = (header(&file), file.len() - CHECKSUM);
    file[begin + 24..end].fill(0);
    let checksum = blake3::hash(&file[begin..end]);
    file[end..].copy_from_slice(&checksum.as_bytes()[..CHECKSUM]);
    fs::write(&path, &file).expect("other states");
    let (found, said) = keep(&mut engine, &texts, &shapes, &path, ROOMY);
    assert!(found != expected && said.contains("1 of 1"), "the target has read the text: {said}");
}

#[test]
fn what_is_torn_or_damaged_is_said_and_made_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("states");
    let mut engine = load("eagle3", |options| (options.chunked_prefill_size, options.max_running_requests) = (16, 4));
    let texts = some_texts(&mut engine);
    let shapes = [shape("2,2,4")];
    let expected = replay(&mut engine, &texts, &shapes);
    keep(&mut engine, &texts, &shapes, &path, ROOMY);
    let written = fs::read(&path).expect("the states");
    let begin = header(&written);
    let mut check = |spoiled: &[u8], words: &[&str]| {
        fs::write(&path, spoiled).expect("a spoiled file");
        let (found, said) = keep(&mut engine, &texts, &shapes, &path, ROOMY);
        assert_eq!(found, expected, "{said}");
        assert!(words.iter().all(|word| said.contains(word)), "{words:?} in {said}");
        // Known texts are not in the same passes as the new ones, so the new texts' last pieces may
        // be different.
        let (found, said) = keep(&mut engine, &texts, &shapes, &path, ROOMY);
        assert!(found == expected && said.contains("9 of 9") && said.matches('\n').count() == 1, "{said}");
    };
    for cut in [0, 5, 11, 40, begin - 1] {
        check(&written[..cut], &["cannot be used", "within its header"]);
    }
    check(&written[..begin + 9], &["truncated or damaged", "recreated"]);
    check(&written[..begin + (written.len() - begin) / 2], &["of 9 texts from an earlier run", "truncated or damaged"]);
    check(&written[..written.len() - 1], &["8 of 9", "truncated or damaged"]);
    check(&[&written[..], &[0]].concat(), &["9 of 9", "truncated or damaged"]);
    let flipped = |at: usize| {
        let mut file = written.clone();
        file[at] ^= 1;
        file
    };
    check(&flipped(3), &["it holds no states"]);
    check(&flipped(10), &["bytes; the limit is 65536"]);
    check(&flipped(30), &["its header is damaged"]);
    for at in [begin, begin + 8, begin + 16, begin + 23, begin + 100] {
        check(&flipped(at), &["truncated or damaged"]);
    }
    check(&flipped(written.len() - 20), &["8 of 9", "truncated or damaged"]);
    let mut format = br#"{"format":9}"#.to_vec();
    format.extend(&blake3::hash(&format).as_bytes()[..CHECKSUM]);
    check(&[&written[..8], &12_u32.to_le_bytes(), &format].concat(), &["format 9, but this program reads 1"]);
}

#[test]
fn states_of_other_texts_and_for_other_drafts_are_said_and_made_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("states");
    let mut engine = load("eagle3", |_| {});
    let texts = some_texts(&mut engine);
    let shapes = [shape("3,3,9")];
    keep(&mut engine, &texts, &shapes, &path, ROOMY);
    // One text fewer; then a draft that reads other features of the target; then passes of another
    // size.
    let fewer = &texts[1..];
    let expected = replay(&mut engine, fewer, &shapes);
    let (found, said) = keep(&mut engine, fewer, &shapes, &path, ROOMY);
    assert!(found == expected && said.contains("cannot be used and is recreated: texts "), "{said}");
    let mut other = load("eagle2", |_| {});
    let expected = replay(&mut other, fewer, &shapes);
    let (found, said) = keep(&mut other, fewer, &shapes, &path, ROOMY);
    assert!(found == expected && said.contains("recreated: row "), "{said}");
    let mut smaller = load("eagle2", |options| options.chunked_prefill_size = 5);
    let (found, said) = keep(&mut smaller, fewer, &shapes, &path, ROOMY);
    assert!(found == expected && said.contains("recreated: together 2048, now 5"), "{said}");
}

/// Flips the signs of some 16-bit weights of a tensor in the bytes of a safetensors file.
fn flip_signs(bytes: &mut [u8], tensor: &str) {
    let length = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).expect("a header");
    let [begin, end] =
        [0, 1].map(|at| header[tensor]["data_offsets"][at].as_u64().expect("a tensor") as usize + 8 + length);
    bytes[begin..end].chunks_exact_mut(64).for_each(|part| part[1] ^= 0x80);
}

#[test]
fn another_draft_that_sees_the_same_of_the_target_needs_no_pass_of_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("states");
    let mut engine = load("eagle3", |_| {});
    let texts = some_texts(&mut engine);
    let shapes = [shape("3,3,9"), shape("2,1,3")];
    let (first, _) = keep(&mut engine, &texts, &shapes, &path, ROOMY);

    let trained = engine.options().draft_model_path.clone().expect("a draft");
    let draft = folder.path().join("draft");
    fs::create_dir(&draft).expect("a folder");
    for file in fs::read_dir(&trained).expect("a draft").map(|file| file.expect("a file").path()) {
        let mut bytes = fs::read(&file).expect("a file");
        if file.extension().is_some_and(|kind| kind == "safetensors") {
            flip_signs(&mut bytes, "midlayer.mlp.down_proj.weight");
        }
        fs::write(draft.join(file.file_name().expect("a name")), bytes).expect("a file");
    }
    let mut other = load("eagle3", |options| options.draft_model_path = Some(draft));
    let expected = replay(&mut other, &texts, &shapes);
    let (found, said) = keep(&mut other, &texts, &shapes, &path, ROOMY);
    assert!(found == expected && found != first && said.contains("9 of 9"), "{said}");
}

#[test]
fn without_room_or_a_place_for_the_file_the_target_reads_the_texts() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("states");
    let mut engine = load("eagle3", |options| options.chunked_prefill_size = 16);
    let texts = some_texts(&mut engine);
    let shapes = [shape("3,3,9")];
    let expected = replay(&mut engine, &texts, &shapes);
    let (found, said) = keep(&mut engine, &texts, &shapes, &path, 100 << 10);
    assert!(found == expected && said.contains("is not written") && said.contains("but the limit is 0 MiB"), "{said}");
    assert!(!path.exists());
    let (found, said) = keep(&mut engine, &texts, &shapes, &path.join("nowhere"), ROOMY);
    assert!(
        found == expected && said.contains("nowhere cannot be used, so the target processes the texts again"),
        "{said}"
    );
    let (found, said) = keep(&mut engine, &texts, &shapes, folder.path(), ROOMY);
    assert!(found == expected && said.contains("cannot be used, so the target processes the texts again"), "{said}");
    // Existing states are used even with a lower limit, but nothing is appended.
    keep(&mut engine, &texts, &shapes, &path, ROOMY);
    let length = fs::metadata(&path).expect("the states").len();
    let file = fs::OpenOptions::new().write(true).open(&path).expect("the states");
    file.set_len(length - 1).expect("it is cut");
    let (found, said) = keep(&mut engine, &texts, &shapes, &path, 100 << 10);
    assert!(found == expected && said.contains("8 of 9") && said.contains("is not written"), "{said}");
    assert!(fs::metadata(&path).expect("the states").len() < length);
    // A replay that runs no draft keeps nothing, and the limit is exact to the byte.
    fs::remove_file(&path).expect("it goes");
    assert_eq!(keep(&mut engine, &texts, &[TreeShape::OFF], &path, ROOMY).1, "");
    assert!(!path.exists());
    let (found, said) = keep(&mut engine, &texts, &shapes, &path, length - 1);
    assert!(found == expected && said.contains("is not written") && !path.exists(), "{said}");
}
