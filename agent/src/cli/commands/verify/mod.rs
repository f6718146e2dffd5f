//! `contiv verify`

mod desired;
mod kube_proxy;
mod stored;

use std::{collections::BTreeSet, io::Write, thread, time::Duration};

use clap::{Args, ValueEnum};
use contiv_renderer::{
    Confirmation, Drift, Verifier, nftables::TableVerifier, route::RouteVerifier,
};
use serde::Serialize;
use serde_json::Value;

use self::desired::{DesiredStateSource, VerifyTarget};
use crate::cli::{
    Outcome, Terminal,
    output::{
        color::TextStyle,
        listing::{Item, Listing, Output},
        progress::Progress,
        table::Cell,
        table_options::TableOptions,
        watch::width,
    },
    source::nft,
};
use crate::config::RendererName;

/// A change may be in progress between the store and the kernel; it takes milliseconds.
const COMPARISON_INTERVAL: Duration = Duration::from_millis(300);

/// Compare the kernel with the desired state, and list every missing, foreign or different element
///
/// With --store and no URL: compare the agent's objects with its store instead, at one revision.
///
/// With --against kube-proxy: compare what contiv would do with what kube-proxy's rules on this node do, before they are exchanged.
/// New connections to every frontend of either, from pods, from the node and from elsewhere: verdict, backends, masquerade, affinity.
/// With --store and --node-name it needs no agent.
///
/// Asks the agent for its services, reads the whole table (and the routes, if the agent programs any) back from the kernel of
/// this machine, and changes nothing. Needs root; --nft needs the program nft. Exit codes: 0 equal; 1 different, or unknown; 2
/// wrong usage.
#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// Output format; wide cuts nothing, name is the services that something is wrong with
    #[arg(short, long, default_value = "table")]
    output: Output,

    #[command(flatten)]
    table: TableOptions,

    /// Read the table a second time by the program nft, and list where contiv's own reader and nft differ
    #[arg(long)]
    nft: bool,

    /// Compare with the rules of another proxy on this node, and not with contiv's own
    #[arg(long, value_enum, value_name = "PROXY", conflicts_with = "nft")]
    against: Option<OtherProxy>,

    #[command(flatten)]
    target: VerifyTarget,
}

/// A proxy whose rules can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OtherProxy {
    /// Kubernetes' own, in its mode nftables, or in its mode iptables with an iptables of nftables
    KubeProxy,
}

/// The result for one dataplane.
#[derive(Debug, Clone, Serialize)]
struct DataplaneReport {
    renderer: &'static str,
    /// The number of compared elements, chains, rules and routes.
    checked: usize,
    drift: BTreeSet<Drift>,
}

