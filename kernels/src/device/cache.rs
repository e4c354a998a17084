//! The cache on disk: compiled kernels, and the fastest algorithm found for each shape.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// `$SPECTUNE_CACHE`, or `spectune/kernels` in the user's cache folder.
pub(super) fn folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("SPECTUNE_CACHE").or_else(|| {
        let caches = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
        caches.map(|caches| caches.join("spectune").join("kernels"))
    })
}

/// Reads a file that ends with the hash of its contents. `None` if it is missing, truncated or
/// damaged.
pub(super) fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = fs::read(path).ok()?;
    let end = bytes.len().checked_sub(blake3::OUT_LEN)?;
    let hash = bytes.split_off(end);
    (blake3::hash(&bytes).as_bytes() == hash.as_slice()).then_some(bytes)
}

/// Writes to a temporary file and renames it, so that two processes may write at once.
pub(super) fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    fs::write(&temporary, [bytes, blake3::hash(bytes).as_bytes()].concat())?;
    fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cached_file_that_was_cut_is_not_used() {
        let path = std::env::temp_dir().join(format!("spectune-cache-test-{}", std::process::id()));
        write(&path, b"binary").expect("a writable folder");
        assert_eq!(read(&path).as_deref(), Some(b"binary".as_slice()));
        let bytes = fs::read(&path).expect("just written");
        fs::write(&path, &bytes[..bytes.len() - 1]).expect("writable");
        assert_eq!(read(&path), None);
        fs::remove_file(&path).expect("removable");
    }
}
