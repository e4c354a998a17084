//! cuBLASLt: matrix products with many rows.

use std::{ffi::c_void, ptr, sync::Arc};

use cudarc::{
    cublaslt::{result, sys},
    driver::sys::CUstream,
};

use super::failed;
use crate::device::{
    DeviceError, Element, libraries,
    matmul::{Addresses, AlgorithmProperty, Fp8Product, Matmul, MatmulAlgorithm, MatmulPlan, Words},
};
use crate::reference::{FP8_BLOCK, Fp8Rows, Fp8Scales};

/// Workspace of cuBLASLt; NVIDIA recommends 32 MiB on Hopper.
const WORKSPACE: usize = 32 << 20;

/// Maximum number of tiles that the library lists for an algorithm.
const MOST_TILES: usize = 4096;

/// Small cluster shapes of its algorithms for Hopper and Blackwell.
const CLUSTERS: [sys::cublasLtClusterShape_t; 6] = [
    sys::cublasLtClusterShape_t::CUBLASLT_CLUSTER_SHAPE_1x1x1,
    sys::cublasLtClusterShape_t::CUBLASLT_CLUSTER_SHAPE_2x1x1,
    sys::cublasLtClusterShape_t::CUBLASLT_CLUSTER_SHAPE_1x2x1,
    sys::cublasLtClusterShape_t::CUBLASLT_CLUSTER_SHAPE_4x1x1,
    sys::cublasLtClusterShape_t::CUBLASLT_CLUSTER_SHAPE_1x4x1,
    sys::cublasLtClusterShape_t::CUBLASLT_CLUSTER_SHAPE_2x2x1,
];

/// `CUBLAS_OP_T` of cublas_api.h.
const TRANSPOSED: i32 = 1;
/// An address of scales for choosing algorithms, which looks only at whether there are any.
const SOME_SCALES: u64 = 256;

/// An open handle.
pub struct Library(sys::cublasLtHandle_t);

// SAFETY: cuBLASLt's handle may be used from several threads.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// A product with its algorithm.
pub struct LtPlan {
    library: Arc<Library>,
    description: sys::cublasLtMatmulDesc_t,
    /// The kinds of scales of weights and of rows in FP8.
    modes: Option<Modes>,
    weights: sys::cublasLtMatrixLayout_t,
    inputs: sys::cublasLtMatrixLayout_t,
    outputs: sys::cublasLtMatrixLayout_t,
    algorithm: sys::cublasLtMatmulAlgo_t,
    workspace: usize,
    stream: CUstream,
}

// SAFETY: descriptors are only read after they are made.
unsafe impl Send for LtPlan {}
// SAFETY: as above.
unsafe impl Sync for LtPlan {}

/// Opens the library; `None` if it is not installed.
pub fn open() -> Result<Option<Arc<Library>>, DeviceError> {
    if !libraries::has_cublaslt() {
        return Ok(None);
    }
    let handle = result::create_handle().map_err(|error| failed("cublasLtCreate", error))?;
    Ok(Some(Arc::new(Library(handle))))
}

impl LtPlan {
    /// Chooses the algorithm that the library ranks first. cuBLASLt is column-major, so y = x · wᵀ
    /// becomes yᵀ = wᵀᵀ · xᵀ. Parts are a batch of products, each over a share of the inputs.
    pub fn new(library: Arc<Library>, matmul: Matmul, parts: usize, stream: CUstream) -> Result<Self, DeviceError> {
        let Matmul { rows, inputs, outputs, element, fp8, result: kind, .. } = matmul;
        let modes = fp8.map(|fp8| modes(fp8, matmul, parts)).transpose()?;
        let data = fp8.map_or(data_type(element), |_| sys::cudaDataType_t::CUDA_R_8F_E4M3);
        // Each part starts at a multiple of 16 bytes.
        if parts > 1 && !inputs.is_multiple_of(parts * 16 / element.bytes()) {
            return Err(DeviceError::Shape(format!("{inputs} inputs of {} in {parts} equal parts", element.name())));
        }
        let failed =
            |error: result::CublasError| failed(&format!("choosing a cuBLASLt algorithm for {matmul:?}"), error);
        let (share, kind) = (inputs / parts, if parts > 1 { Element::F32 } else { kind });
        // Height and width of a matrix of the batch, elements from one column to the next, and from
        // one matrix to the next.
        let layout = |kind, height: usize, width: usize, column: usize, apart: usize| {
            let made = result::create_matrix_layout(kind, height as u64, width as u64, column as i64)?;
            // SAFETY: the layout is live.
            (if parts > 1 { unsafe { set_batch(made, parts, apart) } } else { Ok(()) }).map(|()| made)
        };
        let mut plan = Self {
            library,
            description: describe(modes, [SOME_SCALES; 2]).map_err(failed)?,
            modes,
            weights: layout(data, share, outputs, inputs, share).map_err(failed)?,
            inputs: layout(data, share, rows, inputs, share).map_err(failed)?,
            outputs: layout(data_type(kind), outputs, rows, outputs, rows * outputs).map_err(failed)?,
            algorithm: sys::cublasLtMatmulAlgo_t { data: [0; 8] },
            workspace: 0,
            stream,
        };
        let first = plan.algorithms(1)?.first().copied();
        let first =
            first.ok_or_else(|| failed(result::CublasError(sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED)))?;
        plan.take(first);
        Ok(plan)
    }

