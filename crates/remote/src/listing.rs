//! The files of a bucket that match a pattern.
//!
//! Folders are listed one after another, and only those that the pattern's parts match: listing everything below the
//! first folder with a wildcard, as stores offer too, would fetch the names of every file in every neighbouring
//! folder.

use std::sync::Arc;
use std::time::Duration;

use glob::{MatchOptions, Pattern};
use object_store::ObjectStore;
use object_store::path::Path;
use pelton_storage::StorageError;
use tokio::time::timeout;

use crate::address::{Address, wrong};
use crate::attempts::{Limits, again};
use crate::failure::Failure;
use crate::runtime::wait_for;

/// Longest time to list a folder.
const LISTING: Duration = Duration::from_secs(300);

/// The files that match the path of an address, which is a pattern; messages call it `shown`.
pub(crate) fn matching(
    address: &Address,
    shown: &str,
    limits: &Limits,
) -> Result<Vec<String>, StorageError> {
    let parts: Vec<&str> = address.path.split('/').collect();
    // Matches of the parts so far; in the end, files.
    let mut found = vec![String::new()];
    for (number, part) in parts.iter().enumerate() {
        let is_last = number + 1 == parts.len();
        // The last part is checked even if it is a plain name: not every folder contains it.
        if !is_last && !part.contains(['*', '?', '[']) {
            for folder in &mut found {
                *folder = joined(folder, part);
            }
            continue;
        }
        let pattern = Pattern::new(part).map_err(|error| {
            wrong(
                shown,
                format!("it is not a pattern ({error})"),
                "write a bracket as [[]",
            )
        })?;
        let options = MatchOptions {
            require_literal_leading_dot: true,
            ..MatchOptions::new()
        };
        for folder in std::mem::take(&mut found) {
            let names = wait_for(
                shown,
                &limits.interrupt,
                list(&address.store, &folder, is_last, shown, limits),
            )?;
            let matching = names
                .into_iter()
                .filter(|name| pattern.matches_with(name, options));
            found.extend(matching.map(|name| joined(&folder, &name)));
        }
    }
    found.sort_unstable();
    if found.is_empty() {
        Err(wrong(
            shown,
            "no file matches the pattern",
            "check it and the folder",
        ))
    } else {
        Ok(found
            .into_iter()
            .map(|path| address.root.clone() + &path)
            .collect())
    }
}

fn joined(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        name.to_owned()
    } else {
        format!("{folder}/{name}")
    }
}

/// Names of the files of a folder, or of its folders.
async fn list(
    store: &Arc<dyn ObjectStore>,
    folder: &str,
    files: bool,
    shown: &str,
    limits: &Limits,
) -> Result<Vec<String>, StorageError> {
    let prefix = Path::parse(folder).map_err(|error| {
        wrong(
            shown,
            format!("a folder cannot be listed ({error})"),
            "check the name",
        )
    })?;
    let prefix = (!folder.is_empty()).then_some(&prefix);
    let attempt = async || match timeout(LISTING, store.list_with_delimiter(prefix)).await {
        Ok(Ok(listed)) => Ok(listed),
        Ok(Err(error)) => Err(Failure::from_error(&error)),
        Err(_) => Err(Failure::passing("its list did not come")),
    };
    let listed = again(limits, shown, None, LISTING, attempt).await?;
    let name = |path: &Path| path.filename().map(str::to_owned);
    Ok(if files {
        listed
            .objects
            .iter()
            .filter_map(|object| name(&object.location))
            .collect()
    } else {
        listed.common_prefixes.iter().filter_map(name).collect()
    })
}
