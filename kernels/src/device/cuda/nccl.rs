//! Sums over devices with NCCL, which is loaded on demand.
//!
//! Its use of NVLink multicast (NVLS) is disabled before it is loaded.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicPtr, Ordering},
    },
};

use cudarc::driver::sys;
use libloading::Library;

use crate::device::{DeviceError, Element, GroupId, driver::CollectiveDriver};

/// File names of the library; Python packages have only the first.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];
const SUCCESS: c_int = 0;
/// `ncclSum`.
const SUM: c_int = 0;

type Comm = *mut c_void;
type GetUniqueId = unsafe extern "C" fn(*mut UniqueId) -> c_int;
type InitRank = unsafe extern "C" fn(*mut Comm, c_int, UniqueId, c_int) -> c_int;
type AllReduce = unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Comm, sys::CUstream) -> c_int;
type Abort = unsafe extern "C" fn(Comm) -> c_int;
type ErrorString = unsafe extern "C" fn(c_int) -> *const c_char;
type Version = unsafe extern "C" fn(*mut c_int) -> c_int;

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([c_char; 128]);

struct Nccl {
    _library: Library,
    get_unique_id: GetUniqueId,
    init_rank: InitRank,
    all_reduce: AllReduce,
    abort: Abort,
    error_string: ErrorString,
    version: Version,
}

/// A device's membership in an NCCL group.
struct Communicator {
    nccl: Arc<Nccl>,
    /// Null after it is aborted.
    comm: AtomicPtr<c_void>,
    context: sys::CUcontext,
    stream: sys::CUstream,
}

// SAFETY: NCCL's handles may be used from any thread; a communicator is used by one at a time, and
// aborted by any.
unsafe impl Send for Communicator {}
// SAFETY: as above.
unsafe impl Sync for Communicator {}

/// NCCL, loaded once.
fn nccl() -> Result<Arc<Nccl>, DeviceError> {
    static LOADED: OnceLock<Option<Arc<Nccl>>> = OnceLock::new();
    LOADED.get_or_init(|| load().map(Arc::new)).clone().ok_or_else(|| DeviceError::Missing {
        library: "NCCL (libnccl.so.2), which sums large tensors over GPUs,".into(),
        hint: "install it or the Python package nvidia-nccl-cu13, and add its folder to LD_LIBRARY_PATH".into(),
    })
}

fn load() -> Option<Nccl> {
    // SAFETY: no NCCL thread exists yet; this process reads its environment through the standard
    // library, which locks.
    unsafe { std::env::set_var("NCCL_NVLS_ENABLE", "0") };
    // SAFETY: NVIDIA's own library, whose initializers may run at any time in any thread.
    let library = NAMES.iter().find_map(|name| unsafe { Library::new(*name) }.ok())?;
    // SAFETY: the types match nccl.h in all versions from 2.10 on.
    unsafe {
        Some(Nccl {
            get_unique_id: *library.get(b"ncclGetUniqueId\0").ok()?,
            init_rank: *library.get(b"ncclCommInitRank\0").ok()?,
            all_reduce: *library.get(b"ncclAllReduce\0").ok()?,
            abort: *library.get(b"ncclCommAbort\0").ok()?,
            error_string: *library.get(b"ncclGetErrorString\0").ok()?,
            version: *library.get(b"ncclGetVersion\0").ok()?,
            _library: library,
        })
    }
}

impl Nccl {
    fn check(&self, call: &str, result: c_int) -> Result<(), DeviceError> {
        if result == SUCCESS {
            return Ok(());
        }
        // SAFETY: accepts any number, and returns a static string or null.
        let text = unsafe { (self.error_string)(result) };
        // SAFETY: not null, and a static string.
        let known = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
        let reason = known.unwrap_or_else(|| format!("error {result}"));
        Err(DeviceError::Failed { call: call.into(), reason })
    }
}

/// An identifier for a new group.
pub fn group_id() -> Result<GroupId, DeviceError> {
    let nccl = nccl()?;
    let mut id = UniqueId([0; 128]);
    // SAFETY: the identifier is written by the call.
    nccl.check("ncclGetUniqueId", unsafe { (nccl.get_unique_id)(&raw mut id) })?;
    Ok(GroupId(id.0.map(|byte| byte as u8)))
}

/// Joins a group; returns when all ranks have joined. The device's context must be current.
pub fn join(
    id: &GroupId,
    rank: usize,
    ranks: usize,
    context: sys::CUcontext,
    stream: sys::CUstream,
) -> Result<Arc<dyn CollectiveDriver>, DeviceError> {
    let nccl = nccl()?;
    let mut comm: Comm = std::ptr::null_mut();
    let id = UniqueId(id.0.map(|byte| byte as c_char));
    // SAFETY: the handle is written by the call; the numbers are a rank and the size of its group.
    let joined = unsafe { (nccl.init_rank)(&raw mut comm, ranks as c_int, id, rank as c_int) };
    nccl.check("ncclCommInitRank", joined)?;
    Ok(Arc::new(Communicator { nccl, comm: AtomicPtr::new(comm), context, stream }))
}

impl CollectiveDriver for Communicator {
    fn library(&self) -> String {
        let mut version = 0;
        // SAFETY: the number is written by the call.
        unsafe { (self.nccl.version)(&raw mut version) };
        format!("NCCL {}.{}.{}", version / 10_000, version % 10_000 / 100, version % 100)
    }

    unsafe fn sum(&self, to: u64, count: usize, element: Element) -> Result<(), DeviceError> {
        let comm = self.comm.load(Ordering::SeqCst);
        if comm.is_null() {
            return Err(DeviceError::Failed { call: "ncclAllReduce".into(), reason: "the group has ended".into() });
        }
        let kind = match element {
            Element::F16 => 6,
            Element::F32 => 7,
            Element::BF16 => 9,
        };
        // SAFETY: the context is kept until the process ends.
        let entered = unsafe { sys::cuCtxSetCurrent(self.context) };
        entered
            .result()
            .map_err(|error| DeviceError::Failed { call: "cuCtxSetCurrent".into(), reason: error.to_string() })?;
        // SAFETY: the caller's promise; in place.
        let summed = unsafe {
            (self.nccl.all_reduce)(to as *const c_void, to as *mut c_void, count, kind, SUM, comm, self.stream)
        };
        self.nccl.check("ncclAllReduce", summed)
    }

    fn abort(&self) {
        let comm = self.comm.swap(std::ptr::null_mut(), Ordering::SeqCst);
        if !comm.is_null() {
            // SAFETY: live, and aborted once.
            unsafe { (self.nccl.abort)(comm) };
        }
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        self.abort();
    }
}
