//! Whether CUDA's libraries are installed. If they are linked (a build without `dynamic-loading`),
//! the program does not start without them.

use super::DeviceError;

/// The driver, libcuda.
pub(super) fn has_driver() -> bool {
    #[cfg(feature = "dynamic-loading")]
    // SAFETY: looks for a library by name and runs its initialisers.
    return unsafe { cudarc::driver::sys::is_culib_present() };
    #[cfg(not(feature = "dynamic-loading"))]
    true
}

/// The compiler, NVRTC.
pub(super) fn has_nvrtc() -> bool {
    #[cfg(feature = "dynamic-loading")]
    // SAFETY: as above.
    return unsafe { cudarc::nvrtc::sys::is_culib_present() };
    #[cfg(not(feature = "dynamic-loading"))]
    true
}

/// cuBLASLt.
pub(super) fn has_cublaslt() -> bool {
    #[cfg(feature = "dynamic-loading")]
    // SAFETY: as above.
    return unsafe { cudarc::cublaslt::sys::is_culib_present() };
    #[cfg(not(feature = "dynamic-loading"))]
    true
}

/// Makes the default memory pool of a device keep freed memory, for other libraries in the process
/// that allocate from it: by default it is returned to the system at every synchronisation, and has
/// to be mapped again.
///
/// # Errors
/// When the device does not exist.
pub fn keep_pooled_memory(number: usize) -> Result<(), DeviceError> {
    use cudarc::driver::{result, sys};
    if !has_driver() {
        return Err(DeviceError::NoDevice("there is no CUDA driver".into()));
    }
    let failed =
        |error: result::DriverError| DeviceError::NoDevice(format!("the memory pool of cuda:{number}: {error}"));
    result::init().map_err(failed)?;
    let device = result::device::get(i32::try_from(number).unwrap_or(i32::MAX)).map_err(failed)?;
    let mut most = u64::MAX;
    // SAFETY: the device exists, and the attribute is 64 bits, which are only read.
    let set = unsafe {
        let pool = result::device::get_default_mem_pool(device).map_err(failed)?;
        let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        sys::cuMemPoolSetAttribute(pool, attribute, std::ptr::from_mut(&mut most).cast()).result()
    };
    set.map_err(failed)
}
