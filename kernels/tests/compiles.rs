//! Every kernel file compiles for the architectures that people run, which needs NVRTC but no GPU.

use kernels::{
    device::{DeviceError, Element, Properties, compile_for},
    launch::{expert_files, files, fp8_files},
};

/// As a device of an architecture says of itself, as far as compiling asks.
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

#[test]
fn all_kernels_compile_for_ampere_hopper_and_blackwell() {
    for (architecture, capability, shared_bytes) in
        [("sm_80", (8, 0), 99 << 10), ("sm_90a", (9, 0), 227 << 10), ("sm_100", (10, 0), 227 << 10)]
    {
        for element in [Element::F16, Element::BF16, Element::F32] {
            let all = files(element, &[64, 96, 128, 256], &properties(capability, shared_bytes));
            let fp8 = fp8_files(element, &properties(capability, shared_bytes), true);
            for (file, options) in all.into_iter().chain(expert_files(element)).chain(fp8) {
                match compile_for(file, &options, architecture) {
                    Ok(binary) => assert!(!binary.is_empty()),
                    Err(error @ DeviceError::Missing { .. }) => {
                        eprintln!("skipped: {error}");
                        return;
                    }
                    Err(error) => panic!("{options:?}: {error}"),
                }
            }
        }
    }
}
