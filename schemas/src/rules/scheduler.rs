//! Requests, parallelism and backends.

pub(super) mod sd090_max_running_48;
pub(super) mod sd096_tp_divisibility;
pub(super) mod sd106_backend_flex;
