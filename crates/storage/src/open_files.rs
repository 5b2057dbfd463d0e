//! How many files a process may have open.

/// Lets this process have `files` open at once, as far as the system allows: it gives a process a low limit, often
/// 1024, which the process itself may raise up to another. Where that is too low, opening the file too many says so.
pub fn allow_open_files(files: u64) {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Nofile);
        let (Some(now), most) = (limit.current, limit.maximum.unwrap_or(u64::MAX)) else {
            return;
        };
        if now < files && now < most {
            let raised = Rlimit {
                current: Some(files.min(most)),
                ..limit
            };
            let done = setrlimit(Resource::Nofile, raised);
            tracing::debug!(now, files, most, ?done, "limit of open files");
        }
    }
    #[cfg(not(unix))]
    let _ = files;
}
