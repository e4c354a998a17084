//! Vocabularies of target and draft, and maps between them.

pub(super) mod nr04_draft_vocab_multiple;
pub(super) mod sd040_standalone_vocab_size;
pub(super) mod sd041_standalone_vocab_map;
pub(super) mod sd042_eagle_vocab;
pub(super) mod sd043_d2t_missing;
pub(super) mod sd044_d2t_shape;
pub(super) mod sd045_token_map_eagle3;
pub(super) mod sd046_token_map_standalone;
pub(super) mod sd047_token_map_tp;
pub(super) mod sd048_token_map_rejection;
pub(super) mod sd049_token_map_file;
