//! Products in FP8 in the emulator.

use kernels::{device::Element, launch::Weights, reference::Fp8Rows};
use schemas::tree::TreeShape;

use super::{CudaBackend, CudaOptions, device, options, produce};
use crate::{
    SamplingParams,
    backend::{
        Backend, ProducedToken, Round, Slot,
        cuda::{
            Models, WeightSource, load,
            weights::{FfnWeights, experts_shape},
        },
    },
    checkpoint::{Folder, Tensors},
    families::read_target,
    options::{Fp8Compute, Quantization},
    quantization::{StoredIn, quantised_target},
    spec::{WeightFormat, published},
};

/// The target of `models/tiny`, quantised at load, without a draft.
fn tiny(options: CudaOptions) -> CudaBackend {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny/target");
    let folder = Folder::open(&folder).expect("the shipped target");
    let weights = folder.weights().expect("its tensors");
    let target = read_target(&folder, &weights).expect("its description");
    let stored = StoredIn::Checkpoint(Tensors::new(&weights));
    let target = quantised_target(target, stored, Some(Quantization::Fp8), Fp8Compute::Products).expect("in FP8");
    let models = Models { target: (target, WeightSource::Checkpoint(&weights)), draft: None };
    load(device(), "emulated".into(), models, options, None).expect("a backend")
}

/// Greedy tokens of one request with log-probabilities.
fn tokens(backend: &mut CudaBackend) -> Vec<ProducedToken> {
    backend.prepare(&[TreeShape::OFF], &[1], &mut |_, _| {}).expect("no speculation");
    let sampling = SamplingParams { logprobs: Some(4), ..SamplingParams::default() };
    produce(backend, Round { shape: TreeShape::OFF, slots: &[Slot(0)] }, &sampling, 6).0
}

#[test]
fn layers_that_quantise_their_rows_themselves_change_no_bit() {
    for element in [Element::BF16, Element::F16] {
        let with = |elements| {
            let mut backend = tiny(CudaOptions {
                batch_invariant: false,
                most_unrounded_elements: Some(elements),
                ..options(element)
            });
            let layer = &backend.machine.target.layers[0];
            let FfnWeights::Dense(dense) = &layer.ffn else { panic!("a dense layer") };
            for projection in [layer.attention.output(), &dense.gate_up, &dense.down] {
                let quantiser = projection.quantiser.as_ref().expect("products");
                let within = backend.machine.within(&backend.work, projection, quantiser, 1);
                assert_eq!(within.is_some(), elements > 0, "{elements} elements");
                assert!(backend.machine.within(&backend.work, projection, quantiser, 9).is_none(), "too many rows");
            }
            tokens(&mut backend)
        };
        assert_eq!(with(0), with(1 << 20), "{element:?}");
    }
}

/// The number of rows that are values chooses kernels, which add up the same products in another order.
#[test]
fn numbers_do_not_depend_on_the_rows_that_are_values() {
    let with = |rows| {
        let chosen = CudaOptions { batch_invariant: false, most_value_rows: Some(rows), ..options(Element::BF16) };
        tokens(&mut tiny(chosen))
    };
    let (few, many) = (with(0), with(64));
    for (one, other) in few.iter().zip(&many) {
        assert_eq!(one.id, other.id);
        let [one, other] = [one, other].map(|token| token.logprobs.as_ref().expect("log-probabilities").logprob);
        assert!((one - other).abs() < 0.05, "{few:?} {many:?}");
    }
}

#[test]
fn experts_of_published_shapes_have_products() {
    for (name, quantised, weights, rows, sizes) in [
        ("qwen3-30b-a3b", Some(Quantization::Fp8), Weights::Fp8, Fp8Rows::Row, [128, 8, 768]),
        ("deepseek-v3", None, Weights::Fp8, Fp8Rows::RowBlocks, [256, 8, 2048]),
    ] {
        let target = published(name).expect("a shape").target(Some(4)).expect("four layers");
        let target = quantised_target(target, StoredIn::Nowhere, quantised, Fp8Compute::Products)
            .expect("products of all parts");
        let layer = target.layers.iter().find(|layer| layer.ffn.experts().is_some()).expect("experts");
        let spec = layer.ffn.experts().expect("experts");
        assert_eq!([spec.experts, spec.per_token, spec.intermediate], sizes, "{name}");
        assert_eq!((layer.formats.ffn_rows, layer.formats.attention_rows), (Some(rows), Some(rows)), "{name}");
        assert!(matches!(layer.formats.ffn, WeightFormat::Fp8(_)), "{name}");
        let shape = experts_shape(spec, layer.hidden, weights).expect("kernels for the shape");
        assert_eq!((shape.experts(), shape.refused()), (sizes[0] + usize::from(spec.shared.is_some()), None), "{name}");
    }
}
