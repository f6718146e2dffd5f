//! `contiv migrate`

mod document;
mod plan;
#[cfg(test)]
mod tests;

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::{Args, ValueEnum};

use crate::cli::{
    Outcome, Terminal,
    output::{
        color::TextStyle,
        table::{Cell, Table},
    },
};
use plan::{Conversion, Migration};

/// Convert kube-proxy's configuration to contiv's
///
/// Prints agent.toml to standard output, and the remaining manual steps to standard error; with --check, a line for each setting
/// of kube-proxy. Writes no file but that of --write. Exit codes: 0 every setting is converted or not needed; 1 a setting must be
/// done by hand or is not known, or the configuration cannot be read; 2 wrong usage.
#[derive(Debug, Args)]
pub(crate) struct Migrate {
    #[arg(
        value_name = "FILE",
        help = "A file with a KubeProxyConfiguration, or with the ConfigMap that has it; - for standard input"
    )]
    file: PathBuf,

    /// Print how each setting is converted, instead of the result
    #[arg(long)]
    check: bool,

    /// Output format: agent.toml, or values of the Helm chart
    #[arg(short, long, value_enum, default_value_t = Form::Toml)]
    output: Form,

    /// Write the result to this file, which must not exist
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    Toml,
    Values,
}

impl Migrate {
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let migration = plan::migrate(&document::read(&self.file)?);
        let config = match self.output {
            Form::Toml => migration.agent_toml(),
            Form::Values => migration.chart_values(),
        };
        if let Some(path) = &self.write {
            let mut file = fs::File::create_new(path)
                .with_context(|| format!("failed to create {}", path.display()))?;
            file.write_all(config.as_bytes())
                .with_context(|| format!("failed to write {}", path.display()))?;
        }
        if self.check {
            write!(terminal.out, "{}", table(&migration).within(None))?;
        } else {
            if self.write.is_none() {
                terminal.out.write_all(config.as_bytes())?;
            }
            for line in migration.lines.iter().filter(|line| line.needs_attention()) {
                writeln!(
                    terminal.err,
                    "{}: {}: {}",
                    line.setting, line.conversion, line.detail
                )?;
            }
        }
        Ok(Outcome::success_if(
            !migration.lines.iter().any(plan::Line::needs_attention),
        ))
    }
}

/// Whether the text of a file has a configuration of kube-proxy.
pub(super) fn is_of_kube_proxy(text: &str) -> bool {
    let kind = format!("kind:{}", document::KIND);
    // A line of YAML or JSON, or one within a line of a `ConfigMap`; and no comment of an agent.toml.
    let mut lines = text.lines().map(str::trim_start);
    lines.any(|line| !line.starts_with('#') && line.replace(['"', '\'', ' '], "").contains(&kind))
}

/// The agent.toml for a file of kube-proxy, and what has to be done by hand.
///
/// # Errors
/// When it cannot be read.
pub(super) fn convert(file: &Path) -> anyhow::Result<(String, Vec<String>)> {
    let migration = plan::migrate(&document::read(file)?);
    let lines = migration.lines.iter().filter(|line| line.needs_attention());
    let lines = lines.map(|line| format!("{}: {}: {}", line.setting, line.conversion, line.detail));
    Ok((migration.agent_toml(), lines.collect()))
}

fn table(migration: &Migration) -> Table {
    let mut table = Table::new(&["SETTING", "VALUE", "BECOMES", "DETAIL"]);
    for line in &migration.lines {
        let style = match line.conversion {
            Conversion::Set => TextStyle::Good,
            Conversion::Same | Conversion::NotNeeded => TextStyle::Plain,
            Conversion::ByHand => TextStyle::Warning,
            Conversion::Unknown => TextStyle::Bad,
        };
        table.push(vec![
            Cell::from(line.setting.as_str()),
            Cell::from(line.value.as_deref().unwrap_or("(default)")),
            Cell::styled(line.conversion.to_string(), style),
            Cell::from(line.detail.as_str()),
        ]);
    }
    table
}
