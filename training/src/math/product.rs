//! Products with weights. Candle computes the gradient of `x · wᵀ` for `wᵀ` and then transposes it
//! element by element, and it computes gradients of frozen weights too.

use candle_core::{CpuStorage, CudaStorage, CustomOp2, Layout, Result, Shape, Tensor, backend::BackendStorage};

struct Product {
    trains: bool,
}

/// `x · wᵀ`: `[rows, inputs]` and `[outputs, inputs]` to `[rows, outputs]`. Weights that are not
/// trained have no gradient.
///
/// # Errors
/// When the shapes do not fit together.
pub fn product(x: &Tensor, weight: &Tensor, trains: bool) -> Result<Tensor> {
    x.contiguous()?.apply_op2(weight, Product { trains })
}

impl CustomOp2 for Product {
    fn name(&self) -> &'static str {
        "product"
    }

    fn cpu_fwd(&self, x: &CpuStorage, of_x: &Layout, w: &CpuStorage, of_w: &Layout) -> Result<(CpuStorage, Shape)> {
        multiply(x, of_x, w, of_w)
    }

    fn cuda_fwd(&self, x: &CudaStorage, of_x: &Layout, w: &CudaStorage, of_w: &Layout) -> Result<(CudaStorage, Shape)> {
        multiply(x, of_x, w, of_w)
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        let of_weight = self.trains.then(|| gradient.t()?.matmul(&x.detach())).transpose()?;
        Ok((Some(gradient.matmul(&weight.detach())?), of_weight))
    }
}

fn multiply<S: BackendStorage>(x: &S, of_x: &Layout, w: &S, of_w: &Layout) -> Result<(S, Shape)> {
    let ((rows, inputs), (outputs, _)) = (of_x.shape().dims2()?, of_w.shape().dims2()?);
    let y = x.matmul(w, (1, rows, outputs, inputs), of_x, &of_w.transpose(0, 1)?)?;
    Ok((y, Shape::from((rows, outputs))))
}
