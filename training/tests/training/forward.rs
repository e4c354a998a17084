//! The trainer computes the same as the engine: a chain that the engine drafts has the same
//! log-probabilities in the trainer's unrolled pass over the text with that chain.

use candle_core::{D, DType, Device, Tensor};
use engine::{
    Engine, SamplingParams,
    backend::{PageId, PrefillChunk, ReplayPlace, RequiredTree, Slot},
    load::{Loaded as LoadedEngine, load as load_engine},
};
use schemas::tree::TreeShape;
use training::head::{HeadRows, History};

use crate::common::{load, options, tokens};

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
        let rows = HeadRows { each: position, starts: vec![0] };
        let whole: Vec<u32> =
            text[..=position].iter().copied().chain(drafted.iter().map(|(token, _)| *token)).collect();
        let features = if states.captured.is_empty() { &states.last } else { &states.captured };
        let width = features.len() / states.positions;
        let of_target = Tensor::from_slice(&features[..position * width], (position, width), &Device::Cpu);
        let head = &loaded.head;
        let mut state = head.features(&of_target.expect("a tensor")).expect("features");
        let (mut history, mut sum) = (History::default(), 0.0);
        for (step, (token, score)) in drafted.iter().enumerate() {
            let consumed = Tensor::from_slice(&whole[1 + step..1 + step + position], position, &Device::Cpu);
            let made = head.step(&consumed.expect("a tensor"), &state, &rows, &mut history).expect("a step");
            let logits = made.logits.narrow(0, position - 1, 1).expect("a row");
            let logits = logits.squeeze(0).and_then(|row| row.to_vec1::<f32>()).expect("values");
            let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let norm = logits.iter().map(|logit| (logit - largest).exp()).sum::<f32>().ln() + largest;
            let own = head.spec().tokens.as_ref().map_or(*token as usize, |tokens| {
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
            state = made.state;
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
