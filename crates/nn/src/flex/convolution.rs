//! Convolutions and what goes with them.
