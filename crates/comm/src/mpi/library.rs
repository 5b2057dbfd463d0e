//! The MPI library of the launcher, loaded when a job runs under one: a build needs no headers and no library.
//!
//! Three binary interfaces cover the libraries in use: the standard one of MPI 5.0 (`libmpi_abi.so.1`: MPICH 5, Intel
//! MPI), that of MPICH and its relatives (`libmpi.so.12`), and that of Open MPI up to 5 (`libmpi.so.40`). Handles are
//! pointers or 32-bit integers; both are passed as machine words, and a word that was 0 before holds a 32-bit result.
//! Bindings made from headers were rejected: they need libclang at build time, and bind a binary to one library.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The file of the library to load.
pub(super) const CHOICE: &str = "PELTON_MPI";
pub(super) const SUCCESS: c_int = 0;
/// Longest text of an error, in any of the interfaces.
pub(super) const LONGEST_ERROR: usize = 512;
/// The function that identifies the library.
const VERSION: &str = "MPI_Get_library_version";
/// Longest version text, in any of the interfaces.
const LONGEST_VERSION: usize = 8192;
/// The colour of ranks that join no group; the same in all interfaces.
pub(super) const UNDEFINED: c_int = -32766;

/// The status of a message, as large as the largest of the interfaces.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub(super) struct Status([c_int; 8]);

impl Status {
    /// The rank that sent the message.
    pub(super) fn source(&self) -> usize {
        self.0[library().source_at] as usize
    }
}

/// Constants of the loaded library's interface.
pub(super) struct Library {
    pub(super) comm_world: usize,
    pub(super) comm_null: usize,
    pub(super) win_null: usize,
    pub(super) request_null: usize,
    pub(super) message_null: usize,
    pub(super) info_null: usize,
    pub(super) errors_return: usize,
    pub(super) uint8: usize,
    pub(super) any_source: c_int,
    pub(super) tag_ub: c_int,
    pub(super) mode_nocheck: c_int,
    pub(super) thread_multiple: c_int,
    /// Address of `MPI_STATUS_IGNORE`.
    status_ignore: usize,
    /// Index of `MPI_SOURCE` in a status.
    source_at: usize,
    calls: Calls,
    /// The library's own version text, in one line.
    pub(super) version: String,
}

impl Library {
    pub(super) fn status_ignore(&self) -> *mut Status {
        self.status_ignore as *mut Status
    }
}

macro_rules! calls {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        #[allow(non_snake_case)]
        struct Calls { $($name: unsafe extern "C" fn($($type),*) -> c_int),* }

        impl Calls {
            /// The functions of an open library; the name of the first that it lacks.
            fn find(library: *mut c_void) -> Result<Calls, &'static str> {
                Ok(Calls { $($name: {
                    let found = symbol(library, stringify!($name)).ok_or(stringify!($name))?;
                    // SAFETY: the standard defines a function of this name with these arguments.
                    unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> c_int>(found) }
                }),* })
            }
        }

        $(
            /// # Safety
            /// As the MPI standard specifies for the function of this name.
            #[allow(non_snake_case, clippy::too_many_arguments)]
            pub(super) unsafe fn $name($($argument: $type),*) -> c_int {
                // SAFETY: the caller's promise.
                unsafe { (library().calls.$name)($($argument),*) }
            }
        )*
    };
}

