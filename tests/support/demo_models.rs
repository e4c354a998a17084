//! A folder with the demo models.

use std::{fs, path::Path};

use tempfile::TempDir;

/// A temporary folder with copies of the tiny target and its EAGLE-3 head in `models`.
pub fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository");
    for model in ["target", "eagle3"] {
        let (from, to) = (root.join("models/tiny").join(model), folder.path().join("models").join(model));
        fs::create_dir_all(&to).expect("a folder");
        for file in fs::read_dir(from).expect("a model").flatten() {
            fs::copy(file.path(), to.join(file.file_name())).expect("a copy");
        }
    }
    folder
}
