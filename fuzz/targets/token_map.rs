//! FR-Spec's token maps: JSON, or a pickle in a zip archive.
//!
//! The reader is part of `engine`, whose many dependencies would make every target slow to build.
//! So its file is included by path.
#![no_main]

#[path = "../../engine/src/checkpoint/read.rs"]
#[expect(dead_code, reason = "only one of its functions is used here")]
mod read;
#[path = "../../engine/src/checkpoint/token_map.rs"]
mod token_map;

/// The variants of the engine's error that the reader uses.
mod error {
    use std::path::PathBuf;

    #[derive(Debug)]
    #[expect(dead_code, reason = "made by the reader, looked at by no one")]
    pub enum EngineError {
        Read { path: PathBuf, source: std::io::Error },
        Malformed { path: PathBuf, reason: String },
    }
}

use std::{fs, path::PathBuf, sync::LazyLock};

use libfuzzer_sys::fuzz_target;

/// One file per process, in memory (`/dev/shm`) if possible.
static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Some(PathBuf::from("/dev/shm")).filter(|folder| folder.is_dir()).unwrap_or_else(std::env::temp_dir);
    folder.join(format!("spectune-token-map-{}", std::process::id()))
});

fuzz_target!(|input: &[u8]| {
    fs::write(&*FILE, input).expect("a folder for temporary files");
    if let Ok(ids) = token_map::read_token_map(&FILE, 1 << 18) {
        assert!(!ids.is_empty() && ids.iter().all(|id| *id < 1 << 18));
    }
});