calls! {
    MPI_Init_thread(argc: *mut c_int, argv: *mut *mut *mut c_char, required: c_int, provided: *mut c_int);
    MPI_Initialized(flag: *mut c_int);
    MPI_Finalize();
    MPI_Abort(comm: usize, code: c_int);
    MPI_Error_string(code: c_int, text: *mut c_char, length: *mut c_int);
    MPI_Comm_set_errhandler(comm: usize, handler: usize);
    MPI_Comm_rank(comm: usize, rank: *mut c_int);
    MPI_Comm_size(comm: usize, size: *mut c_int);
    MPI_Comm_get_attr(comm: usize, key: c_int, value: *mut c_void, found: *mut c_int);
    MPI_Comm_dup(comm: usize, new: *mut usize);
    MPI_Comm_split(comm: usize, color: c_int, key: c_int, new: *mut usize);
    MPI_Comm_free(comm: *mut usize);
    MPI_Isend(start: *const c_void, count: c_int, unit: usize, to: c_int, tag: c_int, comm: usize, request: *mut usize);
    MPI_Improbe(from: c_int, tag: c_int, comm: usize, found: *mut c_int, message: *mut usize, status: *mut Status);
    MPI_Get_count(status: *const Status, unit: usize, count: *mut c_int);
    MPI_Imrecv(start: *mut c_void, count: c_int, unit: usize, message: *mut usize, request: *mut usize);
    MPI_Test(request: *mut usize, done: *mut c_int, status: *mut Status);
    MPI_Win_allocate(size: isize, unit: c_int, info: usize, comm: usize, start: *mut c_void, win: *mut usize);
    MPI_Win_set_errhandler(win: usize, handler: usize);
    MPI_Win_lock_all(mode: c_int, win: usize);
    MPI_Win_unlock_all(win: usize);
    MPI_Win_sync(win: usize);
    MPI_Win_flush_all(win: usize);
    MPI_Win_free(win: *mut usize);
    MPI_Get(start: *mut c_void, count: c_int, unit: usize, rank: c_int, at: isize, there: c_int, their: usize, win: usize);
    MPI_Rget(start: *mut c_void, count: c_int, unit: usize, rank: c_int, at: isize, there: c_int, their: usize, win: usize, request: *mut usize);
}

static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();

/// Loads the library, once in a process.
pub(super) fn load() -> Result<&'static Library, String> {
    LIBRARY.get_or_init(find).as_ref().map_err(Clone::clone)
}

/// The library, which [`load`] has loaded.
pub(super) fn library() -> &'static Library {
    load().expect("loaded when MPI was started")
}

/// The library of the launcher that started this process.
fn find() -> Result<Library, String> {
    if let Some(path) = std::env::var_os(CHOICE) {
        return open(Path::new(&path)).map_err(|error| format!("{CHOICE}: {error}"));
    }
    let names: &[&str] = if std::env::var_os("OMPI_COMM_WORLD_SIZE").is_some() {
        &["libmpi.so.40", "libmpi_abi.so.1"]
    } else {
        &["libmpi_abi.so.1", "libmpi.so.12", "libmpi.so.40"]
    };
    // Next to the launcher, then in the system's folders.
    let folders = launcher_folders();
    let mut tried = Vec::new();
    for folder in &folders {
        let near = names.iter().map(|name| folder.join(name));
        for path in near.filter(|path| path.exists()) {
            match open(&path) {
                Ok(library) => return Ok(library),
                Err(error) => tried.push(error),
            }
        }
    }
    for name in names {
        match open(Path::new(name)) {
            Ok(library) => return Ok(library),
            Err(error) => tried.push(error),
        }
    }
    Err(format!(
        "no MPI library was found ({}); install the launcher's, or name its file in {CHOICE}",
        tried.join("; ")
    ))
}

