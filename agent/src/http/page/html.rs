//! Writing HTML: everything that is not a tag of ours is escaped.

use std::fmt::{self, Write};

const STYLE: &str = include_str!("style.css");

/// A page that grows.
pub(super) struct Page(String);

/// A text that is HTML already.
pub(super) struct Raw(pub(super) String);

/// What can stand in a cell.
pub(super) trait Cell {
    fn html(&self) -> String;
}

impl Cell for Raw {
    fn html(&self) -> String {
        self.0.clone()
    }
}

impl<T: fmt::Display> Cell for T {
    fn html(&self) -> String {
        escape(&self.to_string())
    }
}

impl Page {
    pub(super) fn new(title: &str) -> Self {
        let title = escape(title);
        Self(format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
             <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        ))
    }

    pub(super) fn heading(&mut self, text: &str) {
        self.raw(&format!("<h2>{}</h2>\n", escape(text)));
    }

    pub(super) fn paragraph(&mut self, text: &str) {
        self.raw(&format!("<p>{}</p>\n", escape(text)));
    }

    /// HTML as it is.
    pub(super) fn raw(&mut self, html: &str) {
        self.0.push_str(html);
    }

    /// A table; on narrow screens it scrolls by itself.
    pub(super) fn table(&mut self, header: &[&str], rows: &[Vec<Box<dyn Cell>>]) {
        self.raw("<div class=\"table\"><table>\n");
        if !header.is_empty() {
            self.raw("<thead><tr>");
            for title in header {
                self.raw(&format!("<th>{}</th>", escape(title)));
            }
            self.raw("</tr></thead>\n");
        }
        for row in rows {
            let mut line = String::from("<tr>");
            for cell in row {
                // Writing to text does not fail.
                let _ = write!(line, "<td>{}</td>", cell.html());
            }
            line.push_str("</tr>\n");
            self.raw(&line);
        }
        self.raw("</table></div>\n");
    }

    pub(super) fn finish(mut self) -> String {
        self.raw("</body>\n</html>\n");
        self.0
    }
}

/// A text that is good, worth a look, or bad: by colour and by itself.
pub(super) fn toned(text: &str, class: &str) -> Raw {
    Raw(format!("<span class=\"{class}\">{}</span>", escape(text)))
}

pub(super) fn escape(text: &str) -> String {
    let replacement = |character: char| match character {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&quot;".to_owned(),
        '\'' => "&#39;".to_owned(),
        other => other.to_string(),
    };
    text.chars().map(replacement).collect()
}
