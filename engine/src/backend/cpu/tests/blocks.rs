//! Block heads: what they have kept of a text does not depend on how it came in, a block's rows are
//! what the definition says, and heads of other kinds are refused.

use std::fs;

use serde_json::{Value, json};

use super::*;
use crate::{
    backend::{Pool, ReplayPlace, RequiredTree},
    checkpoint::{change_tensors, write_mask_embedding},
    description::describe,
    options::EngineOptions,
    selftest::models::{Pair, RandomModels},
    spec::DraftSpec,
};

const HEADS: [Pair; 2] = [Pair::Dflash, Pair::Dspark];

fn options(models: &RandomModels, pair: Pair) -> EngineOptions {
    EngineOptions {
        model_path: models.target(pair),
        draft_model_path: models.draft(pair),
        max_running_requests: 1,
        context_length: Some(128),
        ..EngineOptions::default()
    }
}

fn backend(options: &EngineOptions) -> CpuBackend {
    let described = describe(options).expect("a pair");
    let (draft, own) = described.draft.expect("a head");
    let own = own.expect("its tensors");
    load::load((described.spec, &described.weights), Some((draft, &own)), options, 128).expect("it loads")
}

fn prompt() -> Vec<u32> {
    (0..29).map(|at| (at * at * 7 + 3) % 20 + 2).collect()
}

/// The head's keys and values of a slot, position by position and layer by layer.
fn kept(backend: &CpuBackend) -> Vec<f32> {
    let state = backend.slots.get(Slot(0)).expect("an open slot");
    let rows = || state.rows[..state.length].iter();
    backend.draft_caches.iter().flat_map(|cache| rows().flat_map(|row| cache.row(*row))).collect()
}

#[test]
fn a_head_has_kept_the_same_however_its_text_came_in() {
    let models = RandomModels::write_seeded(11).expect("a folder");
    let slot = Slot(0);
    for pair in HEADS {
        let mut backend = backend(&options(&models, pair));
        let pages: Vec<PageId> = (0..backend.capacity().pages as u32).map(PageId).collect();
        let tree = backend.draft.as_ref().map(|draft| draft.nodes().parse("4,3,20").expect("a shape"));
        let tree = tree.expect("a head");
        backend.prepare(&[tree, TreeShape::OFF], &[], &mut |_, _| {}).expect("the shape runs");
        let mut read_text = |text: &[u32], chunk: usize, shapes: &[TreeShape]| {
            backend.open(slot, &SamplingParams::default(), &pages, 0).expect("a free slot");
            let (mut text, mut last) = (text.to_vec(), None);
            for (piece, tokens) in text.chunks(chunk).enumerate() {
                let start = piece * chunk;
                let next = text.get(start + tokens.len()).copied();
                let chunk = PrefillChunk { slot, tokens, start, next };
                let first = backend.prefill_collecting(&[chunk]).expect("a prompt");
                last = first[0].as_ref().map(|_| first_token(&first[0]));
            }
            for shape in shapes {
                let ticket = backend.launch(Round { shape: *shape, slots: &[slot] }).expect("a round");
                let tokens = backend.collect(ticket).expect("its output").yields.swap_remove(0).tokens;
                text.extend(last);
                text.extend(tokens.iter().map(|token| token.id));
                last = text.pop();
            }
            let found = kept(&backend);
            backend.close(slot);
            (text, found)
        };
        let (_, whole) = read_text(&prompt(), 128, &[]);
        for chunk in [1, 4, 28] {
            assert!(read_text(&prompt(), chunk, &[]).1 == whole, "{pair}, chunks of {chunk}");
        }
        for rounds in [vec![tree; 1], vec![tree; 9], [TreeShape::OFF, TreeShape::OFF, tree].repeat(3)] {
            let (text, behind) = read_text(&prompt(), 128, &rounds);
            assert!(text.len() >= prompt().len() + rounds.len());
            assert!(behind == read_text(&text, 128, &[]).1, "{pair}, {} rounds", rounds.len());
        }
    }
}

