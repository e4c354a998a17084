//! Kernel sources, and their compilation by NVRTC with a cache on disk.

use std::{
    ffi::{CString, c_char},
    mem::MaybeUninit,
};

use cudarc::nvrtc::{result, sys};

use super::{DeviceError, cache, libraries};

/// A source file of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelFile {
    /// Its name, for messages.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
    /// Split of a multiprocessor's memory that its kernels need.
    pub split: Split,
}

/// How the memory of a multiprocessor is split between shared memory and L1 cache. A kernel with a
/// different split can only start on a multiprocessor once the previous kernel has left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// As much shared memory as possible: streaming kernels keep their data in flight there, and
    /// benefit from more concurrent blocks.
    Shared,
    /// Little shared memory: kernels that load to registers keep their data in flight in the cache.
    Cache,
}

/// Headers that files and headers may include.
const HEADERS: [(&str, &str); 32] = [
    ("common.cuh", include_str!("../../cuda/common.cuh")),
    ("e4m3.cuh", include_str!("../../cuda/e4m3.cuh")),
    ("cache.cuh", include_str!("../../cuda/cache.cuh")),
    ("order.cuh", include_str!("../../cuda/order.cuh")),
    ("nodes.cuh", include_str!("../../cuda/nodes.cuh")),
    ("rotation.cuh", include_str!("../../cuda/rotation.cuh")),
    ("groups.cuh", include_str!("../../cuda/groups.cuh")),
    ("splits.cuh", include_str!("../../cuda/splits.cuh")),
    ("softmax.cuh", include_str!("../../cuda/softmax.cuh")),
    ("vectors.cuh", include_str!("../../cuda/vectors.cuh")),
    ("norms.cuh", include_str!("../../cuda/norms.cuh")),
    ("numbers.cuh", include_str!("../../cuda/numbers.cuh")),
    ("staged.cuh", include_str!("../../cuda/staged.cuh")),
    ("pieces.cuh", include_str!("../../cuda/pieces.cuh")),
    ("few.cuh", include_str!("../../cuda/few.cuh")),
    ("rows.cuh", include_str!("../../cuda/rows.cuh")),
    ("merge.cuh", include_str!("../../cuda/merge.cuh")),
    ("latent.cuh", include_str!("../../cuda/latent.cuh")),
    ("turned.cuh", include_str!("../../cuda/turned.cuh")),
    ("weights.cuh", include_str!("../../cuda/weights.cuh")),
    ("e2m1.cuh", include_str!("../../cuda/e2m1.cuh")),
    ("mxfp4.cuh", include_str!("../../cuda/mxfp4.cuh")),
    ("clamped.cuh", include_str!("../../cuda/clamped.cuh")),
    ("ring.cuh", include_str!("../../cuda/ring.cuh")),
    ("linear.cuh", include_str!("../../cuda/linear.cuh")),
    ("wgmma.cuh", include_str!("../../cuda/wgmma.cuh")),
    ("bulk.cuh", include_str!("../../cuda/bulk.cuh")),
    ("tile_ring.cuh", include_str!("../../cuda/tile_ring.cuh")),
    ("units.cuh", include_str!("../../cuda/units.cuh")),
    ("lines.cuh", include_str!("../../cuda/lines.cuh")),
    ("delta.cuh", include_str!("../../cuda/delta.cuh")),
    ("delta_chunks.cuh", include_str!("../../cuda/delta_chunks.cuh")),
];

impl KernelFile {
    /// The text with all includes expanded: NVRTC and the emulator get one file. A header is
    /// expanded where it is first included.
    pub(crate) fn whole(self) -> String {
        let mut whole = String::new();
        expand(self.name, self.text, &mut Vec::new(), &mut whole);
        whole
    }

    /// The names of its kernels, in order.
    pub fn kernels(self) -> Vec<&'static str> {
        let declarations = self.text.split("extern \"C\" __global__").skip(1);
        declarations
            .filter_map(|rest| {
                let rest = rest.split_once("void")?.1.trim_start();
                let bounds = ["__launch_bounds__", "__maxnreg__"].iter().find_map(|bound| rest.strip_prefix(bound));
                let rest = match bounds {
                    Some(bounds) => bounds.split_once(')')?.1.trim_start(),
                    None => rest,
                };
                rest.split_once('(').map(|(name, _)| name.trim())
            })
            .collect()
    }
}

/// Appends a text in which includes of headers are expanded, except those in `done`.
fn expand(name: &str, text: &str, done: &mut Vec<&'static str>, whole: &mut String) {
    for (at, line) in text.lines().enumerate() {
        let included = line.strip_prefix("#include \"").and_then(|rest| rest.strip_suffix('"'));
        match included.and_then(|included| HEADERS.iter().find(|(header, _)| *header == included)) {
            None => whole.extend([line, "\n"]),
            Some((header, _)) if done.contains(header) => whole.push('\n'),
            Some((header, text)) => {
                done.push(header);
                whole.push_str(&format!("#line 1 \"{header}\"\n"));
                expand(header, text, done, whole);
                whole.push_str(&format!("#line {} \"{name}\"\n", at + 2));
            }
        }
    }
}

