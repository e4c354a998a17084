//! A pass of the target.

use kernels::{
    device::DeviceError,
    launch::{Added, RmsNorm, Rows, Sees},
};

use super::layers::LayerStack;
use crate::backend::cuda::{
    machine::{AttentionKernels, Machine, Pass},
    weights::DraftWeights,
};

impl Machine {
    /// Runs the target over rows. Final hidden states go to `work.normed`, captured layers to
    /// `work.captured`, both starting at row `leaves_at`.
    pub fn target_pass(&self, pass: Pass<'_>) -> Result<(), DeviceError> {
        let Pass { rows, arrays, work, .. } = pass;
        let (hidden, vocabulary) = (self.target.spec.hidden, self.target.spec.vocabulary);
        let stream = self.rows(&work.stream, hidden);
        self.lay_out_steps(pass)?;
        self.kernels.embed(stream, self.target.embedding.slice(), arrays.token.slice(), rows, hidden, vocabulary)?;
        let windowed = self.windowed(pass)?;
        let stack = LayerStack {
            layers: &self.target.layers,
            width: hidden,
            rotations: self.target_rotations.slice(),
            cache: &|at| self.layer_cache(at),
            pass: &|at| windowed.filter(|_| self.window_cache(at).is_some()).unwrap_or(pass),
            kept: &|at| self.kept(pass, at).collect(),
        };
        let left = self.run_layers(work, rows, stack)?;
        self.final_norm(pass, left)
    }

    /// The final hidden states of a pass of the target.
    pub(in crate::backend::cuda) fn final_states<'a>(&self, pass: Pass<'a>) -> Rows<'a> {
        let Pass { work, leaves_at, .. } = pass;
        let stride = self.target.spec.hidden;
        Rows { at: work.normed.range(leaves_at * stride * self.element_bytes()..work.normed.bytes()), stride }
    }

    /// Where the input of a layer is stored for the draft: one place for each time it is captured.
    fn kept<'a>(&self, pass: Pass<'a>, at: usize) -> impl Iterator<Item = Rows<'a>> {
        let Pass { work, leaves_at, .. } = pass;
        let capture = self.draft.as_ref().map_or(&[][..], DraftWeights::captured);
        let width = self.target.spec.hidden;
        let (stride, bytes) = (capture.len() * width, self.element_bytes());
        (0..capture.len()).filter(move |place| capture[*place] == at).map(move |place| Rows {
            at: work.captured.range((leaves_at * stride + place * width) * bytes..work.captured.bytes()),
            stride,
        })
    }

    /// Adds to the residual stream, captures it for the draft, and applies the final norm.
    fn final_norm(&self, pass: Pass<'_>, add: Option<Added<'_>>) -> Result<(), DeviceError> {
        let Pass { rows, work, .. } = pass;
        let (width, layers) = (self.target.spec.hidden, self.target.layers.len());
        self.kernels.rms_norm(RmsNorm {
            out: self.final_states(pass),
            stream: self.rows(&work.stream, width),
            add,
            weight: self.target.norm.slice(),
            keep: self.kept(pass, layers).next(),
            source: None,
            rows,
            width,
            epsilon: self.target.spec.epsilon,
        })?;
        self.keep_again(work, rows, width, self.kept(pass, layers))
    }

    /// Computes the own rows of groups once per pass, unless the draft's kernels have already laid
    /// them out.
    pub fn gather_own(&self, pass: Pass<'_>) -> Result<(), DeviceError> {
        let Pass { rows, groups, sees, arrays, .. } = pass;
        match (self.attention, sees) {
            (AttentionKernels::Tiles, Sees::Own(own)) => {
                self.kernels.gather_own(own, arrays.own_count.slice(), arrays.own.slice(), groups, rows)
            }
            _ => Ok(()),
        }
    }
}