    fn take(&mut self, algorithm: MatmulAlgorithm) {
        self.algorithm = sys::cublasLtMatmulAlgo_t { data: algorithm.words };
        self.workspace = algorithm.workspace;
    }

    /// Checks whether the library can run an algorithm, and returns its properties.
    fn check(&self, words: Words) -> Option<sys::cublasLtMatmulHeuristicResult_t> {
        let algorithm = sys::cublasLtMatmulAlgo_t { data: words };
        let mut checked = no_result();
        // SAFETY: all handles are live, and the result is written by the call.
        let requested = unsafe {
            sys::cublasLtMatmulAlgoCheck(
                self.library.0,
                self.description,
                self.weights,
                self.inputs,
                self.outputs,
                self.outputs,
                &raw const algorithm,
                &raw mut checked,
            )
        };
        (requested.result().is_ok() && checked.workspaceSize <= WORKSPACE).then_some(checked)
    }

    /// Makes the library rank algorithms for this plan; fills the start of `found` and returns
    /// their number.
    fn rank(&self, found: &mut [sys::cublasLtMatmulHeuristicResult_t]) -> Result<usize, result::CublasError> {
        let preference = result::create_matmul_pref()?;
        let mut count = 0;
        // SAFETY: all handles are live, the attribute has its size, and `found` has the length that
        // is passed.
        let requested = unsafe {
            result::set_matmul_pref_attribute(
                preference,
                sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                ptr::from_ref(&WORKSPACE).cast::<c_void>(),
                size_of::<usize>(),
            )
            .and_then(|()| {
                sys::cublasLtMatmulAlgoGetHeuristic(
                    self.library.0,
                    self.description,
                    self.weights,
                    self.inputs,
                    self.outputs,
                    self.outputs,
                    preference,
                    i32::try_from(found.len()).unwrap_or(i32::MAX),
                    found.as_mut_ptr(),
                    &mut count,
                )
                .result()
            })
        };
        // SAFETY: made above, destroyed once.
        let _ = unsafe { result::destroy_matmul_pref(preference) };
        requested.map(|()| usize::try_from(count).unwrap_or_default().min(found.len()))
    }
}

impl MatmulPlan for LtPlan {
    fn library(&self) -> String {
        // SAFETY: the library is loaded, since a handle exists.
        format!("cuBLASLt {}", unsafe { sys::cublasLtGetVersion() })
    }

    fn algorithms(&self, most: usize) -> Result<Vec<MatmulAlgorithm>, DeviceError> {
        let mut found = vec![no_result(); most];
        let count = self.rank(&mut found).map_err(|error| failed("cublasLtMatmulAlgoGetHeuristic", error))?;
        let usable = found.iter().take(count).filter(|one| one.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS);
        Ok(usable.map(|one| MatmulAlgorithm { words: one.algo.data, workspace: one.workspaceSize }).collect())
    }

