//! A model on several devices, in the emulator: ranks are threads, and they exchange data in host
//! memory.

use engine::{
    DeviceChoice,
    selftest::{self, Check, Scope},
};

/// The self-test's promises that are broken, for a model that ranks share.
fn broken(ranks: usize) -> Vec<Check> {
    let mut broken = Vec::new();
    let report = &mut |check: Check| {
        println!("{}: {:?}", check.name, check.failure);
        broken.extend(Some(check).filter(|check| check.failure.is_some()));
    };
    selftest::run(DeviceChoice::Emulator, ranks, Scope::Quick, report).expect("the emulator runs");
    broken
}

#[test]
fn two_ranks_keep_all_promises() {
    assert!(broken(2).is_empty());
}