impl Verify {
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        if let Some(OtherProxy::KubeProxy) = self.against {
            return kube_proxy::run(&self.target, &self.output, &self.table, terminal);
        }
        if let Some(comparison) = self.target.store_comparison()? {
            return comparison.run(&self.output, &self.table, terminal);
        }
        let (source, is_good) = self.target.open(terminal)?;
        let Some(mut source) = source else {
            return Ok(Outcome::PartialFailure);
        };
        let mut all = Vec::new();
        let renderers = source.renderers()?;
        for renderer in &renderers {
            all.extend(verify(*renderer, &mut source)?);
        }
        let has_table = renderers.contains(&RendererName::NFTABLES);
        if self.nft && !has_table {
            writeln!(
                terminal.err,
                "--nft: the renderer nftables does not run, so there is no table to compare"
            )?;
        }
        let second = (self.nft && has_table).then(compare_with_nft).transpose();
        if let Ok(report) = &second {
            all.extend(report.clone());
        }
        self.print(&all, terminal)?;
        // The comparison without nft is shown even if nft failed.
        second?;
        Ok(Outcome::success_if(
            is_good && all.iter().all(|verified| verified.drift.is_empty()),
        ))
    }

    fn print(&self, all: &[DataplaneReport], terminal: &mut Terminal) -> anyhow::Result<()> {
        match &self.output {
            Output::Table | Output::Wide => (),
            Output::Data(format) => {
                let text = format.print(serde_json::to_value(all)?, self.table.no_headers)?;
                write!(terminal.out, "{text}")?;
            }
            Output::Name => {
                let drift = all.iter().flat_map(|verified| &verified.drift);
                let services: BTreeSet<_> =
                    drift.filter_map(|drift| drift.service.as_ref()).collect();
                services
                    .iter()
                    .try_for_each(|service| writeln!(terminal.out, "{service}"))?;
            }
        }
        if !self.output.is_table() {
            return Ok(());
        }
        let header = ["WHAT", "SERVICE", "WHERE", "ELEMENT", "DETAIL"].to_vec();
        let items: Vec<Item> = all
            .iter()
            .flat_map(|verified| &verified.drift)
            .map(item)
            .collect();
        let listing = Listing {
            header: (header, Vec::new()),
            items,
        };
        write!(
            terminal.out,
            "{}",
            listing.print(&self.output, &self.table, width(), false)?
        )?;
        for DataplaneReport {
            renderer,
            checked,
            drift,
        } in all
        {
            let (equal, different) = match *renderer {
                nft::NAME => ("read the same by nft", "read differently by nft"),
                _ => ("all equal", "different"),
            };
            match drift.len() {
                0 => writeln!(terminal.out, "{renderer}: {checked} compared, {equal}")?,
                count => writeln!(
                    terminal.out,
                    "{renderer}: {checked} compared, {count} {different}"
                )?,
            }
        }
        let (of_nft, of_dataplanes): (Vec<_>, Vec<_>) = all
            .iter()
            .filter(|report| !report.drift.is_empty())
            .partition(|report| report.renderer == nft::NAME);
        if !of_dataplanes.is_empty() {
            writeln!(
                terminal.err,
                "Another program changed it, or the agent failed to: see its /renderers. `contiv resync` repairs it."
            )?;
        }
        if !of_nft.is_empty() {
            writeln!(
                terminal.err,
                "contiv and nft read the same table otherwise: it holds an object that contiv does not know, or one of them \
                 is mistaken. Remove such an object, else report it with the archive of `contiv support-bundle`."
            )?;
        }
        Ok(())
    }
}

/// Compares what contiv reads with what nft lists, likewise until it is confirmed.
fn compare_with_nft() -> anyhow::Result<DataplaneReport> {
    let mut confirmation = Confirmation::default();
    loop {
        let found = nft::compare_once()?;
        if let Some(drift) = confirmation.add(found.drift, false) {
            return Ok(DataplaneReport {
                renderer: nft::NAME,
                checked: found.checked,
                drift,
            });
        }
        thread::sleep(COMPARISON_INTERVAL);
    }
}

/// Compares until there is no difference, or until it is confirmed. None for a renderer that programs nothing.
fn verify(
    renderer: RendererName,
    source: &mut impl DesiredStateSource,
) -> anyhow::Result<Option<DataplaneReport>> {
    let mut verifier: Box<dyn Verifier> = match renderer {
        RendererName::NFTABLES => {
            let progress = Progress::for_elements();
            let on_progress = move |read, expected| progress.set(read, expected);
            Box::new(TableVerifier::new().with_progress(Box::new(on_progress)))
        }
        RendererName::ROUTE => Box::new(RouteVerifier::new(source.routes()?)),
        _ => return Ok(None),
    };
    let mut confirmation = Confirmation::default();
    loop {
        let snapshot = source.snapshot()?;
        let found = verifier.verify(&snapshot)?;
        if let Some(drift) = confirmation.add(found.drift, false) {
            return Ok(Some(DataplaneReport {
                renderer: renderer.as_str(),
                checked: found.checked,
                drift,
            }));
        }
        thread::sleep(COMPARISON_INTERVAL);
    }
}

fn item(drift: &Drift) -> Item {
    let Drift {
        service,
        place,
        element,
        deviation,
    } = drift;
    let or_none = |text: &str| {
        if text.is_empty() {
            "-".to_owned()
        } else {
            text.to_owned()
        }
    };
    let service = service
        .as_ref()
        .map_or_else(|| "-".to_owned(), ToString::to_string);
    let cells = vec![
        Cell::styled(deviation.word(), TextStyle::Bad),
        service.clone().into(),
        place.clone().into(),
        or_none(element).into(),
        deviation.detail().into(),
    ];
    Item {
        name: service,
        value: Value::Null,
        cells: (cells, Vec::new()),
    }
}
