//! The demo models, for tests.

use std::path::{Path, PathBuf};

use engine::{DeviceChoice, Engine, EngineOptions};

/// The demo target with its EAGLE-3 head on the CPU, for sequences of 128 tokens.
pub fn engine(max_running_requests: usize) -> Engine {
    engine_of(max_running_requests, 128)
}

/// The same for this many requests of this length, not counting the tree of their last round.
pub fn engine_of(max_running_requests: usize, context_length: usize) -> Engine {
    let models = folder();
    Engine::load(EngineOptions {
        model_path: models.join("target"),
        draft_model_path: Some(models.join("eagle3")),
        algorithm: Some("EAGLE3".into()),
        device: DeviceChoice::Cpu,
        context_length: Some(context_length),
        max_running_requests,
        page_size: 16,
        disable_radix_cache: true,
        ..EngineOptions::default()
    })
    .expect("the demo models load")
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny")
}
