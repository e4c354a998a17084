//! Collects warnings.

use std::{
    fmt::{Debug, Write},
    sync::{Arc, Mutex},
};

use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

#[derive(Clone, Default)]
struct CollectedWarnings(Arc<Mutex<String>>);

impl Visit for CollectedWarnings {
    fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
        writeln!(self.0.lock().expect("a text"), "{value:?}").expect("text");
    }
}

impl Subscriber for CollectedWarnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A result, and the warnings on the way to it.
pub fn warned<T>(of: impl FnOnce() -> T) -> (T, String) {
    let collected = CollectedWarnings::default();
    let result = tracing::subscriber::with_default(collected.clone(), of);
    let text = collected.0.lock().expect("a text").clone();
    (result, text)
}
