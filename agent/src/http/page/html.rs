//! HTML output: everything except our own tags is escaped.

use std::fmt::{self, Write};

const STYLE: &str = include_str!("style.css");

/// A page under construction.
pub(super) struct Page {
    title: String,
    headings: Vec<String>,
    body: String,
}

/// Text that is HTML already.
pub(super) struct Raw(pub(super) String);

/// A value of a cell.
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
        Self {
            title: escape(title),
            headings: Vec::new(),
            body: String::new(),
        }
    }

    pub(super) fn heading(&mut self, text: &str) {
        let text = escape(text);
        self.headings.push(text.clone());
        let number = self.headings.len();
        self.raw(&format!("<h2 id=\"part-{number}\">{text}</h2>\n"));
    }

    pub(super) fn paragraph(&mut self, text: &str) {
        self.raw(&format!("<p>{}</p>\n", escape(text)));
    }

    /// Adds HTML unchanged.
    pub(super) fn raw(&mut self, html: &str) {
        self.body.push_str(html);
    }

    /// A table; on narrow screens it scrolls by itself.
    pub(super) fn table(&mut self, header: &[&str], rows: &[Vec<Box<dyn Cell>>]) {
        // Without a header it is a list of facts, which may wrap.
        let class = if header.is_empty() {
            "table facts"
        } else {
            "table"
        };
        self.raw(&format!("<div class=\"{class}\"><table>\n"));
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
                // Writing to a `String` cannot fail.
                let _ = write!(line, "<td>{}</td>", cell.html());
            }
            line.push_str("</tr>\n");
            self.raw(&line);
        }
        self.raw("</table></div>\n");
    }

    /// The complete page, with links to its headings at the top.
    pub(super) fn finish(self) -> String {
        let Self {
            title,
            headings,
            body,
        } = self;
        let link = |(number, text): (usize, &String)| {
            format!("<a href=\"#part-{}\">{text}</a>\n", number + 1)
        };
        let links: String = headings.iter().enumerate().map(link).collect();
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
             <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<nav>\n{links}</nav>\n{body}</body>\n</html>\n"
        )
    }
}

/// A text that is good, needs attention, or is bad: marked by colour.
pub(super) fn colored(text: &str, class: &str) -> Raw {
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
