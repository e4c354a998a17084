//! Runs kernels on the CPU, compiled by the host's C++ compiler; see `emulator/emulator.h`.
//!
//! Calls are synchronous, so their order is trivial. Allocations are filled with 0xFF bytes, which
//! are NaN in every element type, so that reads of uninitialised memory are detected, and what
//! follows them can be neither read nor written (`guarded.rs`).

use std::{
    any::Any,
    collections::HashMap,
    ffi::c_void,
    path::PathBuf,
    process::Command,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use libloading::Library;

use super::{
    Arg, DeviceError, Geometry, GroupId, KernelFile, Properties, TiledAxis, Tiles,
    driver::{CollectiveDriver, DeviceEvent, Driver, Graph, KernelArgument, KernelHandle, Link, Mark},
    guarded::GuardedMemory,
    matmul::{Matmul, MatmulPlan},
};

const RUNTIME: &str = include_str!("../../emulator/emulator.h");
/// Number of multiprocessors that it reports: few, so that small work is split over several blocks.
const MULTIPROCESSORS: usize = 4;
/// The number that every GPU with clusters supports.
const MOST_CLUSTER: usize = 8;

type KernelEntry = unsafe extern "C" fn(*const u32, *const u32, u32, *mut *mut c_void);

struct Emulator {
    compiler: String,
    libraries: Mutex<HashMap<String, Arc<Library>>>,
    allocations: Mutex<HashMap<u64, GuardedMemory>>,
    capture: Mutex<Option<Vec<Operation>>>,
}

struct EmulatedKernel {
    entry: KernelEntry,
    name: String,
    /// Keeps the code loaded.
    _library: Arc<Library>,
}

/// An operation of a graph.
enum Operation {
    Launch { entry: KernelEntry, _library: Arc<Library>, geometry: Geometry, arguments: Vec<Arg> },
    Fill { to: u64, byte: u8, bytes: usize },
    Copy { to: u64, from: u64, bytes: usize },
}

struct Moment(Mutex<Instant>);

pub(super) fn open() -> Result<(Arc<dyn Driver>, Properties), DeviceError> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    let found = Command::new(&compiler).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        return Err(DeviceError::Missing {
            library: format!("the C++ compiler {compiler}, which the kernel emulator needs,"),
            hint: "install g++ or clang, or name one in CXX".into(),
        });
    }
    let properties = Properties {
        name: "emulated CUDA device".into(),
        driver: compiler.clone(),
        multiprocessors: MULTIPROCESSORS,
        capability: (0, 0),
        cache_bytes: 1 << 20,
        shared_bytes: 227 << 10,
        most_cluster: MOST_CLUSTER,
        emulated: true,
    };
    let driver =
        Emulator { compiler, libraries: Mutex::default(), allocations: Mutex::default(), capture: Mutex::default() };
    Ok((Arc::new(driver), properties))
}

impl Emulator {
    fn library(&self, file: KernelFile, options: &[String]) -> Result<Arc<Library>, DeviceError> {
        let key = format!("{} {}", file.name, options.join(" "));
        // Held while compiling, so that two threads that need the same file compile it once.
        let mut libraries = self.libraries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = libraries.get(&key) {
            return Ok(library.clone());
        }
        let path = self.compile(file, options)?;
        // SAFETY: the library was compiled from the kernels of this crate; its initialisers do
        // nothing.
        let library = unsafe { Library::new(&path) };
        let library = Arc::new(library.map_err(|error| failed("loading an emulated kernel", error))?);
        libraries.insert(key, library.clone());
        Ok(library)
    }

    /// Compiles a file to a library in the cache, unless it is already there.
    fn compile(&self, file: KernelFile, options: &[String]) -> Result<PathBuf, DeviceError> {
        let entries: String = file.kernels().iter().map(|name| format!("EMULATED_KERNEL({name})\n")).collect();
        let source = format!("{RUNTIME}\n#line 1 \"{}\"\n{}\n{entries}", file.name, file.whole());
        // Hidden visibility: otherwise the loader merges symbols of the same name in two libraries,
        // such as the shared memory of a kernel that is compiled for two head sizes.
        let mut all: Vec<String> = [
            "-std=c++17",
            "-O2",
            "-fPIC",
            "-shared",
            "-fno-strict-aliasing",
            // Sums are rounded as they are written, whatever instructions the processor has.
            "-ffp-contract=off",
            "-fvisibility=hidden",
            "-w",
            "-x",
            "c++",
            "-",
        ]
        .map(String::from)
        .to_vec();
        all.extend(processor_options().map(String::from));
        all.extend_from_slice(options);
        let key = blake3::hash(format!("{}\0{}\0{source}", self.compiler, all.join(" ")).as_bytes()).to_hex();
        let folder = std::env::temp_dir().join("spectune-emulator");
        let path = folder.join(format!("{}-{}.so", file.name, &key[..32]));
        if path.exists() {
            return Ok(path);
        }
        let io = |error| failed("writing an emulated kernel", error);
        std::fs::create_dir_all(&folder).map_err(io)?;
        static COMPILATIONS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = COMPILATIONS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("{}-{number}", std::process::id());
        let (input, output) = (folder.join(format!("{name}.cpp")), folder.join(format!("{name}.so")));
        std::fs::write(&input, source).map_err(io)?;
        let at = all.iter().position(|option| option == "-").unwrap_or_default();
        all[at] = input.display().to_string();
        let run = Command::new(&self.compiler).args(&all).arg("-o").arg(&output).output();
        let run = run.map_err(|error| failed("running the C++ compiler", error))?;
        if !run.status.success() {
            return Err(DeviceError::Compile {
                file: file.name.into(),
                target: format!("the emulator with {}", self.compiler),
                log: String::from_utf8_lossy(&run.stderr).lines().take(60).collect::<Vec<_>>().join("\n"),
            });
        }
        let _ = std::fs::remove_file(&input);
        std::fs::rename(&output, &path).map_err(io)?;
        Ok(path)
    }

