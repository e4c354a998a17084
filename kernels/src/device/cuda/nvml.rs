//! The state of a GPU as reported by the driver's management library (NVML). The library is loaded
//! on first use; figures that it does not provide are missing.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void},
    time::Duration,
};

use libloading::Library;

use crate::device::GpuState;

/// Names under which the driver installs it.
const NAMES: &[&str] = &["libnvidia-ml.so.1", "libnvidia-ml.so", "nvml.dll"];
const SUCCESS: c_int = 0;
const INSUFFICIENT_SIZE: c_int = 7;
/// `NVML_CLOCK_SM` and `NVML_CLOCK_MEM`.
const CLOCKS: [c_uint; 2] = [1, 2];
/// `NVML_TEMPERATURE_GPU`.
const TEMPERATURE: c_uint = 0;
/// `NVML_PERF_POLICY_POWER` and `NVML_PERF_POLICY_THERMAL`.
const POLICIES: [c_uint; 2] = [0, 1];
/// Maximum number of processes of a GPU that are counted.
const MOST_PROCESSES: usize = 256;
/// `nvmlClocksEventReasons`: why the clock is below its maximum.
const REASONS: &[(c_ulonglong, &str)] = &[
    (0x02, "applications clocks setting"),
    (0x04, "power limit"),
    (0x08, "hardware slowdown"),
    (0x10, "sync boost"),
    (0x20, "software thermal slowdown"),
    (0x40, "hardware thermal slowdown"),
    (0x80, "hardware power brake"),
    (0x100, "display clock setting"),
];

type Handle = *mut c_void;

/// One GPU of the library.
pub struct Nvml {
    library: Library,
    /// The GPU's PCI address, by which the library finds the same GPU as the driver.
    address: CString,
}

/// `nvmlViolationTime_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Violation {
    /// In microseconds.
    reference: c_ulonglong,
    /// In nanoseconds.
    violation: c_ulonglong,
}

/// `nvmlProcessInfo_t` (version 2 and later).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Process {
    process: c_uint,
    memory: c_ulonglong,
    instance: c_uint,
    compute_instance: c_uint,
}

impl Nvml {
    /// Loads the library for the GPU at a PCI address such as `0000:1b:00.0`; `None` if it is not
    /// available.
    pub fn load(address: &CStr) -> Option<Self> {
        // SAFETY: the driver's own library, whose initializers may run at any time in any thread.
        let library = NAMES.iter().find_map(|name| unsafe { Library::new(*name) }.ok())?;
        let nvml = Self { library, address: address.to_owned() };
        // SAFETY: `nvmlReturn_t nvmlInit_v2(void)`.
        let begin = unsafe { nvml.library.get::<unsafe extern "C" fn() -> c_int>(b"nvmlInit_v2\0") }.ok()?;
        // SAFETY: as above; the library counts initialisations, and `drop` shuts it down once.
        (unsafe { begin() } == SUCCESS).then_some(())?;
        Some(nvml)
    }