/// The pool of a block of some rows after a text, whose last token is the root.
fn pool(backend: &mut CpuBackend, text: &[u32], shape: TreeShape) -> Pool {
    pool_of(backend, text, shape, RequiredTree::Offered)
}

/// The same for what a replay wants of it.
fn pool_of(backend: &mut CpuBackend, text: &[u32], shape: TreeShape, wanted: RequiredTree) -> Pool {
    let (slot, last) = (Slot(0), text.len() - 1);
    let pages: Vec<PageId> = (0..backend.capacity().pages as u32).map(PageId).collect();
    backend.open(slot, &SamplingParams::default(), &pages, 0).expect("a free slot");
    backend.trace(slot, 0..last, false).expect("memory");
    let chunk = PrefillChunk { slot, tokens: &text[..last], start: 0, next: Some(text[last]) };
    backend.prefill_collecting(&[chunk]).expect("a text");
    let place = ReplayPlace { slot, position: last, root: text[last], text: &[], wanted };
    let pool = backend.pools(&[place], &[shape]).expect("a pool").remove(0);
    backend.close(slot);
    pool
}

#[test]
fn a_window_and_causality_hide_what_they_should() {
    let models = RandomModels::write_seeded(12).expect("a folder");
    let head = models.draft(Pair::Dflash).expect("a folder");
    let file = head.join("config.json");
    let written: Value = serde_json::from_str(&fs::read_to_string(&file).expect("a file")).expect("an object");
    let chain = TreeShape::chain(5);
    let first_scores = |change: Value, text: &[u32], rows: usize| {
        let mut config = written.clone();
        config.as_object_mut().expect("an object").extend(change.as_object().expect("an object").clone());
        fs::write(&file, config.to_string()).expect("the file is ours");
        let options = EngineOptions { draft_block_size: Some(rows), ..options(&models, Pair::Dflash) };
        pool(&mut backend(&options), text, chain).all().iter().map(|one| one.score).collect::<Vec<f32>>()
    };
    let text = prompt();
    let windowed = json!({"layer_types": ["sliding_attention", "sliding_attention"], "sliding_window": 5});
    let full = json!({"layer_types": ["full_attention", "full_attention"]});
    assert_ne!(first_scores(windowed.clone(), &text, 6), first_scores(full.clone(), &text, 6));
    let longer =
        json!({"layer_types": ["sliding_attention", "sliding_attention"], "sliding_window": 500, "is_causal": false});
    assert_eq!(first_scores(longer, &text, 6), first_scores(full.clone(), &text, 6), "a window longer than the text");
    // The first rows of a causal block do not depend on how many follow; those of another block do.
    let causal = json!({"layer_types": ["full_attention", "full_attention"], "is_causal": true});
    assert_eq!(first_scores(causal.clone(), &text, 6), first_scores(causal, &text, 9));
    assert_ne!(first_scores(full.clone(), &text, 6), first_scores(full, &text, 9));
}

#[test]
fn a_trace_has_the_confidences_of_the_best_chain_and_rounds_compute_none() {
    let models = RandomModels::write_seeded(14).expect("a folder");
    let of = |pair: Pair, shape: TreeShape, wanted: RequiredTree| {
        let options = EngineOptions { draft_block_size: Some(8), ..options(&models, pair) };
        pool_of(&mut backend(&options), &prompt(), shape, wanted)
    };
    let chain = of(Pair::Dspark, TreeShape::chain(5), RequiredTree::Whole);
    assert_eq!((chain.confidence().len(), chain.best_chain()), (5, vec![0, 1, 2, 3, 4]));
    assert!(chain.confidence().iter().all(|log_odds| log_odds.is_finite() && *log_odds != 0.0), "{chain:?}");
    // They are those of the drafts of the chain, whatever else the tree has.
    let shorter = of(Pair::Dspark, TreeShape::chain(3), RequiredTree::Whole);
    assert_eq!(shorter.confidence(), &chain.confidence()[..3]);
    let tree = of(Pair::Dspark, TreeShape::whole_tree(3, 2, 15), RequiredTree::Whole);
    assert_eq!(tree.confidence(), shorter.confidence());
    assert!(of(Pair::Dspark, TreeShape::chain(5), RequiredTree::Offered).confidence().is_empty());
    assert!(of(Pair::Dflash, TreeShape::chain(5), RequiredTree::Whole).confidence().is_empty());
}

