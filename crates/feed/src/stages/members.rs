//! The bytes of a record that a stage works on: all of them, or those of one member of a tar sample.

use std::any::Any;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use pelton_batch::{DType, FieldSpec, FieldSpecs};

use super::{BYTES, MEMBERS, TEXT};
use crate::sample::{Sample, Value};
use crate::stage::{Appearance, Slots, Stage, StageFailure};

/// A record, or one member of it.
pub(crate) struct Record<'a> {
    bytes: Cow<'a, [u8]>,
    wanted: Range<usize>,
}

impl<'a> Record<'a> {
    /// All of these bytes.
    pub fn whole(bytes: Cow<'a, [u8]>) -> Record<'a> {
        let wanted = 0..bytes.len();
        Record { bytes, wanted }
    }

    /// The requested bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.wanted.clone()]
    }
}

/// Takes the record out of a sample: bytes or text whole, of a tar sample the first member with one of these
/// extensions. `None` if the sample holds something else.
pub(crate) fn take_record<'a>(
    sample: &mut Sample<'a>,
    extensions: &[String],
) -> Result<Option<Record<'a>>, String> {
    let whole = [BYTES, TEXT].iter().find_map(|name| sample.remove(name));
    if let Some(Value::Bytes(bytes)) = whole {
        return Ok(Some(Record::whole(bytes)));
    }
    let Some(Value::Bytes(bytes)) = sample.remove(MEMBERS) else {
        return Ok(None);
    };
    let wanted = member_of(&bytes, extensions)?;
    Ok(Some(Record { bytes, wanted }))
}

/// The position of the requested member.
fn member_of(group: &[u8], extensions: &[String]) -> Result<Range<usize>, String> {
    let is_wanted =
        |member: &pelton_format::Member<'_>| extensions.iter().any(|wanted| member.is(wanted));
    if let Some(member) = pelton_format::members(group).find(is_wanted) {
        let start = member.bytes.as_ptr().addr() - group.as_ptr().addr();
        return Ok(start..start + member.bytes.len());
    }
    let there: Vec<String> = pelton_format::members(group)
        .take(8)
        .map(|member| format!(".{}", member.extension_text()))
        .collect();
    Err(format!(
        "the sample has no member .{}; it has {}",
        extensions.join(" or ."),
        there.join(", ")
    ))
}

/// Refuses fields without a record of bytes, for a stage that needs one.
pub(crate) fn check_record(fields: &FieldSpecs, wants: &str) -> Result<(), String> {
    let there = [BYTES, TEXT, MEMBERS]
        .iter()
        .any(|name| fields.get(name).is_some());
    if there {
        Ok(())
    } else {
        Err(format!(
            "{wants} needs records of bytes, and this data has {}; leave `decode` out",
            fields.names()
        ))
    }
}

/// Takes the bytes of one member of a tar sample, as a field of its name.
pub struct TakeMember {
    extensions: Vec<String>,
    name: Arc<str>,
}

impl TakeMember {
    /// The first member with this extension, written without its dot.
    pub fn from_extension(extension: &str) -> TakeMember {
        TakeMember {
            extensions: vec![extension.to_owned()],
            name: extension.into(),
        }
    }
}

impl Stage for TakeMember {
    fn name(&self) -> &'static str {
        "decode"
    }

    fn spec(&self, input: FieldSpecs) -> Result<FieldSpecs, String> {
        if input.get(MEMBERS).is_none() {
            return Err(format!(
                "`decode` member needs tar samples, and this data has {}; give a tar file, or leave it out",
                input.names()
            ));
        }
        let field = FieldSpec::new(&self.name, DType::U8, &[None]);
        Ok(FieldSpecs(vec![field]))
    }

    fn run(
        &self,
        sample: &mut Sample<'_>,
        _: &mut Slots<'_>,
        _: &Appearance,
        _: &mut dyn Any,
    ) -> Result<(), StageFailure> {
        if let Some(record) = take_record(sample, &self.extensions)? {
            let value = match record.bytes {
                Cow::Borrowed(bytes) => Value::Bytes(Cow::Borrowed(&bytes[record.wanted])),
                Cow::Owned(bytes) => Value::from(bytes[record.wanted].to_vec()),
            };
            sample.set(&self.name, value);
        }
        Ok(())
    }
}
