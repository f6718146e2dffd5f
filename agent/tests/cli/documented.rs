//! The commands that documents show.

use std::{
    fs,
    path::{Path, PathBuf},
};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// A command in a document.
pub(crate) struct DocumentedCommand {
    pub(crate) place: String,
    /// The heading above it, without `#`.
    pub(crate) section: String,
    /// Without comment, `sudo` and environment variables.
    pub(crate) command: String,
    pub(crate) comment: String,
}

impl DocumentedCommand {
    fn new(place: String, section: &str, line: &str) -> Self {
        // Two spaces, so that fragments of URLs are not comments.
        let (command, comment) = line.split_once("  #").unwrap_or((line, ""));
        let mut command = command.trim();
        while let Some((setting, rest)) = command.split_once(' ')
            && setting.contains('=')
            && setting.starts_with(|c: char| c.is_ascii_uppercase())
        {
            command = rest.trim_start();
        }
        let command = match command.strip_prefix("sudo ") {
            Some(rest) if rest.starts_with("contiv ") => rest,
            _ => command,
        };
        Self {
            place,
            section: section.to_owned(),
            command: command.to_owned(),
            comment: comment.to_owned(),
        }
    }
}

/// All commands of a document. A line that ends with a backslash or a pipe is continued.
pub(crate) fn documented_commands(document: &Path) -> Vec<DocumentedCommand> {
    let name = document.strip_prefix(root()).unwrap().display();
    let text = fs::read_to_string(document).unwrap();
    let (mut language, mut section, mut begun, mut found) = (None, "", String::new(), Vec::new());
    for (number, line) in text.lines().enumerate() {
        let place = format!("{name}:{}", number + 1);
        let line = line.trim();
        match language {
            _ if line.starts_with("```") => {
                language = if language.is_none() {
                    line.strip_prefix("```")
                } else {
                    None
                };
            }
            None if line.starts_with('#') => section = line.trim_start_matches('#').trim(),
            None => {
                // The text between backticks.
                let is_command = |span: &&str| {
                    ["contiv ", "helm ", "kubectl "]
                        .iter()
                        .any(|program| span.starts_with(program))
                };
                let spans = line.split('`').skip(1).step_by(2).filter(is_command);
                found.extend(
                    spans
                        .filter_map(in_text)
                        .map(|span| DocumentedCommand::new(place.clone(), section, &span)),
                );
            }
            Some("sh") if !line.is_empty() => {
                if let Some(begin) = line
                    .strip_suffix('\\')
                    .or(line.ends_with('|').then_some(line))
                {
                    begun += begin;
                    begun.push(' ');
                } else {
                    found.push(DocumentedCommand::new(
                        place,
                        section,
                        &(std::mem::take(&mut begun) + line),
                    ));
                }
            }
            Some("console") => {
                if let Some(command) = line.strip_prefix("$ ").or(line.strip_prefix("# ")) {
                    found.push(DocumentedCommand::new(place, section, command));
                }
            }
            Some(_) => {}
        }
    }
    found
}

/// The command between backticks in a runnable form; none if it has optional parts.
fn in_text(span: &str) -> Option<String> {
    if span.contains(['[', '…']) {
        return None;
    }
    let filled = span
        .replace("NS/NAME", "shop/web")
        .replace("NAME", "web")
        .replace("FILE", "cluster.yaml");
    // It may lack arguments that the text does not mention; only its words are tested.
    Some(format!("{filled} --help"))
}
