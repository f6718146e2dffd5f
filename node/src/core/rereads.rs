//! Values that cannot be used are read once more: a single message of the store may have been wrong. Pure.

use std::collections::BTreeSet;

/// At most so many keys are read again at once. More are no accident of a message.
const MAX_KEYS: usize = 100;

/// The keys that are being read again.
#[derive(Debug, Default)]
pub(super) struct Rereads(BTreeSet<String>);

impl Rereads {
    /// After values of these keys, of which `bad` cannot be used: those that are to be read again. The second answer counts.
    pub(super) fn after<'a>(
        &mut self,
        keys: impl IntoIterator<Item = &'a str>,
        bad: impl IntoIterator<Item = &'a str>,
    ) -> Option<BTreeSet<String>> {
        let answered: BTreeSet<&str> = keys
            .into_iter()
            .filter(|key| self.0.contains(*key))
            .collect();
        let new = bad.into_iter().filter(|key| !answered.contains(key));
        let new: BTreeSet<String> = new.map(str::to_owned).collect();
        self.0.retain(|key| !answered.contains(key.as_str()));
        if new.is_empty() || new.len() > MAX_KEYS {
            return None;
        }
        self.0.extend(new.iter().cloned());
        Some(new)
    }

    /// The store is listed: what is being read again may be older.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(key: &str) -> BTreeSet<String> {
        [key.to_owned()].into()
    }

    #[test]
    fn bad_value_is_read_again_once_for_each_time_it_comes() {
        let mut rereads = Rereads::default();
        assert_eq!(rereads.after(["/a", "/b"], ["/a"]), Some(only("/a")));
        assert_eq!(rereads.after(["/a"], ["/a"]), None, "the second answer");
        assert_eq!(
            rereads.after(["/a"], ["/a"]),
            Some(only("/a")),
            "another value"
        );
        assert_eq!(rereads.after(["/a"], []), None);
        assert_eq!(rereads.after(["/a"], ["/a"]), Some(only("/a")));
    }

    #[test]
    fn many_bad_values_are_no_accident() {
        let mut rereads = Rereads::default();
        let many: Vec<String> = (0..=MAX_KEYS).map(|number| format!("/{number}")).collect();
        let many = || many.iter().map(String::as_str);
        assert_eq!(rereads.after(many(), many()), None);
        assert!(rereads.after(many().skip(1), many().skip(1)).is_some());
    }
}
