//! Keys and region of a profile in the user's files, `~/.aws/credentials` and `~/.aws/config`.
//!
//! Read if the environment has none, as Amazon's own programs do. Profiles that refer to others, to single sign-on or
//! to a program are ignored: their keys can be put into the environment.

use std::path::PathBuf;

/// The content of a profile.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) access_key_id: Option<String>,
    pub(crate) secret_access_key: Option<String>,
    pub(crate) session_token: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) endpoint_url: Option<String>,
}

/// The profile that the environment names, or the default one.
pub(crate) fn profile() -> Profile {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let name = variable("AWS_PROFILE").unwrap_or_else(|| "default".into());
    let home = variable("HOME").map(PathBuf::from);
    let text = |named: &str, file: &str| {
        let adjacent = home.as_ref().map(|home| home.join(".aws").join(file));
        let path = variable(named).map(PathBuf::from).or(adjacent)?;
        pelton_storage::read_text(path).ok()
    };
    let mut profile = Profile::default();
    if let Some(text) = text("AWS_CONFIG_FILE", "config") {
        // In this file, the names of all but the default profile have this prefix.
        profile.read(&text, |section| {
            section == name || section.strip_prefix("profile ").map(str::trim) == Some(&*name)
        });
    }
    if let Some(text) = text("AWS_SHARED_CREDENTIALS_FILE", "credentials") {
        profile.read(&text, |section| section == name);
    }
    profile
}

impl Profile {
    /// Takes the values in the sections of a file for which `is_meant`.
    fn read(&mut self, text: &str, is_meant: impl Fn(&str) -> bool) {
        let mut meant = false;
        for line in text.lines() {
            // Indented lines belong to a nested key.
            if line.starts_with([' ', '\t', '#', ';']) {
                continue;
            }
            let line = line.trim();
            if let Some(section) = line
                .strip_prefix('[')
                .and_then(|line| line.strip_suffix(']'))
            {
                meant = is_meant(section.trim());
                continue;
            }
            let Some((key, value)) = line.split_once('=').filter(|_| meant) else {
                continue;
            };
            let place = match key.trim() {
                "aws_access_key_id" => &mut self.access_key_id,
                "aws_secret_access_key" => &mut self.secret_access_key,
                "aws_session_token" => &mut self.session_token,
                "region" => &mut self.region,
                "endpoint_url" => &mut self.endpoint_url,
                _ => continue,
            };
            *place = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_of_files() {
        let text = "# mine\n[default]\naws_access_key_id = one\naws_secret_access_key=a=b\n\n[other]\n\
                    aws_access_key_id = two\ns3 =\n  region = inner\nregion = here\nnonsense\n";
        let read = |name: &str| {
            let mut profile = Profile::default();
            profile.read(text, |section| section == name);
            profile
        };
        let default = read("default");
        assert_eq!(default.access_key_id.as_deref(), Some("one"));
        assert_eq!(default.secret_access_key.as_deref(), Some("a=b"));
        assert_eq!(default.region, None);
        let other = read("other");
        assert_eq!(other.access_key_id.as_deref(), Some("two"));
        assert_eq!(other.region.as_deref(), Some("here"));
        assert_eq!(read("none"), Profile::default());
    }
}
