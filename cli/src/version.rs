//! The output of `spectune --version`: the version, the commit, and what this build can run.

/// The first line of `--version`, and the output of `-V`: `0.2.0 (1a2b3c4d5e6f)`.
pub const SHORT: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("SPECTUNE_BUILD_COMMIT"), ")");

/// What this build can run.
#[cfg(feature = "engine")]
macro_rules! features {
    () => {
        concat!(
            "cpu (float32), cuda (libraries of CUDA 13 are loaded when a GPU is used), ",
            training!(),
            "hub, server"
        )
    };
}
#[cfg(all(feature = "engine", feature = "training"))]
macro_rules! training {
    () => {
        "training (cpu), "
    };
}
#[cfg(all(feature = "engine", not(feature = "training")))]
macro_rules! training {
    () => {
        ""
    };
}
#[cfg(not(feature = "engine"))]
macro_rules! features {
    () => {
        "lint only, without an engine"
    };
}

/// The output of `--version`.
pub const LONG: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit:   ",
    env!("SPECTUNE_BUILD_COMMIT"),
    "\nbuild:    ",
    env!("SPECTUNE_BUILD_PROFILE"),
    ", ",
    env!("SPECTUNE_BUILD_TARGET"),
    "\nfeatures: ",
    features!(),
);
