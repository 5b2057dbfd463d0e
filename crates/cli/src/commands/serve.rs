//! `pelton serve`

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use pelton_serve::{Limits, ServeConfig};
use pelton_train::check_range;

use crate::arguments::ServeArguments;
use crate::output::{Failure, bytes_of, model_here, print_with, with_console};

/// Serves a trained net until Ctrl-C.
pub fn serve(arguments: ServeArguments) -> Result<(), Failure> {
    check_range("timeout", arguments.timeout, 0.0..=1e9)?;
    let time = Duration::from_secs_f64(arguments.timeout);
    let config = ServeConfig {
        run: model_here(&arguments.run)?,
        host: arguments.host,
        port: arguments.port,
        exact: arguments.exact,
        top: arguments.top,
        limits: Limits {
            concurrency: arguments.concurrency,
            body_bytes: bytes_of(arguments.max_body, "--max-body")? as usize,
            time,
        },
    };
    let ready = |address: SocketAddr| {
        // If the output is closed, nobody waits for this line.
        let _ = print_with(|out| writeln!(out, "listening on http://{address}"));
    };
    let figures = with_console(|context| pelton_serve::run(&config, ready, context))?;
    print_with(|out| {
        let (queries, seconds) = (figures.queries, figures.wall_s);
        writeln!(out, "{queries} queries answered in {seconds:.1} s")
    })
}
