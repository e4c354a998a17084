//! The memory limit of all requests: bodies, their parsed form, and prompts that wait or run.
//! Responses are bounded elsewhere: by the context length, and by how long a client may leave them
//! unread.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::ApiError;

/// Granularity in bytes.
const UNIT: usize = 1024;

/// The memory available to requests. Clones share it.
#[derive(Clone, Debug)]
pub struct RequestMemory(Arc<Semaphore>);

/// A reserved part, released when dropped.
#[derive(Debug)]
pub struct Permit(OwnedSemaphorePermit);

impl RequestMemory {
    /// Memory of this many bytes.
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new((bytes / UNIT).clamp(1, Semaphore::MAX_PERMITS))))
    }

    /// Reserves a part.
    ///
    /// # Errors
    /// When not enough is free.
    pub fn hold(&self, bytes: usize) -> Result<Permit, ApiError> {
        // Semaphores count in 32 bits, so memory is counted in units.
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        self.0.clone().try_acquire_many_owned(units).map(Permit).map_err(|_| ApiError::no_memory())
    }

    /// Bytes that are free.
    pub fn free(&self) -> usize {
        self.0.available_permits() * UNIT
    }
}

impl Permit {
    /// Merges another part into this one.
    pub fn join(&mut self, other: Self) {
        self.0.merge(other.0);
    }
}

/// Approximate size of a value in memory, in bytes.
pub fn footprint(value: &Value) -> usize {
    /// Overhead of an object per entry: the hash, the index entry, and the key's own size.
    const ENTRY: usize = 56;
    size_of_val(value)
        + match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => text.capacity(),
            Value::Array(list) => {
                list.iter().map(footprint).sum::<usize>() + (list.capacity() - list.len()) * size_of::<Value>()
            }
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| ENTRY + name.capacity() + footprint(value)).sum::<usize>()
            }
        }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_held_is_free_again_when_it_is_dropped() {
        let memory = RequestMemory::new(10 * UNIT);
        let mut first = memory.hold(4 * UNIT).expect("there is room");
        first.join(memory.hold(1).expect("there is room"));
        assert_eq!(memory.free(), 5 * UNIT);
        assert!(memory.hold(6 * UNIT).is_err());
        drop(first);
        assert_eq!(memory.free(), 10 * UNIT);
        assert!(memory.hold(usize::MAX).is_err());
    }

    #[test]
    fn small_values_weigh_what_their_places_do() {
        let list = |count: usize| footprint(&json!(vec![0; count]));
        assert!(list(1000) >= 1000 * size_of::<Value>());
        let nested = footprint(&json!(vec![json!({"": 0}); 100]));
        assert!(nested > 100 * (2 * size_of::<Value>() + 48), "{nested}");
    }
}