    fn variants(&self, words: Words, axis: AlgorithmProperty) -> Vec<Words> {
        use sys::cublasLtMatmulAlgoConfigAttributes_t as Setting;
        let mut like = sys::cublasLtMatmulAlgo_t { data: words };
        let whole = set(&mut like, Setting::CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 1_u32)
            && set(&mut like, Setting::CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 0_u32);
        let with = |change: &dyn Fn(&mut sys::cublasLtMatmulAlgo_t) -> bool| {
            let mut algorithm = like;
            change(&mut algorithm).then_some(algorithm.data)
        };
        match axis {
            _ if !whole => Vec::new(),
            AlgorithmProperty::Tile => tiles(&like)
                .into_iter()
                .filter_map(|tile| with(&|algorithm| set(algorithm, Setting::CUBLASLT_ALGO_CONFIG_TILE_ID, tile)))
                .collect(),
            AlgorithmProperty::Cluster => CLUSTERS
                .into_iter()
                .filter_map(|cluster| {
                    let cluster = cluster as u16;
                    with(&|algorithm| set(algorithm, Setting::CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, cluster))
                })
                .collect(),
        }
    }

    fn waves(&self, words: Words) -> Option<f32> {
        self.check(words).map(|checked| checked.wavesCount)
    }

    fn choose(&mut self, words: Words) -> bool {
        let checked = self.check(words);
        if let Some(checked) = checked {
            self.take(MatmulAlgorithm { words, workspace: checked.workspaceSize });
        }
        checked.is_some()
    }

    fn workspace(&self) -> usize {
        self.workspace
    }

    fn words(&self) -> Words {
        self.algorithm.data
    }

    unsafe fn run(&self, at: Addresses, adds: bool) -> Result<(), DeviceError> {
        let Addresses { y, x, w, scales: [of_x, of_w], workspace } = at;
        let failed = |error| failed("cublasLtMatmul", error);
        // Scales are a part of the description.
        let own = self.modes.map(|modes| describe(Some(modes), [of_w, of_x])).transpose().map_err(failed)?;
        let (one, keeps) = (1.0_f32, if adds { 1.0_f32 } else { 0.0 });
        // SAFETY: the handles are live, the caller promises the addresses; the scales are read
        // before the call returns.
        let run = unsafe {
            result::matmul(
                self.library.0,
                own.unwrap_or(self.description),
                ptr::from_ref(&one).cast(),
                ptr::from_ref(&keeps).cast(),
                w as *const c_void,
                self.weights,
                x as *const c_void,
                self.inputs,
                y as *const c_void,
                self.outputs,
                y as *mut c_void,
                self.outputs,
                &raw const self.algorithm,
                workspace as *mut c_void,
                self.workspace,
                self.stream.cast(),
            )
        };
        // SAFETY: made above, destroyed once; the library has read it.
        let _ = own.map(|own| unsafe { result::destroy_matmul_desc(own) });
        run.map_err(failed)
    }
}

impl Drop for LtPlan {
    fn drop(&mut self) {
        // SAFETY: each was made once, in `new`.
        unsafe {
            let _ = result::destroy_matmul_desc(self.description);
            for layout in [self.weights, self.inputs, self.outputs] {
                let _ = result::destroy_matrix_layout(layout);
            }
        }
    }
}

/// How the library scales weights and rows.
type Modes = [sys::cublasLtMatmulMatrixScale_t; 2];

/// The kinds of scales of a product of FP8 numbers.
fn modes(fp8: Fp8Product, matmul: Matmul, parts: usize) -> Result<Modes, DeviceError> {
    use sys::cublasLtMatmulMatrixScale_t as Mode;
    let Matmul { rows, inputs, .. } = matmul;
    match (fp8.weights, fp8.rows) {
        _ if parts > 1 => Err(DeviceError::Shape(format!("{matmul:?} in parts"))),
        (Fp8Scales::Channels, Fp8Rows::Tensor | Fp8Rows::Row) => {
            Ok([Mode::CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F; 2])
        }
        // Rows of scales of weights are whole 16-byte accesses, and so are those of rows, which are
        // stored by blocks.
        (Fp8Scales::Blocks, Fp8Rows::RowBlocks) if inputs.is_multiple_of(4 * FP8_BLOCK) && rows.is_multiple_of(4) => {
            Ok([Mode::CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F, Mode::CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F])
        }
        _ => Err(DeviceError::Shape(format!("cuBLASLt has no product {matmul:?}"))),
    }
}

