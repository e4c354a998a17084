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
