//! A CUDA GPU, through the driver library, which is loaded at run time.
//!
//! Uses one stream that does not synchronise with the legacy default stream, and the device's
//! primary context, which other libraries in the process share. Memory is allocated with plain
//! `cuMemAlloc`, never managed.

mod lt;
mod nccl;
mod nvml;

use std::{
    any::Any,
    collections::HashMap,
    ffi::{CStr, CString, c_void},
    mem::MaybeUninit,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use cudarc::driver::{
    CudaStream,
    result::{self, DriverError},
    sys,
};

use super::{
    Arg, DeviceError, Geometry, GpuState, GroupId, KernelFile, Properties, Split, TiledAxis, Tiles, compile,
    driver::{CollectiveDriver, DeviceEvent, Driver, Graph, KernelArgument, KernelHandle, Link, Mark},
    libraries,
    matmul::{Matmul, MatmulPlan},
};

/// The oldest architecture with the instructions that the kernels use: Ampere.
const OLDEST: (u32, u32) = (8, 0);

/// Percentage of a multiprocessor's memory that is shared memory rather than L1 cache.
const fn shared_share(split: Split) -> i32 {
    match split {
        Split::Shared => 100,
        Split::Cache => 25,
    }
}

pub(super) use nccl::group_id;

struct Cuda {
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    /// The owner of the stream, if it is not our own.
    _owner: Option<Arc<CudaStream>>,
    /// Maximum number of bytes of shared memory per block.
    most_shared: i32,
    architecture: String,
    /// Whether a kernel may start before its predecessor ends (Hopper and later).
    overlaps: bool,
    driver: String,
    modules: Mutex<HashMap<String, Module>>,
    library: Mutex<Option<Option<Arc<lt::Library>>>>,
    /// PCI address, such as `0000:1b:00.0`; `None` if the driver does not report it.
    bus_address: Option<CString>,
    /// Loaded on first use; `None` if it is not available.
    management: OnceLock<Option<nvml::Nvml>>,
}

#[derive(Clone, Copy)]
struct Module(sys::CUmodule);

struct CudaKernel(sys::CUfunction, String);

struct CapturedGraph {
    graph: sys::CUgraph,
    executable: sys::CUgraphExec,
}

struct CudaEvent {
    event: sys::CUevent,
    context: sys::CUcontext,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Cuda {}
// SAFETY: as above; the driver locks where it must.
unsafe impl Sync for Cuda {}
// SAFETY: a handle; as above.
unsafe impl Send for Module {}
// SAFETY: a handle; as above.
unsafe impl Send for CudaKernel {}
// SAFETY: a handle; as above.
unsafe impl Sync for CudaKernel {}
// SAFETY: a handle; launches of one graph are ordered by its stream.
unsafe impl Send for CapturedGraph {}
// SAFETY: as above.
unsafe impl Sync for CapturedGraph {}
// SAFETY: a handle; as above.
unsafe impl Send for CudaEvent {}
// SAFETY: a handle; as above.
unsafe impl Sync for CudaEvent {}

/// Number of devices; 0 without a driver.
pub(super) fn count() -> usize {
    let count = libraries::has_driver().then(|| result::init().and_then(|()| result::device::get_count()));
    count.and_then(Result::ok).and_then(|count| usize::try_from(count).ok()).unwrap_or_default()
}

/// A device with a separate stream.
pub(super) fn open(number: usize) -> Result<(Arc<dyn Driver>, Properties), DeviceError> {
    open_with(number, None)
}

/// The device of another owner's stream, using that stream.
pub(super) fn on_stream(stream: Arc<CudaStream>) -> Result<(Arc<dyn Driver>, Properties), DeviceError> {
    open_with(stream.context().ordinal(), Some(stream))
}

fn open_with(number: usize, owner: Option<Arc<CudaStream>>) -> Result<(Arc<dyn Driver>, Properties), DeviceError> {
    if !libraries::has_driver() {
        return Err(DeviceError::Missing {
            library: "the CUDA driver (libcuda.so.1)".into(),
            hint: "install NVIDIA's driver; in a container, start it with the GPU passed through (--gpus all)".into(),
        });
    }
    result::init().map_err(|error| failed("cuInit", error))?;
    let count = result::device::get_count().map_err(|error| failed("cuDeviceGetCount", error))?;
    let ordinal = i32::try_from(number).ok().filter(|number| *number < count).ok_or_else(|| {
        DeviceError::NoDevice(format!(
            "there is no device cuda:{number}; the driver reports {count} (check CUDA_VISIBLE_DEVICES)"
        ))
    })?;
    let device = result::device::get(ordinal).map_err(|error| failed("cuDeviceGet", error))?;
    use sys::CUdevice_attribute as Attribute;
    let attribute = |attribute: Attribute| -> Result<u32, DeviceError> {
        // SAFETY: the device handle was just obtained.
        let value = unsafe { result::device::get_attribute(device, attribute) };
        value.map(|value| value.max(0) as u32).map_err(|error| failed("cuDeviceGetAttribute", error))
    };
    let capability = (
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    );
    let name = result::device::get_name(device).map_err(|error| failed("cuDeviceGetName", error))?;
    if capability < OLDEST {
        let (major, minor) = capability;
        return Err(DeviceError::NoDevice(format!(
            "cuda:{number} ({name}) has compute capability {major}.{minor}; the kernels need 8.0 (Ampere) or later"
        )));
    }
    let mut version = 0;
    // SAFETY: the version is written by the call.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result().map_err(|error| failed("cuDriverGetVersion", error))?;
    let driver = format!("{}.{}", version / 1000, version % 1000 / 10);
    // SAFETY: the device exists; the primary context is kept until the process ends.
    let context = unsafe { result::primary_ctx::retain(device) };
    let context = context.map_err(|error| failed("cuDevicePrimaryCtxRetain", error))?;
    // SAFETY: the context is live.
    unsafe { result::ctx::set_current(context) }.map_err(|error| failed("cuCtxSetCurrent", error))?;
    let stream = match &owner {
        Some(owner) => owner.cu_stream(),
        None => result::stream::create(result::stream::StreamKind::NonBlocking)
            .map_err(|error| failed("cuStreamCreate", error))?,
    };
    let properties = Properties {
        name,
        driver: driver.clone(),
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as usize,
        capability,
        cache_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)? as usize,
        shared_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as usize,
        most_cluster: if capability >= (9, 0) { 8 } else { 1 },
        emulated: false,
    };
    let cuda = Cuda {
        device,
        context,
        stream,
        _owner: owner,
        most_shared: properties.shared_bytes as i32,
        architecture: architecture(capability),
        overlaps: capability >= (9, 0),
        driver,
        modules: Mutex::default(),
        library: Mutex::default(),
        bus_address: bus_address(device),
        management: OnceLock::new(),
    };
    Ok((Arc::new(cuda), properties))
}

/// NVRTC's name of an architecture. From Hopper on, some instructions require the name with an `a`.
fn architecture((major, minor): (u32, u32)) -> String {
    format!("sm_{major}{minor}{}", if major >= 9 { "a" } else { "" })
}

impl Cuda {
    /// Makes the context current for the calling thread.
    fn enter(&self) -> Result<(), DeviceError> {
        // SAFETY: the context is kept until the process ends.
        unsafe { result::ctx::set_current(self.context) }.map_err(|error| failed("cuCtxSetCurrent", error))
    }

    fn attributes(&self, Geometry { cluster, .. }: Geometry) -> Vec<sys::CUlaunchAttribute> {
        let mut attributes = Vec::with_capacity(2);
        if self.overlaps {
            // The kernel may start before its predecessor has ended; it waits for it itself
            // (`wait_for_predecessor`). Hardware before Hopper lacks the instruction.
            attributes.push(sys::CUlaunchAttribute {
                id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                pad: [0; 4],
                value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
            });
        }
        if cluster > 1 {
            attributes.push(sys::CUlaunchAttribute {
                id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                pad: [0; 4],
                value: sys::CUlaunchAttributeValue {
                    clusterDim: sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x: cluster, y: 1, z: 1 },
                },
            });
        }
        attributes
    }

    /// The launch configuration; valid as long as the attributes.
    fn configuration(&self, geometry: Geometry, attributes: &mut [sys::CUlaunchAttribute]) -> sys::CUlaunchConfig {
        let Geometry { grid: [x, y, z], block, shared, .. } = geometry;
        sys::CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: block,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shared,
            hStream: self.stream,
            attrs: attributes.as_mut_ptr(),
            numAttrs: attributes.len() as u32,
        }
    }

    fn module(&self, file: KernelFile, options: &[String]) -> Result<Module, DeviceError> {
        let key = format!("{} {}", file.name, options.join(" "));
        if let Some(module) = self.modules.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(*module);
        }
        // Not locked while compiling, so that files compile in parallel.
        let binary = compile::cached(file, options, &self.architecture, &self.driver)?;
        self.enter()?;
        // SAFETY: the binary is complete: its hash was checked, or it was just compiled.
        let module = unsafe { result::module::load_data(binary.as_ptr().cast::<c_void>()) };
        let module = Module(module.map_err(|error| failed(&format!("loading {}", file.name), error))?);
        self.modules.lock().unwrap_or_else(PoisonError::into_inner).insert(key, module);
        Ok(module)
    }
}

