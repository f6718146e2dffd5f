//! Numbers of things in sentences.

/// As in "1 service" and "2 services".
pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular_and_none_is_plural() {
        let texts = [0, 1, 2].map(|count| counted(count, "service"));
        assert_eq!(texts, ["0 services", "1 service", "2 services"]);
    }
}
