//! Every kernel file compiles for the supported architectures, which needs NVRTC but no GPU.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use kernels::{
    device::{Element, KernelFile, Properties, compile_for},
    launch::{
        LatentDims, block_files, delta_chunk_files, delta_files, expert_files, files, fp8_cache_files, fp8_files,
        latent_files, look_up_files, mxfp4_files, product_files, sink_files, training_files, window_files,
    },
    reference::DeltaSizes,
};

/// Qwen3.5-27B.
const QWEN35: DeltaSizes = DeltaSizes { key_heads: 16, value_heads: 48, key_dim: 128, value_dim: 128, taps: 4 };
/// The largest gated delta net that is not refused: no kernel may take too much shared memory.
const LARGEST: DeltaSizes = DeltaSizes { key_heads: 1, value_heads: 1, key_dim: 256, value_dim: 256, taps: 8 };

/// Properties of a device of an architecture, as far as compilation needs them.
fn properties(capability: (u32, u32), shared_bytes: usize) -> Properties {
    Properties {
        name: String::new(),
        driver: String::new(),
        multiprocessors: 1,
        capability,
        cache_bytes: 0,
        shared_bytes,
        most_cluster: 1,
        emulated: false,
    }
}

/// DeepSeek-V3.
const DEEPSEEK: LatentDims =
    LatentDims { heads: 128, nope: 128, rotated: 64, rank: 512, value: 128, interleaved: true };

type Files = Vec<(KernelFile, Vec<String>)>;

const ELEMENTS: [Element; 3] = [Element::F16, Element::BF16, Element::F32];

#[test]
#[ignore = "needs NVRTC (libnvrtc.so); .ci/run installs it and runs this test"]
fn gated_delta_nets_compile_for_ampere_hopper_and_blackwell() {
    for architecture in ["sm_80", "sm_90a", "sm_100"] {
        let of = |element| delta_files(element, &QWEN35).into_iter().chain(delta_chunk_files(element, &QWEN35));
        for (file, options) in ELEMENTS.into_iter().flat_map(of) {
            compiles(file, &options, architecture);
        }
    }
    for (file, options) in delta_files(Element::BF16, &LARGEST) {
        compiles(file, &options, "sm_90a");
    }
}

#[test]
#[ignore = "needs NVRTC (libnvrtc.so); .ci/run installs it and runs this test"]
fn all_kernels_compile_for_ampere_hopper_and_blackwell() {
    all_compile(|element, properties| {
        let all = files(element, &[64, 96, 128, 256], properties);
        let latent = latent_files(element, &[DEEPSEEK], properties);
        let fp8 = fp8_files(element, properties, true);
        let fp8 = fp8.into_iter().chain(product_files(element, properties, true));
        let further = block_files(element).into_iter().chain(expert_files(element)).chain(latent).chain(fp8);
        let further = further.chain(look_up_files());
        all.into_iter().chain(further).chain(training_files(element)).collect()
    });
}

#[test]
#[ignore = "needs NVRTC (libnvrtc.so); .ci/run installs it and runs this test"]
fn kernels_of_gpt_oss_compile_for_ampere_hopper_and_blackwell() {
    all_compile(|element, properties| {
        let sinks = sink_files(element, &[64], properties);
        sinks.into_iter().chain(mxfp4_files(element)).chain(expert_files(element)).chain(window_files()).collect()
    });
}

#[test]
#[ignore = "needs NVRTC (libnvrtc.so); .ci/run installs it and runs this test"]
fn kernels_over_a_cache_in_fp8_compile_for_ampere_hopper_and_blackwell() {
    all_compile(|element, properties| fp8_cache_files(element, &[64, 96, 128, 256], &[64], properties));
}

/// Compiles files for each architecture and element type.
fn all_compile(files: impl Fn(Element, &Properties) -> Files + Sync) {
    let architectures = [("sm_80", (8, 0), 99 << 10), ("sm_90a", (9, 0), 227 << 10), ("sm_100", (10, 0), 227 << 10)];
    let files = &files;
    // Sequentially they take minutes.
    std::thread::scope(|scope| {
        for (architecture, capability, shared_bytes) in architectures {
            for element in ELEMENTS {
                scope.spawn(move || {
                    for (file, options) in files(element, &properties(capability, shared_bytes)) {
                        compiles(file, &options, architecture);
                    }
                });
            }
        }
    });
}

/// Compiles a file once, however many tests want it.
fn compiles(file: KernelFile, options: &[String], architecture: &str) {
    static BEGUN: Mutex<BTreeSet<(&str, Vec<String>, String)>> = Mutex::new(BTreeSet::new());
    let one = (file.name, options.to_vec(), architecture.to_owned());
    if !BEGUN.lock().unwrap_or_else(PoisonError::into_inner).insert(one) {
        return;
    }
    // What the compiler rejects does not depend on how well it optimises.
    let quickly = [options, &["--Ofast-compile=max".to_owned()]].concat();
    match compile_for(file, &quickly, architecture) {
        Ok(binary) => assert!(!binary.is_empty()),
        Err(error) => panic!("{options:?}: {error}"),
    }
}
