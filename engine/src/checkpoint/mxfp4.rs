//! Matrices stored in MXFP4: bytes of two numbers each, and for every 32 numbers of a row a byte
//! with the exponent of their scale (`weight_scale`; see [`packed`](super::packed) for the
//! published names).

use kernels::reference::{MXFP4_BLOCK, Mxfp4Matrix};

use super::{Weights, dtype::MXFP4};
use crate::error::EngineError;

impl Weights {
    /// Whether any matrix is stored in MXFP4.
    pub fn has_mxfp4(&self) -> bool {
        self.names().any(|name| self.dtype(name) == Some(MXFP4))
    }

    /// A matrix stored in MXFP4; `None` if it has another format.
    ///
    /// # Errors
    /// When the matrix is missing or has another shape, or its scales are missing, have another
    /// shape or dtype, or contain one that is not a number (255).
    pub fn mxfp4(&self, name: &str, outputs: usize, inputs: usize) -> Result<Option<Mxfp4Matrix<'_>>, EngineError> {
        self.expect(name, &[outputs, inputs])?;
        if self.dtype(name) != Some(MXFP4) {
            return Ok(None);
        }
        let of_scales = format!("{name}_scale");
        self.expect(&of_scales, &[outputs, inputs / MXFP4_BLOCK])?;
        if self.dtype(&of_scales) != Some("U8") {
            return Err(self.dtype_error(&of_scales, "U8, the exponents of scales"));
        }
        let scales = self.raw(&of_scales);
        if scales.contains(&u8::MAX) {
            let reason = format!("tensor {of_scales}: a scale is not a number (exponent 255)");
            return Err(EngineError::Malformed { path: self.file_of(&of_scales).to_owned(), reason });
        }
        Ok(Some(Mxfp4Matrix::new([outputs, inputs], self.raw(name), scales)))
    }
}
