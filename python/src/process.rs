//! Values that belong to the process that made them.

use std::ops::Deref;

/// A value with threads or connections of its process. A forked process has neither, and must not drop the
/// value: closing connections there would close them for the parent too.
pub(crate) struct OfProcess<T> {
    /// Present until it is dropped.
    value: Option<T>,
    process: u32,
}

impl<T> OfProcess<T> {
    pub(crate) fn new(value: T) -> OfProcess<T> {
        OfProcess {
            value: Some(value),
            process: std::process::id(),
        }
    }

    /// Whether this process made it.
    pub(crate) fn is_own(&self) -> bool {
        self.process == std::process::id()
    }
}

impl<T> Deref for OfProcess<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("present until it is dropped")
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if !self.is_own() {
            std::mem::forget(self.value.take());
        }
    }
}