/// The binary of a file for an architecture such as `sm_90a`, from the cache or newly compiled and
/// stored there.
pub(super) fn cached(
    file: KernelFile,
    options: &[String],
    architecture: &str,
    driver: &str,
) -> Result<Vec<u8>, DeviceError> {
    let source = file.whole();
    let mut key = blake3::Hasher::new();
    for part in [source.as_str(), &options.join(" "), architecture, driver, env!("CARGO_PKG_VERSION")] {
        key.update(&(part.len() as u64).to_le_bytes());
        key.update(part.as_bytes());
    }
    let key = key.finalize().to_hex();
    let path = cache::folder().map(|folder| folder.join(format!("{}-{}.cubin", file.name, &key[..32])));
    if let Some(binary) = path.as_deref().and_then(cache::read) {
        return Ok(binary);
    }
    let binary = compile_for(file, options, architecture)?;
    if let Some(path) = path {
        // A cache that cannot be written only costs time.
        let _ = cache::write(&path, &binary);
    }
    Ok(binary)
}

/// Compiles a file for an architecture such as `sm_90a`; needs NVRTC, but no GPU.
///
/// # Errors
/// When NVRTC is missing, or rejects the source.
pub fn compile_for(file: KernelFile, options: &[String], architecture: &str) -> Result<Vec<u8>, DeviceError> {
    if !libraries::has_nvrtc() {
        return Err(DeviceError::Missing {
            library: "NVRTC (libnvrtc.so), which compiles the kernels,".into(),
            hint: "install the CUDA toolkit or the Python package nvidia-cuda-nvrtc, and add its folder to LD_LIBRARY_PATH"
                .into(),
        });
    }
    let text = |text: String| {
        CString::new(text).map_err(|_| DeviceError::Shape(format!("{} contains a zero byte", file.name)))
    };
    let source = text(file.whole())?;
    let name = text(file.name.to_owned())?;
    let failed = |error: result::NvrtcError| failure(file, architecture, format!("{error:?}"));
    let program = result::create_program(&source, Some(&name)).map_err(failed)?;
    let mut all = vec![format!("--gpu-architecture={architecture}"), "--std=c++17".into(), "-default-device".into()];
    all.extend_from_slice(options);
    // SAFETY: the program was created above and is destroyed once, below.
    let compiled = unsafe { result::compile_program(program, &all) };
    let outcome = match compiled {
        // SAFETY: the program is live.
        Err(_) => Err(failure(file, architecture, unsafe { log(program) })),
        // SAFETY: the program is live and compiled.
        Ok(()) => unsafe { binary(program) }.map_err(failed),
    };
    // SAFETY: see above.
    let _ = unsafe { result::destroy_program(program) };
    outcome
}

/// # Safety
/// The program is live.
unsafe fn log(program: sys::nvrtcProgram) -> String {
    // SAFETY: the caller's promise.
    let log = unsafe { result::get_program_log(program) }.unwrap_or_default();
    log.into_iter().map(|byte| char::from(byte as u8)).filter(|character| *character != '\0').collect()
}

/// # Safety
/// The program is live and compiled for a real architecture.
unsafe fn binary(program: sys::nvrtcProgram) -> Result<Vec<u8>, result::NvrtcError> {
    let mut size = MaybeUninit::uninit();
    // SAFETY: the caller's promise; the size is written by a call that succeeds.
    let size = unsafe {
        sys::nvrtcGetCUBINSize(program, size.as_mut_ptr()).result()?;
        size.assume_init()
    };
    let mut binary = vec![0_u8; size];
    // SAFETY: the vector has the requested size.
    unsafe { sys::nvrtcGetCUBIN(program, binary.as_mut_ptr().cast::<c_char>()).result()? };
    Ok(binary)
}

fn failure(file: KernelFile, target: &str, log: String) -> DeviceError {
    DeviceError::Compile { file: file.name.into(), target: target.into(), log }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_expanded_where_it_is_first_included() {
        let text = "// one\n#include \"cache.cuh\"\n#include \"e4m3.cuh\"\nlast\n";
        let whole = KernelFile { name: "x", text, split: Split::Shared }.whole();
        let parts =
            ["// one\n#line 1 \"cache.cuh\"\n", "#line 1 \"e4m3.cuh\"\n", "\"cache.cuh\"\n", "#line 3 \"x\"\n\nlast\n"];
        let mut rest = whole.as_str();
        for part in parts {
            rest = rest.split_once(part).unwrap_or_else(|| panic!("{part:?} is missing in {rest}")).1;
        }
        assert_eq!((rest, whole.matches("u32 e4m3_bits(").count()), ("", 1));
    }

    #[test]
    fn kernels_are_found_by_their_declarations() {
        let text = "extern \"C\" __global__ void __launch_bounds__(128) one(int a) {}\n\
                    extern \"C\" __global__ void two(\n  float* b) {}";
        assert_eq!(KernelFile { name: "x", text, split: Split::Shared }.kernels(), ["one", "two"]);
    }
}