    /// Adds an operation to the graph that is being captured, or runs it.
    fn take(&self, operation: Operation) {
        let mut capture = self.capture.lock().unwrap_or_else(PoisonError::into_inner);
        match capture.as_mut() {
            Some(operations) => operations.push(operation),
            None => {
                drop(capture);
                // SAFETY: the promises of the calls that created the operation.
                unsafe { operation.run() }
            }
        }
    }
}

/// What the compiler may use of this processor: without F16C each conversion of a half-precision
/// number is a call, and without FMA each fused multiplication.
fn processor_options() -> impl Iterator<Item = &'static str> {
    #[cfg(target_arch = "x86_64")]
    let has = is_x86_feature_detected!("f16c") && is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    let has = false;
    ["-mf16c", "-mfma"].into_iter().filter(move |_| has)
}

impl Operation {
    /// # Safety
    /// Addresses and arguments are as the calls of [`Driver`] promise.
    unsafe fn run(&self) {
        match self {
            Self::Launch { entry, geometry, arguments, .. } => {
                let mut values: Vec<KernelArgument> = arguments.iter().copied().map(KernelArgument::from).collect();
                let mut pointers: Vec<*mut c_void> = values.iter_mut().map(KernelArgument::pointer).collect();
                let block = [geometry.block, 1, 1];
                // SAFETY: the entry reads as many arguments as its kernel has; the caller promises
                // that they fit.
                unsafe { entry(geometry.grid.as_ptr(), block.as_ptr(), geometry.cluster, pointers.as_mut_ptr()) }
            }
            // SAFETY: the caller's promise.
            Self::Fill { to, byte, bytes } => unsafe { std::ptr::write_bytes(*to as *mut u8, *byte, *bytes) },
            // SAFETY: the caller's promise.
            Self::Copy { to, from, bytes } => unsafe {
                std::ptr::copy_nonoverlapping(*from as *const u8, *to as *mut u8, *bytes);
            },
        }
    }
}

impl Driver for Emulator {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn reach(&self, other: &dyn Driver) -> Result<Link, DeviceError> {
        // All emulated devices share the host's memory.
        let other = other.as_any().downcast_ref::<Self>();
        other.map(|_| Link::Memory).ok_or_else(|| failed("reaching another device", "it is not emulated"))
    }

    fn memory(&self) -> Result<(u64, u64), DeviceError> {
        Ok((4 << 30, 4 << 30))
    }

    fn allocate(&self, bytes: usize) -> Result<u64, DeviceError> {
        let refused = || DeviceError::OutOfMemory { needed_mib: bytes as u64 >> 20, free_mib: 4096, total_mib: 4096 };
        if bytes > 4 << 30 {
            return Err(refused());
        }
        let memory = GuardedMemory::new(bytes).ok_or_else(refused)?;
        let address = memory.address();
        // Not zeros: what a kernel reads without writing it shows as NaN.
        // SAFETY: just allocated with that size.
        unsafe { std::ptr::write_bytes(address as *mut u8, 0xFF, bytes) };
        self.allocations.lock().unwrap_or_else(PoisonError::into_inner).insert(address, memory);
        Ok(address)
    }

    unsafe fn free(&self, address: u64) {
        self.allocations.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
    }

    fn allocate_host(&self, bytes: usize) -> Result<*mut u8, DeviceError> {
        self.allocate(bytes).map(|address| address as *mut u8)
    }

