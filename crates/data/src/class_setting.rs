//! The classes of a data set in a configuration, in order.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use pelton_format::ClassMap;
use serde::{Deserialize, Serialize};

use crate::error::DataError;

/// The classes of a data set by index, to override its own labels. Records of other classes are bad.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "`classes` is a list of names or of numbers, a file with one class a line, or a count of classes 0, 1, 2 …"
)]
pub enum ClassSetting {
    /// 0, 1, 2 … below this.
    Count(u32),
    /// A file with one class a line: names, or numbers if all lines are numbers.
    File(PathBuf),
    /// Numbers.
    Numbers(Vec<f64>),
    /// Names.
    Names(Vec<String>),
}

impl FromStr for ClassSetting {
    type Err = Infallible;

    /// A list with commas between, else a file.
    fn from_str(text: &str) -> Result<ClassSetting, Infallible> {
        if !text.contains(',') {
            return Ok(ClassSetting::File(text.into()));
        }
        Ok(ClassSetting::list(text.split(',').map(str::trim)))
    }
}

impl ClassSetting {
    /// A list of numbers if all are numbers, else of names.
    fn list<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> ClassSetting {
        let number = |text: &str| text.parse().ok().filter(|number: &f64| number.is_finite());
        match texts.clone().map(number).collect::<Option<Vec<f64>>>() {
            Some(numbers) => ClassSetting::Numbers(numbers),
            None => ClassSetting::Names(texts.map(str::to_owned).collect()),
        }
    }

    /// The class map.
    ///
    /// Errors: a file that cannot be read; no class; a class twice.
    pub(crate) fn map(&self) -> Result<ClassMap, DataError> {
        self.map_called("`classes`")
    }

    fn map_called(&self, place: &str) -> Result<ClassMap, DataError> {
        let map = match self {
            ClassSetting::Count(count) => ClassMap::counted(*count as usize),
            ClassSetting::Numbers(numbers) => ClassMap::new(numbers.clone()),
            ClassSetting::Names(names) => ClassMap::named(names.clone()),
            ClassSetting::File(file) => {
                return ClassSetting::read(file)?.map_called(&file.display().to_string());
            }
        };
        if map.is_empty() {
            return Err(DataError::Config(format!(
                "{place}: names no class; name all classes, in the order of their indices"
            )));
        }
        if map.is_count() && !map.has_names() {
            return Ok(map);
        }
        let all = 0..map.len() as u32;
        let mut all: Vec<String> = all.map(|class| map.describe(class)).collect();
        all.sort_unstable();
        match all.windows(2).find(|two| two[0] == two[1]) {
            Some(twice) => Err(DataError::Config(format!(
                "{place}: names the class {} twice; name each once",
                twice[0]
            ))),
            None => Ok(map),
        }
    }

    /// The classes listed in a file.
    fn read(file: &Path) -> Result<ClassSetting, DataError> {
        let text = pelton_storage::read_text(file).map_err(|error| {
            DataError::Config(format!(
                "`classes` {}: cannot be read ({error}); give a file with one class a line, or a list of classes",
                file.display()
            ))
        })?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        Ok(ClassSetting::list(lines))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(json: &str) -> Result<ClassMap, String> {
        let setting: ClassSetting =
            serde_json::from_str(json).map_err(|error| error.to_string())?;
        assert_eq!(
            serde_json::from_value::<ClassSetting>(serde_json::to_value(&setting).unwrap())
                .unwrap(),
            setting
        );
        setting.map().map_err(|error| error.to_string())
    }

    #[test]
    fn lists_counts_and_files() {
        let folder = tempfile::tempdir().unwrap();
        let file = |lines: &str| {
            let path = folder.path().join("classes.txt");
            std::fs::write(&path, lines).unwrap();
            of(&serde_json::to_string(&path).unwrap())
        };
        let named = |names: &[&str]| ClassMap::named(names.iter().map(|n| n.to_string()).collect());
        assert_eq!(of("[\"b\", \"a\"]").unwrap(), named(&["b", "a"]));
        assert_eq!(
            of("[3, 1.5, -2]").unwrap(),
            ClassMap::new(vec![3.0, 1.5, -2.0])
        );
        assert_eq!(of("4").unwrap(), ClassMap::counted(4));
        assert_eq!(file("b\n\n a \n").unwrap(), named(&["b", "a"]));
        assert_eq!(file("2\n1\n").unwrap(), ClassMap::new(vec![2.0, 1.0]));
        for (found, said) in [
            (of("[\"a\", \"a\"]"), "the class a twice"),
            (of("[]"), "names no class"),
            (file("\n"), "classes.txt: names no class"),
            (file("a\nb\na\n"), "classes.txt: names the class a twice"),
            (of("\"nowhere.txt\""), "nowhere.txt: cannot be read"),
            (of("[\"a\", 1]"), "a list of names or of numbers"),
        ] {
            let found = found.unwrap_err();
            assert!(found.contains(said), "{found}");
        }
    }
}
