//! Settings of the engine that a configuration changes.

use engine::EngineOptions;
use schemas::sweep::SweepFile;

use crate::{configuration::Knobs, space::Expanded};

/// Requests that run together where only arrivals say how they come: SGLang's number under speculation.
const OPEN_LOOP: usize = 48;

/// The engine's options with what a configuration changes of them.
pub fn options_with(options: &EngineOptions, knobs: &Knobs) -> EngineOptions {
    let mut options = options.clone();
    if let Some(requests) = knobs.max_running_requests {
        options.max_running_requests = requests;
    }
    if let Some(share) = knobs.mem_fraction_static {
        options.mem_fraction_static = share.0;
    }
    if let Some(backend) = &knobs.attention_backend {
        options.attention_backend = Some(backend.clone());
    }
    if let Some(tokens) = knobs.page_size {
        options.page_size = tokens;
    }
    if let Some(tokens) = knobs.chunked_prefill_size {
        options.chunked_prefill_size = tokens;
    }
    options
}

/// Most requests that run together in a sweep, unless a configuration says otherwise: the largest batch that is asked for.
pub fn max_running_requests(file: &SweepFile, space: &Expanded) -> usize {
    let closed = file.batch_sizes().into_iter().max();
    let tables = space.entrants.iter().flat_map(|one| &one.configuration.table).map(|row| row.max_running_batch).max();
    let open = (file.arrivals.count() > 0 && closed.is_none()).then_some(OPEN_LOOP);
    closed.into_iter().chain(tables).chain(open).max().unwrap_or(1)
}