    /// The current state; `None` if the library does not know the GPU.
    pub fn state(&self) -> Option<GpuState> {
        let handle = self.handle()?;
        let clock = |kind: c_uint| self.number_of(b"nvmlDeviceGetClockInfo\0", handle, kind);
        let milliwatts = |name: &[u8]| self.number(name, handle).map(|power| f64::from(power) / 1e3);
        let reasons = self
            .bits(b"nvmlDeviceGetCurrentClocksEventReasons\0", handle)
            .or_else(|| self.bits(b"nvmlDeviceGetCurrentClocksThrottleReasons\0", handle));
        let [power_throttled, thermal_throttled] = POLICIES.map(|policy| self.throttled(handle, policy));
        Some(GpuState {
            clock_mhz: clock(CLOCKS[0]),
            memory_clock_mhz: clock(CLOCKS[1]),
            power_w: milliwatts(b"nvmlDeviceGetPowerUsage\0"),
            power_limit_w: milliwatts(b"nvmlDeviceGetEnforcedPowerLimit\0"),
            energy_j: self
                .bits(b"nvmlDeviceGetTotalEnergyConsumption\0", handle)
                .map(|millijoules| millijoules as f64 / 1e3),
            temperature_c: self.number_of(b"nvmlDeviceGetTemperature\0", handle, TEMPERATURE),
            throttle_reasons: reasons.map_or(Vec::new(), |bits| {
                REASONS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, words)| *words).collect()
            }),
            power_throttled,
            thermal_throttled,
            other_processes: self.other_processes(handle),
        })
    }

    fn handle(&self) -> Option<Handle> {
        type Find = unsafe extern "C" fn(*const c_char, *mut Handle) -> c_int;
        let mut handle: Handle = std::ptr::null_mut();
        // SAFETY: `nvmlDeviceGetHandleByPciBusId_v2(const char *, nvmlDevice_t *)`; both pointers
        // live through the call.
        let found = unsafe {
            let find = self.library.get::<Find>(b"nvmlDeviceGetHandleByPciBusId_v2\0").ok()?;
            find(self.address.as_ptr(), &mut handle)
        };
        (found == SUCCESS && !handle.is_null()).then_some(handle)
    }

    /// A figure that a function of the library writes as an unsigned int.
    fn number(&self, name: &[u8], handle: Handle) -> Option<u32> {
        type Get = unsafe extern "C" fn(Handle, *mut c_uint) -> c_int;
        let mut value = 0;
        // SAFETY: the functions called this way take a device and a pointer to an unsigned int,
        // which lives through the call; the handle is the library's own.
        let got = unsafe { self.library.get::<Get>(name).ok()?(handle, &mut value) };
        (got == SUCCESS).then_some(value)
    }

    /// The same for a function with an enum argument.
    fn number_of(&self, name: &[u8], handle: Handle, choice: c_uint) -> Option<u32> {
        type Get = unsafe extern "C" fn(Handle, c_uint, *mut c_uint) -> c_int;
        let mut value = 0;
        // SAFETY: as in `number`, with an enum, which is an int, between the two.
        let got = unsafe { self.library.get::<Get>(name).ok()?(handle, choice, &mut value) };
        (got == SUCCESS).then_some(value)
    }

    fn bits(&self, name: &[u8], handle: Handle) -> Option<u64> {
        type Get = unsafe extern "C" fn(Handle, *mut c_ulonglong) -> c_int;
        let mut value = 0;
        // SAFETY: as in `number`, for a pointer to an unsigned long long.
        let got = unsafe { self.library.get::<Get>(name).ok()?(handle, &mut value) };
        (got == SUCCESS).then_some(value)
    }

    /// Time for which the clock has been limited by a policy since the driver was loaded.
    fn throttled(&self, handle: Handle, policy: c_uint) -> Option<Duration> {
        type Get = unsafe extern "C" fn(Handle, c_uint, *mut Violation) -> c_int;
        let mut time = Violation::default();
        // SAFETY: `nvmlDeviceGetViolationStatus(nvmlDevice_t, nvmlPerfPolicyType_t,
        // nvmlViolationTime_t *)`; the structure has the library's layout and lives through the
        // call.
        let got =
            unsafe { self.library.get::<Get>(b"nvmlDeviceGetViolationStatus\0").ok()?(handle, policy, &mut time) };
        (got == SUCCESS && time.reference > 0).then(|| Duration::from_nanos(time.violation))
    }

    /// Processes with a compute context on the GPU, except this one. In a container they may not be
    /// visible.
    fn other_processes(&self, handle: Handle) -> Option<u32> {
        type Get = unsafe extern "C" fn(Handle, *mut c_uint, *mut Process) -> c_int;
        let mut processes = [Process::default(); MOST_PROCESSES];
        let mut count = MOST_PROCESSES as c_uint;
        // SAFETY: `nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t, unsigned int *,
        // nvmlProcessInfo_t *)` writes at most `count` entries of this layout, and the count is the
        // array's length.
        let got = unsafe {
            let get = self.library.get::<Get>(b"nvmlDeviceGetComputeRunningProcesses_v3\0").ok()?;
            get(handle, &mut count, processes.as_mut_ptr())
        };
        if got != SUCCESS {
            return (got == INSUFFICIENT_SIZE).then_some(MOST_PROCESSES as u32);
        }
        let own = std::process::id();
        let listed = &processes[..(count as usize).min(MOST_PROCESSES)];
        Some(listed.iter().filter(|one| one.process != own).count() as u32)
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: `nvmlReturn_t nvmlShutdown(void)`, once for the `nvmlInit_v2` of `load`.
        if let Ok(end) = unsafe { self.library.get::<unsafe extern "C" fn() -> c_int>(b"nvmlShutdown\0") } {
            // SAFETY: as above. Its result no longer matters.
            unsafe { end() };
        }
    }
}
