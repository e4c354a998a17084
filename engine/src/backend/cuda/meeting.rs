//! Rendezvous of the host threads of ranks, for decisions that must be the same on all ranks.

use std::{
    any::Any,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Duration,
};

use kernels::device::{Alarm, DeviceError};

use crate::spec::Share;

/// Interval at which a waiting rank checks whether others have failed.
const LOOK: Duration = Duration::from_millis(20);

/// The rendezvous of the host threads of all ranks, which call the same methods in the same order.
#[derive(Clone)]
pub struct Meeting {
    share: Share,
    table: Arc<MeetingTable>,
}

struct MeetingTable {
    state: Mutex<MeetingState>,
    changed: Condvar,
    alarm: Alarm,
}

struct MeetingState {
    brought: Vec<Option<Box<dyn Any + Send>>>,
    /// Number of ranks that have read the values; `None` while some values are missing.
    seen: Option<usize>,
}

impl Meeting {
    /// One for each of this many ranks. Waiting ranks stop with an error when the alarm rings.
    pub fn for_ranks(ranks: usize, alarm: &Alarm) -> Vec<Self> {
        let state = MeetingState { brought: (0..ranks).map(|_| None).collect(), seen: None };
        let table = Arc::new(MeetingTable { state: Mutex::new(state), changed: Condvar::new(), alarm: alarm.clone() });
        (0..ranks).map(|rank| Self { share: Share { rank, ranks }, table: table.clone() }).collect()
    }

    /// This rank, and the number of ranks.
    pub fn share(&self) -> Share {
        self.share
    }

    /// Whether this is the rank whose choices are used.
    pub fn leads(&self) -> bool {
        self.share.rank == 0
    }

    /// The values of all ranks, in the order of ranks.
    ///
    /// # Errors
    /// When a rank has failed, or the types of the values differ.
    pub fn exchange<V: Clone + Send + 'static>(&self, value: V) -> Result<Vec<V>, DeviceError> {
        let MeetingTable { state, changed, .. } = &*self.table;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        // Some ranks may not have left the previous exchange.
        while state.seen.is_some() {
            state = self.wait(state)?;
        }
        state.brought[self.share.rank] = Some(Box::new(value));
        if state.brought.iter().all(Option::is_some) {
            state.seen = Some(0);
            changed.notify_all();
        }
        while state.seen.is_none() {
            state = self.wait(state)?;
        }
        let values = state.brought.iter().map(|brought| brought.as_ref()?.downcast_ref::<V>().cloned());
        let values: Option<Vec<V>> = values.collect();
        let seen = state.seen.unwrap_or_default() + 1;
        if seen == self.share.ranks {
            state.brought.fill_with(|| None);
            changed.notify_all();
        }
        state.seen = (seen < self.share.ranks).then_some(seen);
        values.ok_or_else(|| failed("the ranks are out of step: this is a bug in spectune"))
    }

    /// The value of rank 0.
    ///
    /// # Errors
    /// As [`exchange`](Self::exchange).
    pub fn agree<V: Clone + Send + 'static>(&self, value: V) -> Result<V, DeviceError> {
        self.exchange(value)?.into_iter().next().ok_or_else(|| failed("the group has no ranks"))
    }

    fn wait<'a>(
        &self,
        state: std::sync::MutexGuard<'a, MeetingState>,
    ) -> Result<std::sync::MutexGuard<'a, MeetingState>, DeviceError> {
        if self.table.alarm.rung() {
            return Err(failed("another rank has failed"));
        }
        let waited = self.table.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner);
        Ok(waited.0)
    }
}

fn failed(reason: &str) -> DeviceError {
    DeviceError::Failed { call: "synchronising with the other ranks".into(), reason: reason.into() }
}
