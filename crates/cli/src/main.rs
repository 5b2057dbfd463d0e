//! The `pelton` command.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// The system's allocator; if it fails, the command ends with a message instead of Rust's abort.
struct Sentence;

#[global_allocator]
static ALLOCATOR: Sentence = Sentence;

// SAFETY: every call is forwarded unchanged; a null result is never returned.
unsafe impl GlobalAlloc for Sentence {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are the same.
        given(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        given(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        given(unsafe { System.realloc(memory, layout, size) }, size)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn given(memory: *mut u8, bytes: usize) -> *mut u8 {
    if memory.is_null() {
        out_of_memory(bytes);
    }
    memory
}

#[cold]
fn out_of_memory(bytes: usize) -> ! {
    static SAID: AtomicBool = AtomicBool::new(false);
    // On the stack, and without the lock of standard error, which this thread may hold.
    let mut text = [0; 200];
    let mut rest = &mut text[..];
    let _ = writeln!(
        rest,
        "pelton: memory ran out when {bytes} bytes more were needed; lower --memory, or raise the limit of this process (ulimit -v)"
    );
    let length = 200 - rest.len();
    if !SAID.swap(true, Ordering::Relaxed) {
        // SAFETY: the bytes are valid. A failure changes nothing.
        let _ = unsafe { libc::write(2, text.as_ptr().cast(), length) };
    }
    // SAFETY: it ends the process without running anything that may need memory.
    unsafe { libc::_exit(1) }
}

fn main() -> ExitCode {
    ExitCode::from(pelton_cli::pelton(std::env::args_os()))
}
