//! Expert layers in the emulator; the same checks run within those of all kernels.
use kernels::{
    checks::{check_experts, check_router_ties},
    device::{Device, Element},
};

#[test]
fn experts_here() {
    let device = Device::emulated().unwrap();
    for element in [Element::BF16, Element::F32, Element::F16] {
        check_router_ties(&device, element).unwrap();
        check_experts(&device, element).unwrap();
    }
}