/// Downcasts to a kernel that this driver has loaded.
fn own_kernel(kernel: &dyn KernelHandle) -> Result<&CudaKernel, DeviceError> {
    let own = kernel.as_any().downcast_ref::<CudaKernel>();
    own.ok_or_else(|| failed("launching", "the kernel belongs to another device"))
}

fn bus_address(device: sys::CUdevice) -> Option<CString> {
    let mut bytes = [0_u8; 32];
    // SAFETY: at most the length of the array is written, including a final zero.
    let reported = unsafe { sys::cuDeviceGetPCIBusId(bytes.as_mut_ptr().cast(), bytes.len() as i32, device) };
    reported.result().ok()?;
    CStr::from_bytes_until_nul(&bytes).ok().map(ToOwned::to_owned)
}

impl Driver for Cuda {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn reach(&self, other: &dyn Driver) -> Result<Link, DeviceError> {
        let Some(other) = other.as_any().downcast_ref::<Self>() else {
            return Err(failed("cuCtxEnablePeerAccess", "the other device is not a CUDA device"));
        };
        if other.device == self.device {
            return Err(DeviceError::NoDevice("a device appears twice in a group".into()));
        }
        use sys::CUdevice_P2PAttribute as Attribute;
        let attribute = |attribute: Attribute| {
            let mut value = 0;
            // SAFETY: both devices exist; the value is written by the call.
            let requested = unsafe { sys::cuDeviceGetP2PAttribute(&mut value, attribute, self.device, other.device) };
            requested.result().map(|()| value != 0).map_err(|error| failed("cuDeviceGetP2PAttribute", error))
        };
        if !attribute(Attribute::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED)? {
            return Err(DeviceError::NoDevice(format!(
                "devices {} and {} cannot access each other's memory, which tensor parallelism needs: they are not \
                 linked, or the system isolates them (see nvidia-smi topo -p2p r)",
                self.device, other.device
            )));
        }
        self.enter()?;
        // SAFETY: both contexts are kept until the process ends.
        match unsafe { sys::cuCtxEnablePeerAccess(other.context, 0) }.result() {
            Ok(()) | Err(DriverError(sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)) => {}
            Err(error) => return Err(failed("cuCtxEnablePeerAccess", error)),
        }
        // Only NVLink supports native atomics.
        let atomics = attribute(Attribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)?;
        Ok(if atomics { Link::NvLink } else { Link::Pcie })
    }

