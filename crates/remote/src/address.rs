//! Parses addresses, and describes invalid ones.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;

use object_store::ObjectStore;
use pelton_storage::{StorageError, StorageErrorKind, shown_address};

/// An address in parts.
pub(crate) struct Address {
    pub(crate) store: Arc<dyn ObjectStore>,
    /// The file or folder within the store; empty for a file of a web server, which is a store of its own.
    pub(crate) path: String,
    /// The part before the path.
    pub(crate) root: String,
}

/// The secrets of addresses, by name: the address without its secrets.
#[derive(Default)]
pub(crate) struct Secrets {
    addresses: HashMap<String, String>,
    /// User and password of a server.
    users: HashMap<String, String>,
}

impl Secrets {
    /// The name that stands for an address from now on. Addresses that differ only in secrets or query get numbers.
    pub(crate) fn name(&mut self, url: &str) -> String {
        let shown = shown_address(url);
        if let Some((user, _)) = server_of(url).1.rsplit_once('@')
            && shown != url
        {
            let server = format!("{}{}", server_of(&shown).0, server_of(&shown).1);
            self.users.insert(server, user.to_owned());
        }
        let mut name = shown.clone().into_owned();
        let mut number = 1;
        while self.addresses.get(&name).is_some_and(|known| known != url) {
            number += 1;
            name = format!("{shown}#{number}");
        }
        self.addresses.insert(name.clone(), url.to_owned());
        name
    }

    /// The address that a name stands for; unknown names get the user of their server.
    pub(crate) fn address(&self, name: &str) -> String {
        if let Some(url) = self.addresses.get(name) {
            return url.clone();
        }
        let (scheme, server) = server_of(name);
        match self.users.get(&name[..scheme.len() + server.len()]) {
            Some(user) => format!("{scheme}{user}@{}", &name[scheme.len()..]),
            None => name.to_owned(),
        }
    }
}

/// The parts `https://` and `user@host:80` of an address.
fn server_of(url: &str) -> (&str, &str) {
    let (scheme, rest) = url.split_at(url.find("://").map_or(0, |at| at + 3));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    (scheme, &rest[..end])
}

/// An address that cannot be used.
pub(crate) fn wrong(url: &str, what: impl Display, remedy: &str) -> StorageError {
    let kind = StorageErrorKind::Remote { lasts: true };
    StorageError::new(kind, url, format!("{what}; {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_for_addresses() {
        let mut secrets = Secrets::default();
        for (url, name) in [
            ("https://u:p@h/a.tar?sig=1", "https://h/a.tar"),
            ("https://u:p@h/a.tar?sig=2", "https://h/a.tar#2"),
            ("https://u:p@h/a.tar?sig=1", "https://h/a.tar"),
            ("https://h/a.tar", "https://h/a.tar#3"),
            ("s3://b/a", "s3://b/a"),
        ] {
            assert_eq!(secrets.name(url), name);
            assert_eq!(secrets.address(name), url);
        }
        // A file that another one names.
        assert_eq!(secrets.address("https://h/b"), "https://u:p@h/b");
        assert_eq!(secrets.address("https://h2/b"), "https://h2/b");
    }
}
