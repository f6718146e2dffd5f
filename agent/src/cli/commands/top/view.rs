//! What the user of `contiv top` looks at: the order of services, and a part of their names. Pure.

use console::Key;

use super::rates::Order;
use crate::cli::output::keys;

/// The order and the selection of services.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct View {
    pub(super) order: Order,
    /// Only services with this text in NAMESPACE/NAME.
    pub(super) name: String,
    /// Whether keys change that text.
    is_typing: bool,
}

impl View {
    pub(super) fn new(order: Order) -> Self {
        Self {
            order,
            ..Self::default()
        }
    }

    /// Changes the view by a key. False if the key ends the command.
    pub(super) fn on_key(&mut self, key: &Key) -> bool {
        match key {
            Key::Enter if self.is_typing => self.is_typing = false,
            Key::Escape if self.is_typing => (self.is_typing, self.name) = (false, String::new()),
            Key::Backspace if self.is_typing => {
                self.name.pop();
            }
            Key::Char(character) if self.is_typing && !character.is_control() => {
                self.name.push(*character);
            }
            Key::Char('/') => self.is_typing = true,
            Key::Char('s') => self.order = self.order.next(),
            key => return !keys::ends(key),
        }
        true
    }

    /// What the keys do.
    pub(super) fn help(&self) -> String {
        let name = match (self.is_typing, self.name.as_str()) {
            (true, name) => format!("/ name: {name}_"),
            (false, "") => "/ name".to_owned(),
            (false, name) => format!("/ name: {name}"),
        };
        format!("s sorted by: {}   {name}   q quit", self.order.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_select_and_end() {
        let mut view = View::new(Order::Name);
        for key in ['s', '/', 'q', 's', 'x'] {
            assert!(view.on_key(&Key::Char(key)), "q is part of a name here");
        }
        assert!(view.on_key(&Key::Backspace));
        assert_eq!(view.help(), "s sorted by: rate   / name: qs_   q quit");
        assert!(view.on_key(&Key::Enter) && view.on_key(&Key::Char('s')));
        assert_eq!((view.order, view.name.as_str()), (Order::Connections, "qs"));
        assert!(view.on_key(&Key::Char('/')) && view.on_key(&Key::Escape));
        assert_eq!(view.help(), "s sorted by: connections   / name   q quit");
        for key in [Key::Char('q'), Key::Escape] {
            assert!(!view.clone().on_key(&key), "{key:?} ends it");
        }
        assert!(view.on_key(&Key::ArrowUp), "other keys do nothing");
    }
}
