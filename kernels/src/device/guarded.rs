//! Memory of the emulator: an inaccessible page follows each allocation, so that a kernel that
//! reads or writes past the end of a buffer fails here, as it may on a GPU.

/// What the widest load of a kernel needs. With more, more bytes past the end would go unseen.
const ALIGNMENT: usize = 16;

#[cfg(not(unix))]
pub use plain::GuardedMemory;
#[cfg(unix)]
pub use with_page::GuardedMemory;

#[cfg(unix)]
mod with_page {
    use std::ptr::NonNull;

    use super::ALIGNMENT;

    /// Bytes that end where an inaccessible page begins.
    pub struct GuardedMemory {
        mapping: NonNull<libc::c_void>,
        mapped: usize,
        address: u64,
    }

    // SAFETY: it owns its mapping.
    unsafe impl Send for GuardedMemory {}

    impl GuardedMemory {
        /// `None` if the system has no more memory.
        pub fn new(bytes: usize) -> Option<Self> {
            // SAFETY: it only asks for a constant of the system.
            let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
            let used = bytes.max(1).checked_next_multiple_of(ALIGNMENT)?;
            let before = used.checked_next_multiple_of(page)?;
            let mapped = before.checked_add(page)?;
            let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            // SAFETY: a new mapping, where the system likes.
            let start = unsafe { libc::mmap(std::ptr::null_mut(), mapped, protection, flags, -1, 0) };
            let mapping = NonNull::new(start).filter(|_| start != libc::MAP_FAILED)?;
            let memory = Self { mapping, mapped, address: start as u64 + (before - used) as u64 };
            // SAFETY: the last page of that mapping.
            let is_guarded = unsafe { libc::mprotect(start.byte_add(before), page, libc::PROT_NONE) } == 0;
            is_guarded.then_some(memory)
        }

        pub fn address(&self) -> u64 {
            self.address
        }
    }

    impl Drop for GuardedMemory {
        fn drop(&mut self) {
            // SAFETY: its own mapping, which nothing uses any more.
            unsafe { libc::munmap(self.mapping.as_ptr(), self.mapped) };
        }
    }
}

#[cfg(not(unix))]
mod plain {
    use super::ALIGNMENT;

    /// Bytes without such a page: this system has no call for it.
    pub struct GuardedMemory(Vec<u128>);

    impl GuardedMemory {
        /// `None` if the system has no more memory.
        pub fn new(bytes: usize) -> Option<Self> {
            let mut memory = Vec::new();
            memory.try_reserve_exact(bytes.div_ceil(ALIGNMENT).max(1)).ok()?;
            Some(Self(memory))
        }

        pub fn address(&self) -> u64 {
            self.0.as_ptr() as u64
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn memory_ends_where_a_page_begins() {
        for bytes in [0, 1, 16, 17, 4096, 4097, 100_000] {
            let memory = GuardedMemory::new(bytes).expect("memory");
            let end = memory.address() as usize + bytes.max(1).next_multiple_of(ALIGNMENT);
            assert!(end.is_multiple_of(4096) && memory.address().is_multiple_of(16), "{bytes}");
        }
        assert!(GuardedMemory::new(usize::MAX).is_none());
    }
}
