//! Every kernel against its CPU reference, in the emulator: what a GPU would compute, on a machine without one.

use kernels::{
    checks::{CHECKS, UNTYPED_CHECKS},
    device::{Device, DeviceError, Element},
};

/// A machine without a C++ compiler cannot emulate; continuous integration has one.
fn device() -> Option<Device> {
    match Device::emulated() {
        Ok(device) => Some(device),
        Err(error @ DeviceError::Missing { .. }) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn check(element: Element) {
    let Some(device) = device() else { return };
    for (name, check) in CHECKS {
        if let Err(reason) = check(&device, element) {
            panic!("{name}: {reason}");
        }
    }
}

#[test]
fn kernels_agree_with_the_reference_in_float16() {
    check(Element::F16);
}

#[test]
fn kernels_agree_with_the_reference_in_bfloat16() {
    check(Element::BF16);
}

#[test]
fn kernels_agree_with_the_reference_in_float32() {
    check(Element::F32);
}

#[test]
fn kernels_without_an_element_type_agree_with_the_reference() {
    let Some(device) = device() else { return };
    for (name, check) in UNTYPED_CHECKS {
        if let Err(reason) = check(&device) {
            panic!("{name}: {reason}");
        }
    }
}
