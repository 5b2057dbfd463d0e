//! How ranks find one another.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pelton_comm::Comm;
use pelton_comm::tcp::{self, Job};
use pyo3::exceptions::{PyConnectionError, PyRuntimeError};
use pyo3::prelude::*;

/// How long ranks wait for one another.
const WITHIN: Duration = Duration::from_secs(120);

/// An address at which other ranks reach this one; good for being connected once.
#[pyclass(frozen, module = "pelton._pelton")]
pub(crate) struct Listener {
    ear: Mutex<Option<tcp::Listener>>,
    #[pyo3(get)]
    port: u16,
}

#[pymethods]
impl Listener {
    /// Listens at this address of the machine, on a free port.
    #[new]
    fn new(host: IpAddr) -> PyResult<Listener> {
        let ear = tcp::Listener::open(host)?;
        let port = ear.port()?;
        let ear = Mutex::new(Some(ear));
        Ok(Listener { ear, port })
    }
}

/// What ranks exchange before they are connected: listener and rank of this one, the addresses of all, and a
/// token that keeps others out.
pub(crate) type Addresses<'py> = (PyRef<'py, Listener>, usize, Vec<(IpAddr, u16)>, u128);

/// Connects all ranks; `hosts` are names of their machines for messages, or empty.
pub(crate) fn connect(
    py: Python<'_>,
    ranks: &Addresses<'_>,
    hosts: Vec<String>,
) -> PyResult<(Comm, Job)> {
    let (listener, rank, addresses, token) = ranks;
    let ear = listener.ear.lock();
    let ear = ear.unwrap_or_else(PoisonError::into_inner).take();
    let used =
        || PyRuntimeError::new_err("ranks have already listened here; create a new listener");
    let ear = ear.ok_or_else(used)?.with_hosts(hosts);
    let addresses: Vec<SocketAddr> = addresses.iter().map(|&at| at.into()).collect();
    let connected = py.detach(|| ear.connect(*rank, &addresses, *token, WITHIN));
    connected.map_err(|error| PyConnectionError::new_err(error.to_string()))
}
