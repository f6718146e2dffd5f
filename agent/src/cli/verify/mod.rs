//! `contiv verify`

mod desired;
mod progress;

use std::{collections::BTreeSet, io::Write, thread, time::Duration};

use clap::{Args, ValueEnum};
use contiv_renderer::{Confirmation, Drift, Verifier, nftables::TableVerifier, route::RouteVerifier};
use serde::Serialize;

use self::{
    desired::{Desire, Whom},
    progress::Progress,
};
use super::{Outcome, Terminal, table::Table};
use crate::config::RendererName;

/// A change may be on its way between the store and the kernel; it takes milliseconds.
const PAUSE: Duration = Duration::from_millis(300);

/// Compare the kernel with what should be there, and name every missing, foreign or different element
///
/// Asks the agent what services there are, reads the whole table (and the routes, if the agent programs any) back from the
/// kernel of this machine, and changes nothing. Needs root. Exit code 0: equal; 1: not; 2: wrong usage.
#[derive(Debug, Args)]
pub(super) struct Verify {
    /// What to print
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,

    #[command(flatten)]
    whom: Whom,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A line for each difference, for people
    Table,
    /// For programs
    Json,
}

/// How one dataplane is.
#[derive(Debug, Serialize)]
struct Verified {
    renderer: &'static str,
    /// How many things were compared.
    checked: usize,
    drift: BTreeSet<Drift>,
}

impl Verify {
    pub(super) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let (source, is_good) = self.whom.open(terminal)?;
        let Some(mut source) = source else { return Ok(Outcome::SomeBad) };
        let mut all = Vec::new();
        for renderer in source.renderers()? {
            all.extend(verify(renderer, &mut source)?);
        }
        match self.output {
            Output::Table => print(&all, terminal)?,
            Output::Json => writeln!(terminal.out, "{:#}", serde_json::to_value(&all)?)?,
        }
        Ok(Outcome::good_if(is_good && all.iter().all(|verified| verified.drift.is_empty())))
    }
}

/// Looks until nothing is wrong, or until it is confirmed. None for a renderer that programs nothing.
fn verify(renderer: RendererName, source: &mut impl Desire) -> anyhow::Result<Option<Verified>> {
    let mut verifier: Box<dyn Verifier> = match renderer {
        RendererName::NFTABLES => {
            Box::new(TableVerifier::new().with_progress(Progress::start("reading the table")))
        }
        RendererName::ROUTE => Box::new(RouteVerifier::new(source.routes()?)),
        _ => return Ok(None),
    };
    let mut confirmation = Confirmation::default();
    loop {
        let snapshot = source.snapshot()?;
        let found = verifier.verify(&snapshot)?;
        if let Some(drift) = confirmation.take(found.drift) {
            return Ok(Some(Verified { renderer: renderer.as_str(), checked: found.checked, drift }));
        }
        thread::sleep(PAUSE);
    }
}

fn print(all: &[Verified], terminal: &mut Terminal) -> anyhow::Result<()> {
    let drift: Vec<&Drift> = all.iter().flat_map(|verified| &verified.drift).collect();
    if !drift.is_empty() {
        let mut table = Table::new(&["WHAT", "SERVICE", "WHERE", "ELEMENT", "DETAIL"]);
        for Drift { service, place, element, deviation } in &drift {
            let service = service.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
            let or_none = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
            let detail = deviation.detail().to_owned();
            table.push(vec![deviation.word().to_owned(), service, place.clone(), or_none(element), detail]);
        }
        table.print(&mut terminal.out)?;
    }
    for Verified { renderer, checked, drift } in all {
        match drift.len() {
            0 => writeln!(terminal.out, "{renderer}: {checked} compared, all as it must be")?,
            count => writeln!(terminal.out, "{renderer}: {checked} compared, {count} not as they must be")?,
        }
    }
    if !drift.is_empty() {
        writeln!(
            terminal.err,
            "Something else changed it, or the agent could not: its /renderers says. POST /controller/resync makes it right."
        )?;
    }
    Ok(())
}
