//! The document with the results: a section for each group.

use std::{
    env,
    fmt::Write,
    fs::{self, File},
    path::PathBuf,
};

use contiv_tests::lab::{LabError, Result};

/// How good an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rating {
    /// It names the cause.
    Right,
    /// It names another cause first, and the right one beside it.
    Partly,
    /// It names no cause.
    Missed,
    /// It names another cause.
    Misleading,
}

impl Rating {
    const fn text(self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::Partly => "partly",
            Self::Missed => "missed",
            Self::Misleading => "misleading",
        }
    }
}

/// The result of a fault.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) fault: String,
    pub(super) expert: String,
    /// The code of the cause; empty if none was named.
    pub(super) named: String,
    pub(super) rating: Rating,
}

fn document() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/proof/faults.md")
}

fn table(rows: &[Row]) -> String {
    let mut table = "| fault | an expert says | named | |\n|---|---|---|---|\n".to_owned();
    for Row {
        fault,
        expert,
        named,
        rating,
    } in rows
    {
        let named = if named.is_empty() {
            "nothing".to_owned()
        } else {
            format!("`{named}`")
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            table,
            "| {fault} | {expert} | {named} | {} |",
            rating.text()
        );
    }
    let count = |rating| rows.iter().filter(|row| row.rating == rating).count();
    let _ = writeln!(
        table,
        "\n{} of {} right, {} partly, {} missed, {} misleading",
        count(Rating::Right),
        rows.len(),
        count(Rating::Partly),
        count(Rating::Missed),
        count(Rating::Misleading)
    );
    table
}

/// Compares the ratings in the section of a group with the results, or writes the section with `CONTIV_UPDATE_GOLDENS=1`. Which of
/// several right causes is named may vary.
pub(super) fn check_section(title: &str, rows: &[Row]) -> Result<()> {
    let failed = |error| LabError::system("read or write docs/proof/faults.md", error);
    let table = table(rows);
    if env::var_os("CONTIV_UPDATE_GOLDENS").is_none() {
        let text = fs::read_to_string(document()).map_err(failed)?;
        return compare(section(&text, title)?, rows).map_err(|differences| {
            LabError::Unexpected(format!(
                "the section {title} of docs/proof/faults.md differs; CONTIV_UPDATE_GOLDENS=1 writes it:\n{differences}"
            ))
        });
    }
    // Groups run at the same time.
    let lock = File::create(env::temp_dir().join("contiv-faults.lock")).map_err(failed)?;
    lock.lock().map_err(failed)?;
    let text = fs::read_to_string(document()).map_err(failed)?;
    let with_section = replace(&text, title, &table)?;
    let updated = replace(&with_section, "total", &total(&with_section))?;
    fs::write(document(), updated).map_err(failed)
}

/// Whether a section has exactly these faults, rated so; else what differs.
fn compare(section: &str, rows: &[Row]) -> std::result::Result<(), String> {
    let of_section = section.lines().filter(|line| line.ends_with(" |")).skip(1);
    let mut differences: Vec<String> = of_section
        .zip(rows)
        .filter(|(line, row)| {
            !line.starts_with(&format!("| {} | {} |", row.fault, row.expert))
                || !line.ends_with(&format!("| {} |", row.rating.text()))
        })
        .map(|(line, row)| {
            format!(
                "{line}\nnow {}, {}: {}",
                row.fault,
                row.rating.text(),
                row.named
            )
        })
        .collect();
    let count = section.lines().filter(|line| line.ends_with(" |")).count();
    if count != rows.len() + 1 {
        differences.push(format!(
            "{count} rows with the title, {} faults",
            rows.len()
        ));
    }
    if differences.is_empty() {
        Ok(())
    } else {
        Err(differences.join("\n"))
    }
}

/// A section of the document.
fn section<'a>(text: &'a str, title: &str) -> Result<&'a str> {
    let [begin, end] = ["begin", "end"].map(|word| format!("<!-- {word} {title} -->\n"));
    text.split_once(&begin)
        .and_then(|(_, rest)| Some(rest.split_once(&end)?.0))
        .ok_or_else(|| LabError::Unexpected(format!("docs/proof/faults.md has no section {title}")))
}

/// The document with another section.
fn replace(text: &str, title: &str, section: &str) -> Result<String> {
    let old = self::section(text, title)?;
    let [begin, end] = ["begin", "end"].map(|word| format!("<!-- {word} {title} -->\n"));
    Ok(text.replace(
        &format!("{begin}{old}{end}"),
        &format!("{begin}{section}{end}"),
    ))
}

/// The sum of all sections: their rows by the last column.
fn total(text: &str) -> String {
    let count = |rating: Rating| {
        let end = format!("| {} |", rating.text());
        text.lines().filter(|line| line.ends_with(&end)).count()
    };
    let [right, partly, missed, misleading] = [
        Rating::Right,
        Rating::Partly,
        Rating::Missed,
        Rating::Misleading,
    ]
    .map(count);
    let all = right + partly + missed + misleading;
    format!(
        "Of {all} faults: {right} right, {partly} partly, {missed} missed, {misleading} misleading\n"
    )
}
