//! CUDA graphs: which batch sizes have one.

pub(super) mod nr01_deepep_dispatch_tokens;
pub(super) mod sd080_graph_max_bs_lt_max_running;
pub(super) mod sd081_graph_bs_gaps;
pub(super) mod sd082_graph_bs_explicit_sparse;
pub(super) mod sd083_disable_padding_with_spec;
pub(super) mod sd084_graph_bs_alignment;
pub(super) mod sd085_graph_memory;
pub(super) mod sd086_flag_renamed;
pub(super) mod sd087_disable_draft_cuda_graph;
pub(super) mod sd088_cuda_graph_disabled;

mod padding;
