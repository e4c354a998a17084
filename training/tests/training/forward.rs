//! The trainer computes the same as the engine: a chain that the engine drafts has the same
//! log-probabilities in the trainer's unrolled pass over the text with that chain.

use candle_core::{D, DType, Device, Tensor};
use engine::{
    Engine, EngineOptions, SamplingParams, ShapePolicy,
    backend::{PageId, PrefillChunk, ReplayPlace, RequiredTree, Slot},
    load::{Loaded as LoadedEngine, load as load_engine},
};
use schemas::tree::TreeShape;
use training::head::{HeadRows, indices};

use crate::common::{BLOCK_TREE, BlockKind, block_head, block_options, load, options, tokens};

const STEPS: usize = 4;

fn check(pair: &str) {
    let options = options(pair);
    let mut engine = Engine::load(options.clone()).expect("it loads");
    let text = tokens(18, engine.capacity().vocab_size);
    let states = engine.states(&text).expect("states");
    assert_eq!(states.positions, text.len() - 1);

    // The engine's drafts at some places of the text.
    let LoadedEngine { mut backend, .. } = load_engine(&options).expect("it loads");
    let shape = TreeShape::chain(STEPS);
    backend.prepare(&[shape], &[], &mut |_, _| {}).expect("ready");
    let pages: Vec<PageId> = (0..32).map(PageId).collect();
    let slot = Slot(0);
    backend.open(slot, &SamplingParams::default(), &pages, 0).expect("open");
    backend.trace(slot, 0..text.len() - 1, false).expect("traced");
    let last = text.len() - 1;
    let chunk = PrefillChunk { slot, tokens: &text[..last], start: 0, next: Some(text[last]) };
    let _ = backend.prefill_collecting(&[chunk]).expect("read");
    let loaded = load(&options, DType::F32, |_, _| {});
    for position in [1, 2, 9, last] {
        // A pool grows as long as the text continues: the chain so far, and any token after it.
        let mut drafted: Vec<(u32, f32)> = Vec::new();
        for _ in 0..STEPS {
            let followed: Vec<u32> = drafted.iter().map(|(token, _)| *token).chain([0]).collect();
            let place =
                ReplayPlace { slot, position, root: text[position], text: &followed, wanted: RequiredTree::Offered };
            let pool = backend.pools(&[place], &[shape]).expect("a pool").remove(0);
            drafted = pool.all().iter().map(|proposal| (proposal.token, proposal.score)).collect();
        }
        assert_eq!(drafted.len(), STEPS, "{pair}");

        // The same with the trainer: rows up to the place, the last of which reads the root and
        // then the chain.
        let rows = HeadRows::every(position, vec![0]);
        let whole: Vec<u32> =
            text[..=position].iter().copied().chain(drafted.iter().map(|(token, _)| *token)).collect();
        let features = if states.captured.is_empty() { &states.last } else { &states.captured };
        let width = features.len() / states.positions;
        let of_target = Tensor::from_slice(&features[..position * width], (position, width), &Device::Cpu);
        let mut pass = loaded.head.pass(&of_target.expect("a tensor"), &rows).expect("a pass");
        let mut sum = 0.0;
        for (step, (token, score)) in drafted.iter().enumerate() {
            let consumed = Tensor::from_slice(&whole[1 + step..1 + step + position], position, &Device::Cpu);
            let made = pass.step(&consumed.expect("a tensor")).expect("a step");
            let logits = made.logits.narrow(0, position - 1, 1).expect("a row");
            let logits = logits.squeeze(0).and_then(|row| row.to_vec1::<f32>()).expect("values");
            let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let norm = logits.iter().map(|logit| (logit - largest).exp()).sum::<f32>().ln() + largest;
            let own = loaded.spec.tokens().map_or(*token as usize, |tokens| {
                tokens.iter().position(|known| known == token).expect("a token of the draft")
            });
            let likeliest = made.logits.narrow(0, position - 1, 1).and_then(|row| row.argmax(D::Minus1));
            assert_eq!(
                likeliest.and_then(|row| row.to_vec1::<u32>()).expect("values"),
                [own as u32],
                "{pair} at {position}"
            );
            sum += logits[own] - norm;
            assert!((sum - score).abs() < 2e-4, "{pair} at {position}, step {step}: {sum} and {score}");
        }
    }
}

#[test]
fn eagle3_computes_what_the_engine_computes() {
    check("tiny/eagle3");
}

#[test]
fn eagle2_computes_what_the_engine_computes() {
    check("tiny/eagle2");
}

