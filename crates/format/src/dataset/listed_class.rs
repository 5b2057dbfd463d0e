//! Classes of records that are known without reading them: whether all are, and the class of a record from a list
//! outside the records.

use crate::dataset::Dataset;
use crate::dataset::bad_record::bad_record;
use crate::record::error::FormatError;

impl Dataset {
    /// How many labels there are, if a record may have several, in the field [`LABELS_FIELD`](crate::LABELS_FIELD).
    pub fn label_lists(&self) -> Option<u64> {
        let each = self.files().iter().map(|file| file.decoder.label_lists());
        each.collect::<Option<Vec<u64>>>()?.into_iter().max()
    }

    /// Whether a file has a class that is not among [`Dataset::labels`]: records of it cannot be decoded.
    pub fn has_unknown_class(&self) -> bool {
        self.unknown_class
    }

    /// Whether every class is listed outside the records: by the names of folders, a table, a file of labels, or the
    /// index of a tar file. Records of text, which have no class, all have class 0.
    pub fn lists_classes(&self) -> bool {
        self.files().iter().all(|file| file.decoder.lists_classes())
    }

    /// The class of record `id`, an index into [`Dataset::labels`]; `None` if the record states it. Panics unless `id`
    /// is below [`Dataset::records`].
    ///
    /// Errors: the data set does not know the class.
    pub fn listed_class(&self, id: u64) -> Result<Option<u32>, FormatError> {
        let (_, file) = self.file_of(id);
        let record = id - file.first_id;
        if !file.decoder.lists_classes() {
            return Ok(None);
        }
        let class = file.labels.listed(record);
        class
            .map(Some)
            .map_err(|fault| bad_record(file, record, fault))
    }
}
