//! The flags of `spectune serve` that are not the engine's: of its port, its limits and its
//! answers.

use super::Arity;

/// Names without dashes, in alphabetical order, with the number of words that follow. A test of the
/// program compares them with its command line.
const SERVE: [(&str, Arity); 14] = [
    ("allowed-origins", Arity::Several),
    ("api-key", Arity::One),
    ("enable-metrics", Arity::None),
    ("host", Arity::One),
    ("log-requests", Arity::One),
    ("max-connections", Arity::One),
    ("max-queued-requests", Arity::One),
    ("max-request-memory", Arity::One),
    ("port", Arity::One),
    ("reasoning-parser", Arity::One),
    ("request-metrics", Arity::None),
    ("served-model-name", Arity::One),
    ("shutdown-grace", Arity::One),
    ("tool-call-parser", Arity::One),
];

/// The number of words that follow a flag of `spectune serve`, by its name without dashes; `None`
/// if it has no such flag beside the engine's. SGLang may have a flag of the same name that takes
/// another number.
pub fn arity_in_serve(name: &str) -> Option<Arity> {
    SERVE.iter().find(|(own, _)| *own == name).map(|(_, arity)| *arity)
}

/// All of them.
pub fn all_of_serve() -> impl Iterator<Item = (&'static str, Arity)> {
    SERVE.into_iter()
}