#[test]
fn an_mtp_layer_computes_what_the_engine_computes() {
    check("mimo");
}

#[test]
fn a_dflash_head_computes_what_the_engine_computes() {
    check_block(BlockKind::Dflash, &[BLOCK_TREE, TreeShape::chain(2), TreeShape::chain(6)]);
}

#[test]
fn a_dspark_head_computes_what_the_engine_computes() {
    for markov in ["vanilla", "gated", "rnn"] {
        // Of a tree, each node has a row of its own, and the trainer only follows one path.
        check_block(BlockKind::Dspark(markov, true), &[TreeShape::chain(3), TreeShape::chain(5)]);
    }
}

/// The log-probabilities of all drafts of the engine's pools after some tokens of a text are those
/// of the trainer's blocks after all of these tokens, in one pass.
fn check_block(kind: BlockKind, shapes: &[TreeShape]) {
    let head = block_head(kind);
    for shape in shapes {
        let options = EngineOptions { policy: ShapePolicy::fixed(*shape), ..block_options(&head) };
        let mut engine = Engine::load(options.clone()).expect("it loads");
        let text = tokens(18, engine.capacity().vocab_size);
        let last = text.len() - 1;
        let positions = [1, 2, 9, last];

        let LoadedEngine { mut backend, .. } = load_engine(&options).expect("it loads");
        backend.prepare(&[*shape], &[], &mut |_, _| {}).expect("ready");
        let pages: Vec<PageId> = (0..32).map(PageId).collect();
        let slot = Slot(0);
        backend.open(slot, &SamplingParams::default(), &pages, 0).expect("open");
        backend.trace(slot, 0..last, false).expect("traced");
        let chunk = PrefillChunk { slot, tokens: &text[..last], start: 0, next: Some(text[last]) };
        let _ = backend.prefill_collecting(&[chunk]).expect("read");
        let pools = positions.map(|position| {
            let root = text[position];
            let place = ReplayPlace { slot, position, root, text: &[], wanted: RequiredTree::Offered };
            backend.pools(&[place], &[*shape]).expect("a pool").remove(0)
        });

        let states = engine.states(&text).expect("states");
        let loaded = load(&options, DType::F32, |_, _| {});
        let anchors = positions.iter().map(|position| Some(position - 1)).collect();
        let rows = HeadRows { each: last, starts: vec![0], anchors };
        let width = states.captured.len() / states.positions;
        let of_target = Tensor::from_slice(&states.captured, (last, width), &Device::Cpu).expect("a tensor");
        let mut pass = loaded.head.pass(&of_target, &rows).expect("a pass");
        let mut before = positions.map(|position| text[position]);
        let mut by_depth: Vec<Vec<Vec<f32>>> = Vec::new();
        for depth in 0..shape.num_steps {
            let made = pass.step(&indices(&before, &Device::Cpu).expect("a tensor")).expect("a step");
            assert_eq!(made.confidence.is_some(), kind != BlockKind::Dflash);
            by_depth.push(log_softmax(&made.logits));
            // Of a chain, the token of this depth.
            before = std::array::from_fn(|at| pools[at].all()[depth].token);
        }
        let after = indices(&before, &Device::Cpu).expect("a tensor");
        assert!(pass.step(&after).is_err(), "a block of {shape:?} has no further row");

        for (anchor, (pool, position)) in pools.iter().zip(positions).enumerate() {
            // The depth of each proposal, and the sum of the trainer's log-probabilities up to it.
            let mut found: Vec<(usize, f32)> = Vec::new();
            for proposal in pool.all() {
                let (depth, before) = proposal.parent.map_or((0, 0.0), |at| (found[at].0 + 1, found[at].1));
                let sum = before + by_depth[depth][anchor][proposal.token as usize];
                let apart = (sum - proposal.score).abs();
                assert!(apart < 2e-4, "{kind:?} {shape:?} at {position}, depth {depth}: {sum}, {}", proposal.score);
                found.push((depth, sum));
            }
            assert_eq!(found.iter().map(|(depth, _)| depth + 1).max(), Some(shape.num_steps), "{shape:?}");
        }
    }
}

fn log_softmax(logits: &Tensor) -> Vec<Vec<f32>> {
    let largest = logits.max_keepdim(D::Minus1).expect("maxima");
    let apart = logits.broadcast_sub(&largest).expect("differences");
    let sums = apart.exp().and_then(|all| all.sum_keepdim(D::Minus1)?.log()).expect("sums");
    apart.broadcast_sub(&sums).and_then(|all| all.to_vec2::<f32>()).expect("values")
}
