//! Errors between ranks.

use std::fmt;
use std::net::SocketAddr;

/// Why an operation between ranks failed. Ranks are those of the whole job, also if the operation ran in a group of a
/// split.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommError {
    /// Another rank failed while this one waited for it or read its memory.
    #[error("{0}")]
    RankFailed(#[source] FailedRank),
    /// A rank has ended although this one still waits for it.
    #[error("{0}")]
    RankEnded(#[source] EndedRank),
    /// This rank panicked.
    #[error("panicked: {message}")]
    Panicked {
        /// The message of the panic.
        message: String,
    },
    /// Ranks disagree on the length of an operation's operand.
    #[error(
        "{operation} on rank {rank} expects {expected} bytes from rank {peer} and got {found}; every \
         rank must pass operands of the agreed length"
    )]
    LengthMismatch {
        /// The operation.
        operation: &'static str,
        /// The rank that noticed.
        rank: usize,
        /// The rank that differs.
        peer: usize,
        /// Bytes expected.
        expected: usize,
        /// Bytes that came.
        found: usize,
    },
    /// Ranks were given different data, settings or states to begin from.
    #[error(
        "rank {rank} has {what} {found}, but rank {other} has {expected}; give every rank the same data \
         and settings, and start again"
    )]
    RanksDiffer {
        /// A rank that differs from most.
        rank: usize,
        /// The name of the value that differs: a setting, or digested data.
        what: String,
        /// The value on that rank.
        found: String,
        /// A rank with the most common value.
        other: usize,
        /// The expected value.
        expected: String,
    },
    /// A launcher's variables contradict each other, or do not say how processes find one another.
    #[error("{reason}")]
    Launch {
        /// The variables, and the remedy.
        reason: String,
    },
    /// Not all processes of a job came to meet, or one that cannot take part did.
    #[error("{reason}")]
    Meeting {
        /// The ranks, their machines, and the remedy.
        reason: String,
    },
    /// This rank was interrupted while it waited for others to start.
    #[error("interrupted while waiting for other ranks to start")]
    Interrupted,
    /// A variable of the environment has an invalid value.
    #[error("{variable} is `{value}`; set it to a number of seconds above 0, or unset it")]
    Setting {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
    },
    /// A read reaches past the end of a rank's window.
    #[error(
        "read of {length} bytes at {offset} from the window of rank {rank}, which holds {size} bytes"
    )]
    OutOfWindow {
        /// The rank that holds the window.
        rank: usize,
        /// First byte of the read.
        offset: u64,
        /// Length of the read.
        length: usize,
        /// Bytes in the window.
        size: u64,
    },
    /// A rank number that the communicator does not have.
    #[error("there is no rank {rank}; there are {size} ranks")]
    NoSuchRank {
        /// The number given.
        rank: usize,
        /// Ranks there are.
        size: usize,
    },
    /// Memory for a window cannot be allocated.
    #[error(
        "rank {rank} cannot allocate a window of {bytes} bytes; use a smaller one or more ranks"
    )]
    WindowMemory {
        /// The rank that asked.
        rank: usize,
        /// Bytes asked for.
        bytes: usize,
    },
    /// A rank that should listen there, or connect from there, cannot be reached.
    #[error(
        "rank {rank} cannot be reached at {address} ({source}); is it running, and is that its address?"
    )]
    Unreachable {
        /// The rank.
        rank: usize,
        /// Its address.
        address: SocketAddr,
        /// The system's message.
        source: std::io::Error,
    },
    /// The MPI library refused a call.
    #[error("{call} failed on rank {rank}: {message}")]
    Mpi {
        /// The function called.
        call: &'static str,
        /// The rank that called it.
        rank: usize,
        /// The library's error code.
        code: i32,
        /// The library's text for the code.
        message: String,
    },
    /// MPI cannot be used as it is installed or started.
    #[error("MPI cannot be used: {reason}")]
    MpiUnusable {
        /// The missing part, and the remedy.
        reason: String,
    },
}

/// A rank that failed, which ended the waits of others. Found among the causes of any error that it led to.
#[derive(Clone, Debug)]
pub struct FailedRank {
    /// The rank that failed first.
    pub rank: usize,
    /// Its machine, if the job has several.
    pub host: Option<String>,
    /// Its error, or the message of its panic.
    pub reason: String,
}

impl fmt::Display for FailedRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.rank)?;
        if let Some(host) = &self.host {
            write!(f, " on {host}")?;
        }
        write!(f, " failed: {}", self.reason)
    }
}

impl std::error::Error for FailedRank {}

/// A rank that ended although another still waited for it. Found among the causes of any error that it led to.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "rank {rank} ended while rank {waiting} waited for its part of an operation; every rank must make the same calls"
)]
pub struct EndedRank {
    /// The rank that ended.
    pub rank: usize,
    /// The rank that waited.
    pub waiting: usize,
}

/// How a job of several ranks failed: a rank and its error. Among threads it is the rank that failed
/// first; a process of an MPI job speaks for itself.
#[derive(Debug)]
pub struct RankError<E> {
    /// The rank that returned the error.
    pub rank: usize,
    /// The error of that rank's job.
    pub source: E,
}

impl<E: fmt::Display> fmt::Display for RankError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}: {}", self.rank, self.source)
    }
}

impl<E: std::error::Error + 'static> std::error::Error for RankError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