    unsafe fn free_host(&self, address: *mut u8, _bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.free(address as u64) }
    }

    unsafe fn write(&self, to: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise; host and device memory never overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, bytes.len()) };
        Ok(())
    }

    unsafe fn read(&self, from: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    unsafe fn write_async(&self, to: u64, from: *mut u8, bytes: usize) -> Result<(), DeviceError> {
        self.take(Operation::Copy { to, from: from as u64, bytes });
        Ok(())
    }

    unsafe fn read_async(&self, to: *mut u8, from: u64, bytes: usize) -> Result<(), DeviceError> {
        self.take(Operation::Copy { to: to as u64, from, bytes });
        Ok(())
    }

    unsafe fn fill(&self, to: u64, byte: u8, bytes: usize) -> Result<(), DeviceError> {
        self.take(Operation::Fill { to, byte, bytes });
        Ok(())
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), DeviceError> {
        self.take(Operation::Copy { to, from, bytes });
        Ok(())
    }

    fn load(&self, file: KernelFile, options: &[String]) -> Result<(), DeviceError> {
        self.library(file, options).map(|_| ())
    }

    fn kernel(&self, file: KernelFile, options: &[String], name: &str) -> Result<Arc<dyn KernelHandle>, DeviceError> {
        let library = self.library(file, options)?;
        let symbol = format!("spectune_launch_{name}");
        // SAFETY: `EMULATED_KERNEL` gives every kernel an entry of this type.
        let entry = unsafe { library.get::<KernelEntry>(symbol.as_bytes()) };
        let entry =
            *entry.map_err(|error| failed(&format!("looking for the kernel {name} in {}", file.name), error))?;
        Ok(Arc::new(EmulatedKernel { entry, name: name.into(), _library: library }))
    }

    unsafe fn launch(
        &self,
        kernel: &dyn KernelHandle,
        geometry: Geometry,
        arguments: &[Arg],
    ) -> Result<(), DeviceError> {
        let Some(kernel) = kernel.as_any().downcast_ref::<EmulatedKernel>() else {
            return Err(failed("launching", "the kernel belongs to another device"));
        };
        if geometry.block == 0 || geometry.block > 1024 || geometry.grid.contains(&0) || geometry.shared > 227 << 10 {
            return Err(failed(&format!("launching {}", kernel.name), format!("impossible geometry {geometry:?}")));
        }
        self.take(Operation::Launch {
            entry: kernel.entry,
            _library: kernel._library.clone(),
            geometry,
            arguments: arguments.to_vec(),
        });
        Ok(())
    }

    fn tiles(&self, address: u64, axes: &[TiledAxis]) -> Result<Tiles, DeviceError> {
        let mut words = [0; 16];
        words[..2].copy_from_slice(&[address, axes.len() as u64]);
        for (words, axis) in words[2..].chunks_exact_mut(3).zip(axes) {
            words.copy_from_slice(&[axis.extent as u64, axis.apart as u64, axis.tile as u64]);
        }
        Ok(Tiles(words))
    }

    fn clusters_at_once(&self, _kernel: &dyn KernelHandle, geometry: Geometry) -> Result<usize, DeviceError> {
        // At least one runs, however few multiprocessors are reported, so that clusters of all
        // sizes are tested.
        Ok((MULTIPROCESSORS / geometry.cluster as usize).max(1))
    }

    fn begin_capture(&self) -> Result<(), DeviceError> {
        *self.capture.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
        Ok(())
    }

    fn end_capture(&self) -> Result<Graph, DeviceError> {
        let operations = self.capture.lock().unwrap_or_else(PoisonError::into_inner).take();
        operations
            .map(|operations| Graph(Box::new(operations)))
            .ok_or_else(|| failed("ending a capture", "none was started"))
    }

    fn run(&self, graph: &Graph) -> Result<(), DeviceError> {
        let Some(operations) = graph.0.downcast_ref::<Vec<Operation>>() else {
            return Err(failed("running a graph", "it belongs to another device"));
        };
        // SAFETY: the promises of the calls that were captured.
        operations.iter().for_each(|operation| unsafe { operation.run() });
        Ok(())
    }

    fn event(&self) -> Result<DeviceEvent, DeviceError> {
        Ok(DeviceEvent(Arc::new(Moment(Mutex::new(Instant::now())))))
    }

    fn record(&self, event: &DeviceEvent) -> Result<(), DeviceError> {
        if let Some(moment) = event.0.as_any().downcast_ref::<Moment>() {
            *moment.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        }
        Ok(())
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn join(&self, _id: &GroupId, _rank: usize, _ranks: usize) -> Result<Arc<dyn CollectiveDriver>, DeviceError> {
        Err(failed("joining a group", "the emulator has no library for it"))
    }

    fn matmul_plan(&self, _matmul: Matmul, _parts: usize) -> Result<Option<Box<dyn MatmulPlan>>, DeviceError> {
        Ok(None)
    }
}

impl KernelHandle for EmulatedKernel {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Mark for Moment {
    fn wait(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn since(&self, earlier: &dyn Mark) -> Result<Duration, DeviceError> {
        let at = |moment: &Self| *moment.0.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = earlier.as_any().downcast_ref::<Self>().map_or_else(Instant::now, at);
        Ok(at(self).saturating_duration_since(earlier))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn failed(call: &str, reason: impl ToString) -> DeviceError {
    DeviceError::Failed { call: call.into(), reason: reason.to_string() }
}