/// The folders `lib` of the installations that may have started this process: those of the programs above it, such as
/// `hydra_pmi_proxy` and `prted`, and of the first `mpirun` in the path.
fn launcher_folders() -> Vec<PathBuf> {
    let mut programs = Vec::new();
    let mut process = Some(std::os::unix::process::parent_id());
    while let Some(parent) = process.filter(|parent| *parent > 1) {
        programs.extend(std::fs::read_link(format!("/proc/{parent}/exe")));
        process = parent_of(parent);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let first = std::env::split_paths(&path).map(|folder| folder.join("mpirun"));
    programs.extend(first.filter_map(|file| file.canonicalize().ok()).next());
    let library = |program: PathBuf| Some(program.parent()?.parent()?.join("lib"));
    let mut folders: Vec<PathBuf> = programs.into_iter().filter_map(library).collect();
    folders.dedup();
    folders
}

fn parent_of(process: u32) -> Option<u32> {
    let line = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before it may hold anything.
    let after = line.rsplit_once(')')?.1;
    after.split_whitespace().nth(1)?.parse().ok()
}

fn open(path: &Path) -> Result<Library, String> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: a name that ends in 0. Global, because Open MPI's components look for its symbols.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if handle.is_null() {
        // SAFETY: after a failure there is a text, which is copied at once.
        let text = unsafe { CStr::from_ptr(libc::dlerror()) };
        return Err(text.to_string_lossy().into_owned());
    }
    let lacks = |what: &str| format!("{} has no {what}", path.display());
    let calls = Calls::find(handle).map_err(lacks)?;
    let version = version(handle).ok_or_else(|| lacks(VERSION))?;
    let address = |name: &str| {
        let found = symbol(handle, name).map(|found| found as usize);
        found.ok_or_else(|| lacks(name))
    };
    // MPICH's own interface has the function of the standard one, too.
    let is_standard = symbol(handle, "MPI_Abi_get_version").is_some()
        && path.to_string_lossy().contains("libmpi_abi");
    if is_standard {
        return Ok(Library {
            comm_world: 0x101,
            comm_null: 0x100,
            win_null: 0x110,
            request_null: 0x180,
            message_null: 0x128,
            info_null: 0x130,
            errors_return: 0x143,
            uint8: 0x241,
            any_source: -1,
            tag_ub: 501,
            mode_nocheck: 1024,
            thread_multiple: 4096,
            status_ignore: 0,
            source_at: 0,
            calls,
            version,
        });
    }
    if symbol(handle, "ompi_mpi_comm_world").is_some() {
        return Ok(Library {
            comm_world: address("ompi_mpi_comm_world")?,
            comm_null: address("ompi_mpi_comm_null")?,
            win_null: address("ompi_mpi_win_null")?,
            request_null: address("ompi_request_null")?,
            message_null: address("ompi_message_null")?,
            info_null: address("ompi_mpi_info_null")?,
            errors_return: address("ompi_mpi_errors_return")?,
            uint8: address("ompi_mpi_uint8_t")?,
            any_source: -1,
            tag_ub: 0,
            mode_nocheck: 1,
            thread_multiple: 3,
            status_ignore: 0,
            source_at: 0,
            calls,
            version,
        });
    }
    Ok(Library {
        comm_world: 0x4400_0000,
        comm_null: 0x0400_0000,
        win_null: 0x2000_0000,
        request_null: 0x2c00_0000,
        message_null: 0x2c00_0000,
        info_null: 0x1c00_0000,
        errors_return: 0x5400_0001,
        uint8: 0x4c00_013b,
        any_source: -2,
        tag_ub: 0x6440_0001,
        mode_nocheck: 1024,
        thread_multiple: 3,
        status_ignore: 1,
        source_at: 2,
        calls,
        version,
    })
}

fn version(library: *mut c_void) -> Option<String> {
    let found = symbol(library, VERSION)?;
    // SAFETY: the standard defines a function of this name with these arguments.
    let call = unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int>(
            found,
        )
    };
    let (mut text, mut length) = ([0_u8; LONGEST_VERSION], 0);
    // SAFETY: longer than any library's longest version; the function may be called before MPI runs.
    unsafe { call(text.as_mut_ptr().cast(), &mut length) };
    let length = usize::try_from(length).map_or(0, |length| length.min(text.len()));
    let text = String::from_utf8_lossy(&text[..length]);
    let line = text.lines().next().unwrap_or_default();
    Some(line.trim_end_matches('\0').trim().to_string())
}

fn symbol(library: *mut c_void, name: &str) -> Option<*mut c_void> {
    let name = CString::new(name).ok()?;
    // SAFETY: an open library and a name that ends in 0.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}
