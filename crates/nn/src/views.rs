//! Which examples a look at the data before training takes: a few of each class.

/// The first `most` examples of each class.
#[derive(Clone, Debug)]
pub struct Views {
    most: u8,
    /// Examples so far, by class.
    taken: Vec<u8>,
    /// Classes with `most` examples.
    full: usize,
}

impl Views {
    /// Of `classes` classes at most `most` examples each.
    pub fn new(classes: usize, most: u8) -> Views {
        let taken = vec![0; classes];
        Views {
            most,
            taken,
            full: 0,
        }
    }

    /// Whether no class takes another example.
    pub fn is_full(&self) -> bool {
        self.full == self.taken.len()
    }

    /// Whether an example of this class is taken.
    pub(crate) fn take(&mut self, class: u64) -> bool {
        let taken = &mut self.taken[class as usize];
        let is_taken = *taken < self.most;
        if is_taken {
            *taken += 1;
            self.full += usize::from(*taken == self.most);
        }
        is_taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_gives_its_first_examples() {
        let mut views = Views::new(2, 2);
        let taken = [0, 0, 1, 0, 1, 1].map(|class| (views.take(class), views.is_full()));
        let one = |taken| (taken, false);
        let expected = [
            one(true),
            one(true),
            one(true),
            one(false),
            (true, true),
            (false, true),
        ];
        assert_eq!(taken, expected);
    }
}