/// Describes a product with the left factor transposed, and with scales of these kinds at these
/// addresses. Sums of FP8 products are kept in float (fast accumulation is off unless it is
/// requested).
fn describe(modes: Option<Modes>, scales: [u64; 2]) -> Result<sys::cublasLtMatmulDesc_t, result::CublasError> {
    use sys::cublasLtMatmulDescAttributes_t as Attribute;
    let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
    let description = result::create_matmul_desc(compute, sys::cudaDataType_t::CUDA_R_32F)?;
    let set = || {
        describe_with(description, Attribute::CUBLASLT_MATMUL_DESC_TRANSA, TRANSPOSED)?;
        let Some([of_weights, of_rows]) = modes else { return Ok(()) };
        describe_with(description, Attribute::CUBLASLT_MATMUL_DESC_A_SCALE_MODE, of_weights as i32)?;
        describe_with(description, Attribute::CUBLASLT_MATMUL_DESC_B_SCALE_MODE, of_rows as i32)?;
        describe_with(description, Attribute::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales[0])?;
        describe_with(description, Attribute::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales[1])
    };
    let done = set();
    if done.is_err() {
        // SAFETY: made above, destroyed once.
        let _ = unsafe { result::destroy_matmul_desc(description) };
    }
    done.map(|()| description)
}

/// Sets an attribute of a live description.
fn describe_with<V: Copy>(
    description: sys::cublasLtMatmulDesc_t,
    attribute: sys::cublasLtMatmulDescAttributes_t,
    value: V,
) -> Result<(), result::CublasError> {
    // SAFETY: the description is live, and the attribute is read, with its size, before the call
    // returns.
    unsafe {
        result::set_matmul_desc_attribute(
            description,
            attribute,
            ptr::from_ref(&value).cast::<c_void>(),
            size_of::<V>(),
        )
    }
}

/// Makes a layout that of a batch.
///
/// # Safety
/// The layout is live.
unsafe fn set_batch(
    layout: sys::cublasLtMatrixLayout_t,
    count: usize,
    apart: usize,
) -> Result<(), result::CublasError> {
    let (count, apart) = (count as i32, apart as i64);
    // SAFETY: the attributes have their sizes, and are read before the calls return.
    unsafe {
        result::set_matrix_layout_attribute(
            layout,
            sys::cublasLtMatrixLayoutAttribute_t::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
            ptr::from_ref(&count).cast(),
            size_of_val(&count),
        )?;
        result::set_matrix_layout_attribute(
            layout,
            sys::cublasLtMatrixLayoutAttribute_t::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
            ptr::from_ref(&apart).cast(),
            size_of_val(&apart),
        )
    }
}

/// Changes a setting of an algorithm; false if the library does not support the setting or value.
fn set<V: Copy>(
    algorithm: &mut sys::cublasLtMatmulAlgo_t,
    setting: sys::cublasLtMatmulAlgoConfigAttributes_t,
    value: V,
) -> bool {
    // SAFETY: the value is read, with its size, before the call returns.
    let set = unsafe {
        sys::cublasLtMatmulAlgoConfigSetAttribute(algorithm, setting, ptr::from_ref(&value).cast(), size_of::<V>())
    };
    set.result().is_ok()
}

/// The tile ids that an algorithm supports.
fn tiles(algorithm: &sys::cublasLtMatmulAlgo_t) -> Vec<u32> {
    let mut tiles = vec![0_u32; MOST_TILES];
    let mut written = 0;
    // SAFETY: at most the size of the vector in bytes is written.
    let requested = unsafe {
        sys::cublasLtMatmulAlgoCapGetAttribute(
            algorithm,
            sys::cublasLtMatmulAlgoCapAttributes_t::CUBLASLT_ALGO_CAP_TILE_IDS,
            tiles.as_mut_ptr().cast(),
            size_of_val(&tiles[..]),
            &mut written,
        )
    };
    tiles.truncate(if requested.result().is_ok() { written / size_of::<u32>() } else { 0 });
    tiles
}

/// An entry for the library to fill.
fn no_result() -> sys::cublasLtMatmulHeuristicResult_t {
    sys::cublasLtMatmulHeuristicResult_t {
        algo: sys::cublasLtMatmulAlgo_t { data: [0; 8] },
        workspaceSize: 0,
        state: sys::cublasStatus_t::CUBLAS_STATUS_NOT_INITIALIZED,
        wavesCount: 0.0,
        reserved: [0; 4],
    }
}

fn data_type(element: Element) -> sys::cudaDataType_t {
    match element {
        Element::F16 => sys::cudaDataType_t::CUDA_R_16F,
        Element::BF16 => sys::cudaDataType_t::CUDA_R_16BF,
        Element::F32 => sys::cudaDataType_t::CUDA_R_32F,
    }
}
