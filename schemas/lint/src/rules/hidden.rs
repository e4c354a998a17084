//! Hidden states that the target passes to the draft.

pub(super) mod nr16_eagle3_narrow_draft;
pub(super) mod sd050_eagle_hidden_size;
pub(super) mod sd051_eagle3_target_hidden_size;
pub(super) mod sd052_eagle3_num_aux;
pub(super) mod sd053_eagle3_aux_ids_default;
pub(super) mod sd054_eagle3_aux_ids_convention;
pub(super) mod sd055_eagle3_aux_ids_range;
pub(super) mod sd056_use_aux_false;
pub(super) mod sd057_eagle31_norms;
pub(super) mod sd058_standalone_hidden_size;
pub(super) mod sd059_unexpected_weights_ignored;
