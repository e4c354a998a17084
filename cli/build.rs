//! Passes the commit and the target to `spectune --version`.
//!
//! A debug build records no commit, because it would have to be linked again after every commit.
//! `SPECTUNE_COMMIT` overrides git, for builds from an archive.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=SPECTUNE_COMMIT");
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let profile = variable("PROFILE").unwrap_or_default();
    let commit = variable("SPECTUNE_COMMIT").or_else(|| (profile == "release").then(commit).flatten());
    println!("cargo::rustc-env=SPECTUNE_BUILD_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    println!("cargo::rustc-env=SPECTUNE_BUILD_PROFILE={profile}");
    println!("cargo::rustc-env=SPECTUNE_BUILD_TARGET={}", variable("TARGET").unwrap_or_default());
}

/// The commit of this repository, with `-modified` if tracked files differ from it; `None` without
/// git, or if the sources were unpacked inside another repository.
fn commit() -> Option<String> {
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?).parent()?.canonicalize().ok()?;
    if PathBuf::from(git(&root, &["rev-parse", "--show-toplevel"])?).canonicalize().ok()? != root {
        return None;
    }
    // The log of HEAD grows with every commit and checkout; without reflogs, HEAD itself changes.
    for name in ["logs/HEAD", "HEAD"] {
        let path = root.join(git(&root, &["rev-parse", "--git-path", name])?);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
            break;
        }
    }
    let commit = git(&root, &["rev-parse", "--short=12", "HEAD"])?;
    let changes = git(&root, &["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changes.is_empty() { commit } else { format!("{commit}-modified") })
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").current_dir(root).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