#[test]
fn a_mask_embedding_takes_the_place_of_its_token() {
    let models = RandomModels::write_seeded(12).expect("a folder");
    let options = options(&models, Pair::Dflash);
    let head = models.draft(Pair::Dflash).expect("a folder");
    let shape = TreeShape::chain(5);
    let mut plain = backend(&options);
    let token = 1;
    let (width, row) = (plain.target.hidden_size(), token * plain.target.hidden_size());
    let of_table = plain.target.embedding.data()[row..row + width].to_vec();
    let expected = pool(&mut plain, &prompt(), shape);
    let with = |vector: &[f32], token: u8| {
        write_mask_embedding(&head, vector, token);
        describe(&options).map(|_| pool(&mut backend(&options), &prompt(), shape)).map_err(|error| error.to_string())
    };
    assert_eq!(with(&of_table, 1), Ok(expected.clone()), "the row of its token");
    let other: Vec<f32> = of_table.iter().map(|value| value * 0.5 + 0.25).collect();
    assert_ne!(with(&other, 1), Ok(expected));
    assert!(with(&other, 2).is_err_and(|error| error.contains("mask_embedding.pt is for token 2")));
    assert!(with(&other[1..], 1).is_err_and(|error| error.contains("mask_embedding")));
}

#[test]
fn heads_and_settings_that_would_draft_something_else_are_refused_by_name() {
    let models = RandomModels::write_seeded(13).expect("a folder");
    for (pair, change, expected) in [
        (Pair::Dflash, json!({"architectures": ["DFlash2DraftModel"]}), "a DFlash2 head"),
        (Pair::Dflash, json!({"architectures": ["LiLiCorrDraftModel"]}), "a LiLiCorr head"),
        (Pair::Dflash, json!({"dflash_config": {"mask_token_id": 1, "projector_type": "domino"}}), "a Domino head"),
        (Pair::Dflash, json!({"projector_type": "xpress"}), "a XPress head"),
        (Pair::Dflash, json!({"speculators_model_type": "peagle"}), "a P-EAGLE head"),
        (Pair::Dflash, json!({"conv_kernel_size": 4}), "conv_kernel_size = 4"),
        (Pair::Dflash, json!({"dflash_config": {"mask_token_id": 1, "new_switch": 2}}), "new_switch = 2"),
        (
            Pair::Dflash,
            json!({"dflash_config": {"mask_token_id": 1, "attention_sink_bias": true}}),
            "attention_sink_bias",
        ),
        (Pair::Dflash, json!({"dflash_config": {"mask_token_id": 99}}), "mask_token_id is 99"),
        (Pair::Dflash, json!({"dflash_config": {}}), "mask_token_id is missing"),
        (Pair::Dflash, json!({"mask_token_id": 2}), "mask_token_id is 1 in dflash_config but 2 outside it"),
        (
            Pair::Dflash,
            json!({"dflash_config": {"mask_token_id": 1, "target_layer_ids": [0, 6]}}),
            "ids of layers from 0 to 5",
        ),
        (Pair::Dflash, json!({"num_target_layers": 7}), "num_target_layers is 7"),
        (Pair::Dflash, json!({"use_sliding_window": false}), "use_sliding_window is false"),
        (Pair::Dflash, json!({"layer_types": ["full_attention"]}), "layer_types has 1 entries"),
        (Pair::Dflash, json!({"block_size": 1}), "block"),
        (Pair::Dflash, json!({"markov_rank": 8}), "markov_head.markov_w1.weight is missing"),
        (Pair::Dspark, json!({"dflash_config": {"mask_token_id": 1}}), "markov_rank is missing"),
        (
            Pair::Dspark,
            json!({"dflash_config": {"mask_token_id": 1, "markov_rank": 8, "markov_head_type": "rnn", "linear_position_ids": true}}),
            "linear_position_ids = true",
        ),
        (Pair::Qwen3Moe, json!({"num_experts": 2}), "mlp.gate.weight"),
        (Pair::Qwen3Moe, json!({"scoring_func": "sigmoid"}), "scoring_func = sigmoid"),
        (
            Pair::Dspark,
            json!({"dflash_config": {"mask_token_id": 1, "markov_rank": 8, "markov_head_type": "mlp"}}),
            "markov_head_type = mlp",
        ),
        // Another kind of Markov head leaves a tensor that nothing reads.
        (Pair::Dspark, json!({"dflash_config": {"mask_token_id": 1, "markov_rank": 8}}), "markov_head.joint_proj"),
    ] {
        let file = models.draft(pair).expect("a folder").join("config.json");
        let written = fs::read_to_string(&file).expect("the file");
        let mut config: Value = serde_json::from_str(&written).expect("an object");
        config.as_object_mut().expect("an object").extend(change.as_object().expect("an object").clone());
        fs::write(&file, config.to_string()).expect("the file is ours");
        let found = describe(&options(&models, pair)).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(found.contains(expected), "{change}: {found}");
        fs::write(&file, written).expect("the file is ours");
        describe(&options(&models, pair)).expect("the head as written is read");
    }
}

