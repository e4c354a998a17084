//! FR-Spec's token maps: JSON, or a pickle in a zip archive.
//!
//! The reader belongs to `engine`, whose many dependencies would make every target slow to build: its one file is taken
//! in by its path.
#![no_main]

#[path = "../../engine/src/checkpoint/token_map.rs"]
mod token_map;

/// The part of the engine's errors that the reader knows.
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

/// One file a process, in memory where the system has such a place.
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
