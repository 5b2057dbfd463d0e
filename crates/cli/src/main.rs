//! The pelton command.
fn main() {}
