//! The spectune command line.
fn main() {}