    fn state(&self) -> Option<GpuState> {
        let load = || nvml::Nvml::load(self.bus_address.as_ref()?);
        self.management.get_or_init(load).as_ref()?.state()
    }

    fn memory(&self) -> Result<(u64, u64), DeviceError> {
        self.enter()?;
        let (free, total) = result::mem_get_info().map_err(|error| failed("cuMemGetInfo", error))?;
        Ok((free as u64, total as u64))
    }

    fn allocate(&self, bytes: usize) -> Result<u64, DeviceError> {
        let (free, total) = self.memory()?;
        let refused =
            DeviceError::OutOfMemory { needed_mib: bytes as u64 >> 20, free_mib: free >> 20, total_mib: total >> 20 };
        if bytes as u64 > free {
            return Err(refused);
        }
        // SAFETY: the context is current.
        match unsafe { result::malloc_sync(bytes) } {
            Ok(address) => Ok(address),
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => Err(refused),
            Err(error) => Err(failed("cuMemAlloc", error)),
        }
    }

    unsafe fn free(&self, address: u64) {
        if self.enter().is_ok() {
            // SAFETY: the caller's promise. Freeing waits for the device; an error would be an
            // earlier kernel's.
            let _ = unsafe { result::free_sync(address) };
        }
    }

    fn allocate_host(&self, bytes: usize) -> Result<*mut u8, DeviceError> {
        self.enter()?;
        // SAFETY: the context is current.
        let address = unsafe { result::malloc_host(bytes, 0) };
        address.map(<*mut c_void>::cast).map_err(|error| failed("cuMemHostAlloc", error))
    }

