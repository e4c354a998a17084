//! Every kernel file compiles for the architectures that people run, which needs NVRTC but no GPU.

use kernels::{
    device::{DeviceError, Element, compile_for},
    launch::files,
};

#[test]
fn all_kernels_compile_for_ampere_hopper_and_blackwell() {
    for architecture in ["sm_80", "sm_90a", "sm_100"] {
        for element in [Element::F16, Element::BF16, Element::F32] {
            for (file, options) in files(element, &[64, 96, 128, 256]) {
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
