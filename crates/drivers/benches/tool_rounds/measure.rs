//! Counters of disk syncs and memory.
#![allow(unsafe_code, reason = "counting needs an allocator and system calls of our own")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

pub(crate) fn median<T: Ord + Copy>(values: &mut [T]) -> T {
    values.sort_unstable();
    values[values.len() / 2]
}

static SYNCS: AtomicU64 = AtomicU64::new(0);

/// The number of disk syncs of this process.
pub(crate) fn sync_count() -> u64 {
    SYNCS.load(Ordering::Relaxed)
}

/// Replacements for the C library's functions, which the bundled SQLite calls: syncs are counted,
/// not estimated.
#[cfg(target_os = "linux")]
mod interposed {
    use std::ffi::c_int;
    use std::os::fd::BorrowedFd;
    use std::sync::atomic::Ordering;

    fn count_sync(done: rustix::io::Result<()>) -> c_int {
        super::SYNCS.fetch_add(1, Ordering::Relaxed);
        if done.is_ok() { 0 } else { -1 }
    }

    #[unsafe(no_mangle)]
    extern "C" fn fsync(file: c_int) -> c_int {
        // SAFETY: the caller has the file open for as long as the call takes.
        count_sync(rustix::fs::fsync(unsafe { BorrowedFd::borrow_raw(file) }))
    }

    #[unsafe(no_mangle)]
    extern "C" fn fdatasync(file: c_int) -> c_int {
        // SAFETY: the caller has the file open for as long as the call takes.
        count_sync(rustix::fs::fdatasync(unsafe { BorrowedFd::borrow_raw(file) }))
    }
}

static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// An allocator that counts live bytes.
struct LiveBytesAllocator;

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for LiveBytesAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the pointer came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE_BYTES.fetch_add(size, Ordering::Relaxed);
        LIVE_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the pointer came from the system's allocator, and the caller keeps the contract.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: LiveBytesAllocator = LiveBytesAllocator;

/// Memory in use, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MemoryUse {
    /// Allocated and not freed; excludes the SQLite cache, which all tasks share.
    pub(crate) live: usize,
    /// Resident memory of the process.
    pub(crate) resident: usize,
}

impl MemoryUse {
    pub(crate) fn now() -> Self {
        let live = LIVE_BYTES.load(Ordering::Relaxed);
        let pages = std::fs::read_to_string("/proc/self/statm").ok();
        let pages = pages.and_then(|pages| pages.split(' ').nth(1)?.parse().ok());
        Self { live, resident: pages.unwrap_or(0) * rustix::param::page_size() }
    }

    /// The difference to an earlier measurement.
    pub(crate) fn beyond(self, before: Self) -> Self {
        let live = self.live.saturating_sub(before.live);
        Self { live, resident: self.resident.saturating_sub(before.resident) }
    }

    /// The peak while `of` runs, sampled every millisecond.
    pub(crate) async fn peak<T>(of: impl Future<Output = T>) -> (Self, T) {
        static DONE: AtomicBool = AtomicBool::new(false);
        DONE.store(false, Ordering::Relaxed);
        let watcher: JoinHandle<Self> = std::thread::spawn(|| {
            let mut peak = Self::default();
            while !DONE.load(Ordering::Relaxed) {
                let now = Self::now();
                peak.live = peak.live.max(now.live);
                peak.resident = peak.resident.max(now.resident);
                std::thread::sleep(Duration::from_millis(1));
            }
            peak
        });
        let done = of.await;
        DONE.store(true, Ordering::Relaxed);
        (watcher.join().unwrap(), done)
    }
}