    unsafe fn free_host(&self, address: *mut u8, _bytes: usize) {
        if self.enter().is_ok() {
            // Copies to or from it may be in progress.
            let _ = self.synchronize();
            // SAFETY: the caller's promise.
            let _ = unsafe { result::free_host(address.cast()) };
        }
    }

    unsafe fn write(&self, to: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: the caller's promise. Memory that is not page-locked is read before the call
        // returns.
        unsafe { result::memcpy_htod_async(to, bytes, self.stream) }.map_err(|error| failed("cuMemcpyHtoD", error))?;
        self.synchronize()
    }

    unsafe fn read(&self, from: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: the caller's promise; the bytes stay borrowed until the stream has passed.
        unsafe { result::memcpy_dtoh_async(bytes, from, self.stream) }
            .map_err(|error| failed("cuMemcpyDtoH", error))?;
        self.synchronize()
    }

    unsafe fn write_async(&self, to: u64, from: *mut u8, bytes: usize) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: the caller's promise.
        let copied =
            unsafe { result::memcpy_htod_async(to, std::slice::from_raw_parts(from.cast_const(), bytes), self.stream) };
        copied.map_err(|error| failed("cuMemcpyHtoDAsync", error))
    }

    unsafe fn read_async(&self, to: *mut u8, from: u64, bytes: usize) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: the caller's promise.
        let copied = unsafe { result::memcpy_dtoh_async(std::slice::from_raw_parts_mut(to, bytes), from, self.stream) };
        copied.map_err(|error| failed("cuMemcpyDtoHAsync", error))
    }

    unsafe fn fill(&self, to: u64, byte: u8, bytes: usize) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: the caller's promise.
        unsafe { result::memset_d8_async(to, byte, bytes, self.stream) }.map_err(|error| failed("cuMemsetD8", error))
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: the caller's promise.
        let copied = unsafe { result::memcpy_dtod_async(to, from, bytes, self.stream) };
        copied.map_err(|error| failed("cuMemcpyDtoD", error))
    }

    fn load(&self, file: KernelFile, options: &[String]) -> Result<(), DeviceError> {
        self.module(file, options).map(|_| ())
    }

    fn kernel(&self, file: KernelFile, options: &[String], name: &str) -> Result<Arc<dyn KernelHandle>, DeviceError> {
        let module = self.module(file, options)?;
        self.enter()?;
        let symbol = CString::new(name).map_err(|error| failed("cuModuleGetFunction", error))?;
        // SAFETY: the module stays loaded until the process ends.
        let function = unsafe { result::module::get_function(module.0, symbol) };
        let function = function.map_err(|error| failed(&format!("looking for {name} in {}", file.name), error))?;
        // Static shared memory of a kernel counts against the same limit.
        use sys::CUfunction_attribute_enum as Attribute;
        let own = {
            let mut value = 0;
            // SAFETY: the function is live, the value is written by the call.
            let requested = unsafe {
                sys::cuFuncGetAttribute(&mut value, Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function).result()
            };
            requested.map_err(|error| failed("cuFuncGetAttribute", error))?;
            value
        };
        for (attribute, value) in [
            (Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, self.most_shared - own),
            (Attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, shared_share(file.split)),
        ] {
            // SAFETY: the function is live.
            let set = unsafe { result::function::set_function_attribute(function, attribute, value) };
            set.map_err(|error| failed("cuFuncSetAttribute", error))?;
        }
        Ok(Arc::new(CudaKernel(function, name.into())))
    }

    unsafe fn launch(
        &self,
        kernel: &dyn KernelHandle,
        geometry: Geometry,
        arguments: &[Arg],
    ) -> Result<(), DeviceError> {
        let CudaKernel(function, name) = own_kernel(kernel)?;
        self.enter()?;
        let mut values: Vec<KernelArgument> = arguments.iter().copied().map(KernelArgument::from).collect();
        let mut pointers: Vec<*mut c_void> = values.iter_mut().map(KernelArgument::pointer).collect();
        let mut attributes = self.attributes(geometry);
        let config = self.configuration(geometry, &mut attributes);
        // SAFETY: the caller promises that the arguments are the kernel's; configuration and
        // arguments outlive the call.
        let launched =
            unsafe { sys::cuLaunchKernelEx(&raw const config, *function, pointers.as_mut_ptr(), std::ptr::null_mut()) };
        launched.result().map_err(|error| failed(&format!("launching {name} {geometry:?}"), error))
    }

    fn tiles(&self, address: u64, axes: &[TiledAxis]) -> Result<Tiles, DeviceError> {
        self.enter()?;
        let extent: Vec<u64> = axes.iter().map(|axis| axis.extent as u64).collect();
        // Elements along the first axis are contiguous.
        let apart: Vec<u64> = axes[1..].iter().map(|axis| axis.apart as u64 * 2).collect();
        // Rows of 128 bytes, whose 16-byte chunks are swizzled as products read them.
        let tile: Vec<u32> = axes.iter().map(|axis| axis.tile as u32).collect();
        let every = vec![1; axes.len()];
        let mut map = sys::CUtensorMap { opaque: [0; 16] };
        // SAFETY: the map is written by the call; it only describes memory, and copies stay within
        // what it describes.
        let encoded = unsafe {
            sys::cuTensorMapEncodeTiled(
                &raw mut map,
                sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT16,
                axes.len() as u32,
                address as *mut c_void,
                extent.as_ptr(),
                apart.as_ptr(),
                tile.as_ptr(),
                every.as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        encoded.result().map_err(|error| failed(&format!("cuTensorMapEncodeTiled of {axes:?}"), error))?;
        Ok(Tiles(map.opaque))
    }

    fn clusters_at_once(&self, kernel: &dyn KernelHandle, geometry: Geometry) -> Result<usize, DeviceError> {
        let CudaKernel(function, name) = own_kernel(kernel)?;
        self.enter()?;
        let mut attributes = self.attributes(geometry);
        let config = self.configuration(geometry, &mut attributes);
        let mut count = 0;
        // SAFETY: the function is live; configuration and count outlive the call.
        let requested = unsafe { sys::cuOccupancyMaxActiveClusters(&mut count, *function, &raw const config) };
        requested
            .result()
            .map_err(|error| failed(&format!("cuOccupancyMaxActiveClusters of {name} {geometry:?}"), error))?;
        Ok(usize::try_from(count).unwrap_or_default())
    }

    fn begin_capture(&self) -> Result<(), DeviceError> {
        self.enter()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is live.
        unsafe { result::stream::begin_capture(self.stream, mode) }
            .map_err(|error| failed("cuStreamBeginCapture", error))
    }

    fn end_capture(&self) -> Result<Graph, DeviceError> {
        self.enter()?;
        // SAFETY: the stream is live and captures.
        let graph = unsafe { result::stream::end_capture(self.stream) };
        let graph = graph.map_err(|error| failed("cuStreamEndCapture", error))?;
        let mut executable = MaybeUninit::uninit();
        // SAFETY: the graph is live; the executable is written by a call that succeeds.
        let executable = unsafe {
            sys::cuGraphInstantiateWithFlags(executable.as_mut_ptr(), graph, 0)
                .result()
                .map(|()| executable.assume_init())
        };
        let executable = executable.map_err(|error| failed("cuGraphInstantiate", error))?;
        // SAFETY: both are live. Uploading in advance keeps the first launch as short as the
        // others.
        unsafe { result::graph::upload(executable, self.stream) }.map_err(|error| failed("cuGraphUpload", error))?;
        Ok(Graph(Box::new(CapturedGraph { graph, executable })))
    }

    fn run(&self, graph: &Graph) -> Result<(), DeviceError> {
        let Some(graph) = graph.0.downcast_ref::<CapturedGraph>() else {
            return Err(failed("cuGraphLaunch", "the graph belongs to another device"));
        };
        self.enter()?;
        // SAFETY: the graph lives as long as its handle.
        unsafe { result::graph::launch(graph.executable, self.stream) }.map_err(|error| failed("cuGraphLaunch", error))
    }

    fn event(&self) -> Result<DeviceEvent, DeviceError> {
        self.enter()?;
        let event = result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let event = event.map_err(|error| failed("cuEventCreate", error))?;
        let event = DeviceEvent(Arc::new(CudaEvent { event, context: self.context }));
        self.record(&event)?;
        Ok(event)
    }

    fn record(&self, event: &DeviceEvent) -> Result<(), DeviceError> {
        let Some(event) = event.0.as_any().downcast_ref::<CudaEvent>() else {
            return Err(failed("cuEventRecord", "the event belongs to another device"));
        };
        self.enter()?;
        // SAFETY: event and stream are live.
        unsafe { result::event::record(event.event, self.stream) }.map_err(|error| failed("cuEventRecord", error))
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: the stream is live.
        unsafe { result::stream::synchronize(self.stream) }.map_err(|error| failed("cuStreamSynchronize", error))
    }

    fn join(&self, id: &GroupId, rank: usize, ranks: usize) -> Result<Arc<dyn CollectiveDriver>, DeviceError> {
        self.enter()?;
        nccl::join(id, rank, ranks, self.context, self.stream)
    }

    fn matmul_plan(&self, matmul: Matmul, parts: usize) -> Result<Option<Box<dyn MatmulPlan>>, DeviceError> {
        self.enter()?;
        let mut library = self.library.lock().unwrap_or_else(PoisonError::into_inner);
        let library = match library.as_ref() {
            Some(library) => library.clone(),
            None => {
                let opened = lt::open()?;
                *library = Some(opened.clone());
                opened
            }
        };
        let Some(library) = library else { return Ok(None) };
        Ok(Some(Box::new(lt::LtPlan::new(library, matmul, parts, self.stream)?)))
    }
}

impl KernelHandle for CudaKernel {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for CapturedGraph {
    fn drop(&mut self) {
        // SAFETY: both were created together and are destroyed once; the driver keeps what is
        // running.
        unsafe {
            let _ = result::graph::exec_destroy(self.executable);
            let _ = result::graph::destroy(self.graph);
        }
    }
}

impl Mark for CudaEvent {
    fn wait(&self) -> Result<(), DeviceError> {
        // SAFETY: context and event are live.
        unsafe {
            result::ctx::set_current(self.context).map_err(|error| failed("cuCtxSetCurrent", error))?;
            result::event::synchronize(self.event).map_err(|error| failed("cuEventSynchronize", error))
        }
    }

    fn since(&self, earlier: &dyn Mark) -> Result<Duration, DeviceError> {
        let Some(earlier) = earlier.as_any().downcast_ref::<Self>() else {
            return Err(failed("cuEventElapsedTime", "the event belongs to another device"));
        };
        // SAFETY: both events are live.
        let milliseconds = unsafe { result::event::elapsed(earlier.event, self.event) };
        let milliseconds = milliseconds.map_err(|error| failed("cuEventElapsedTime", error))?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        // SAFETY: the event is destroyed once.
        let _ = unsafe { result::event::destroy(self.event) };
    }
}

fn failed(call: &str, reason: impl std::fmt::Display) -> DeviceError {
    DeviceError::Failed { call: call.into(), reason: reason.to_string() }
}
