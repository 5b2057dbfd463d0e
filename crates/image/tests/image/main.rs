//! Pictures from outside: decoding, pipelines, masks and boxes.

mod boxes;
mod decoding;
mod masks;
mod parts;
mod pillow;
mod pipelines;
mod spelling;
mod steps;
