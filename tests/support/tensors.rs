//! Reads and modifies tensors of a checkpoint.

use std::{collections::BTreeMap, fs, path::Path};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};

/// dtype, shape and bytes by name.
pub type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// The tensors of a folder's model.safetensors.
pub fn read(folder: &Path) -> Tensors {
    let bytes = fs::read(folder.join("model.safetensors")).expect("a file");
    let tensors = SafeTensors::deserialize(&bytes).expect("tensors");
    let owned = |view: &TensorView<'_>| (view.dtype(), view.shape().to_vec(), view.data().to_vec());
    tensors.tensors().iter().map(|(name, view)| (name.clone(), owned(view))).collect()
}

/// Writes a safetensors file.
pub fn write(path: &Path, tensors: &Tensors) {
    let views = tensors.iter().map(|(name, (dtype, shape, data))| {
        (name, TensorView::new(*dtype, shape.clone(), data).expect("a tensor of the right length"))
    });
    safetensors::serialize_to_file(views, None, path).expect("a file");
}

/// Changes the tensors of a folder's model.safetensors.
#[allow(dead_code, reason = "not every test that includes this file changes tensors in place")]
pub fn change_tensors(folder: &Path, change: impl FnOnce(&mut Tensors)) {
    let mut tensors = read(folder);
    change(&mut tensors);
    write(&folder.join("model.safetensors"), &tensors);
}

/// Reproducible weights of the usual spread; those of norms are near one.
#[allow(dead_code, reason = "not every test that includes this file makes weights")]
pub fn weight(seed: u64, at: usize, shape: &[usize]) -> f32 {
    let mixed = (seed << 32 ^ at as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (mixed >> 40) as f32 / (1 << 23) as f32 - 1.0;
    match shape {
        [_] => 1.0 + 0.1 * number,
        _ => number * (3.0 / shape[shape.len() - 1] as f32).sqrt(),
    }
}
