//! Errors of text, vocabularies and sentences.

use std::borrow::Cow;

use pelton_storage::StorageError;

/// Why a text, a vocabulary or a batch of sentences is refused.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// The text, a setting or a vocabulary's content is wrong: a message that ends with the remedy.
    #[error("{0}")]
    Input(Cow<'static, str>),
    /// A file could not be opened, read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl TextError {
    #[cold]
    pub(crate) fn new(what: impl Into<Cow<'static, str>>) -> TextError {
        TextError::Input(what.into())
    }
}
