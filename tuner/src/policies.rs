//! Measures policies on an engine, with acceptance that is played from traces, as
//! [`forecast`](crate::forecast) simulates them; and fits the time of steps with which it does so.

pub mod fit_times;
pub mod played_load;