#[test]
fn a_head_without_a_markov_head_drafts_as_one_whose_correction_is_zero() {
    let models = RandomModels::write_seeded(15).expect("a folder");
    let options = options(&models, Pair::Dspark);
    let folder = models.draft(Pair::Dspark).expect("a folder");
    let drafts = |shape: &str| {
        let mut backend = backend(&options);
        let shape = backend.draft.as_ref().map(|draft| draft.nodes().parse(shape).expect("a shape"));
        let pool = pool(&mut backend, &prompt(), shape.expect("a head"));
        pool.all().iter().map(|node| (node.token, node.parent, node.score.to_bits())).collect::<Vec<_>>()
    };
    let corrected = drafts("8,2,16");
    change_tensors(&folder, |tensors| tensors.get_mut("markov_head.markov_w2.weight").expect("W2").2.fill(0));
    let expected = drafts("8,2,16");
    assert_ne!(corrected, expected);
    change_tensors(&folder, |tensors| tensors.retain(|name, _| !name.contains("_head.")));
    let file = folder.join("config.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&file).expect("a file")).expect("an object");
    let settings = config["dflash_config"].as_object_mut().expect("settings");
    settings.retain(|name, _| !name.contains("_head"));
    settings.insert("markov_rank".into(), json!(0));
    fs::write(&file, config.to_string()).expect("the file is ours");
    assert_eq!(drafts("8,2,16"), expected);
    let refused = describe(&EngineOptions { algorithm: Some("DFLASH".into()), ..options.clone() });
    let refused = refused.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("its config.json); use --speculative-algorithm DSPARK"), "{refused}");
}

#[test]
fn a_head_is_named_by_its_algorithm() {
    let models = RandomModels::write_seeded(14).expect("a folder");
    let options = options(&models, Pair::Dspark);
    let described = describe(&EngineOptions { algorithm: Some("EAGLE3".into()), ..options.clone() });
    let found = described.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(found.contains("use --speculative-algorithm DSPARK"), "{found}");
    let (spec, _) = describe(&options).expect("a pair").draft.expect("a head");
    assert!(matches!(spec, DraftSpec::Block(_)) && spec.algorithm() == "DSPARK");
}
