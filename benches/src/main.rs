//! `contiv-bench`: measures, prints a table, writes JSON and plots. Runs in its own namespaces.

use std::{fs, path::PathBuf, time::Duration};

use clap::Parser;
use contiv_allocator as _;
use contiv_benches::{
    changes,
    cluster::{self, Scenario},
    controllers,
    figures::{Figure, Limit, Quantity, growth, table},
    fleet, flows, folder,
    machine::Machine,
    million, page, parts,
    peers::{self, forwarding},
    plot, progress, rollout, routes, runtime, why,
    workload::Workload,
};
use contiv_tests::lab::{Lab, LabError, Result, isolated_measurement};

/// The time limit of the whole run.
const TIME_LIMIT: Duration = Duration::from_secs(600);
/// The same with the largest tables, which fill an etcd with millions of keys, or take other proxies many minutes to load.
const LONG_TIME_LIMIT: Duration = Duration::from_secs(3600);

/// The sections, in the order of their measurement.
const SECTIONS: [&str; 14] = [
    parts::SECTION,
    changes::SECTION,
    cluster::SECTION,
    controllers::SECTION,
    peers::SECTION,
    forwarding::SECTION,
    routes::SECTION,
    runtime::SECTION,
    why::SECTION,
    flows::SECTION,
    rollout::SECTION,
    page::SECTION,
    million::SECTION,
    fleet::SECTION,
];

/// Measures contiv beside the kernel's floor and beside other proxies.
#[derive(Debug, Parser)]
struct Options {
    /// Fewer sizes and shorter: about a minute.
    #[arg(long)]
    quick: bool,
    /// Only this section; `million`, `rollout` and `fleet` are measured only if they are named.
    #[arg(long, value_name = "SECTION", value_parser = SECTIONS)]
    only: Option<String>,
    /// The folder for results.json and the plots.
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let is_long = options
        .only
        .as_deref()
        .is_some_and(|only| [million::SECTION, fleet::SECTION, peers::SECTION].contains(&only));
    let limit = if is_long { LONG_TIME_LIMIT } else { TIME_LIMIT };
    isolated_measurement(limit, |lab| measure(lab, &options))
}

fn measure(lab: &Lab, options: &Options) -> Result<()> {
    // Its load is that before the measurement.
    let machine = Machine::read()?;
    let mut figures = Vec::new();
    // Figures measured before a failure are reported too.
    let outcome = measure_all(lab, options, &mut figures);
    report(&machine, &figures, options).and(outcome)
}

/// The kernel's time for a cold start of 10,000 services on the reference machine of the time limits. Comparing it with the
/// measured one shows the relative speed of this machine.
const REFERENCE_COLD_START: Duration = Duration::from_millis(90);

fn measure_all(lab: &Lab, options: &Options, figures: &mut Vec<Figure>) -> Result<()> {
    let is_wanted = |section: &str| options.only.as_deref().is_none_or(|only| only == section);
    if is_wanted(parts::SECTION) {
        for services in [100, 1000, 10_000, 100_000] {
            if !(options.quick && services > 10_000) {
                progress(&format!("parts, {services} services"));
                add(figures, parts::measure(lab, services)?);
            }
        }
    }
    let flat = Limit::AtMost(Quantity::Times(2.0));
    figures.extend(growth(figures, "kernel, one replaced backend", flat));
    if is_wanted(changes::SECTION) {
        let mixed = Duration::from_secs(if options.only.is_some() { 60 } else { 20 });
        for services in [100, 1000, 10_000, 100_000] {
            if !(options.quick && services > 10_000) {
                progress(&format!("any single change, {services} services"));
                figures.extend(changes::measure(lab, services, mixed)?);
            }
        }
        figures.extend(changes::growths(figures));
    }
    if is_wanted(cluster::SECTION) {
        progress("how quick this machine is");
        let floor = parts::cold_floor(lab)?;
        let machine = Figure::new("machine", "kernel alone, cold", (10_000, 4), floor);
        add(figures, vec![machine.beside(REFERENCE_COLD_START)]);
        for scenario in scenario(options.quick) {
            let Workload { services, backends } = scenario.workload;
            progress(&format!(
                "cluster, {services} services with {backends} backends"
            ));
            add(figures, cluster::measure(lab, scenario)?);
        }
        progress("a folder of 10000 services with 3 backends");
        add(figures, folder::measure(lab)?);
    }
    if is_wanted(controllers::SECTION) && !(options.quick && options.only.is_none()) {
        progress("controllers, 5000 workloads and 10000 services");
        add(figures, controllers::measure(lab)?);
    }
    if is_wanted(peers::SECTION) {
        for services in [100, 1000, 10_000, 100_000] {
            let is_too_long = if options.quick {
                services > 1000
            } else {
                services > 10_000 && options.only.is_none()
            };
            if !is_too_long {
                progress(&format!("peers, {services} services"));
                add(figures, peers::measure(lab, services)?);
            }
        }
    }
    if is_wanted(forwarding::SECTION) {
        progress("forwarding, 100 services");
        add(figures, forwarding::measure(lab)?);
    }
    if is_wanted(routes::SECTION) {
        for services in [1000, 10_000] {
            progress(&format!("routes, {services} services"));
            add(figures, routes::measure(lab, services)?);
        }
    }
    if is_wanted(why::SECTION) {
        for services in [1000, 100_000] {
            if !(options.quick && services > 1000) {
                progress(&format!("why, {services} services"));
                add(figures, why::measure(lab, services)?);
            }
        }
    }
    if is_wanted(flows::SECTION) {
        progress("flows, 5000 new connections a second");
        add(figures, flows::measure(lab)?);
    }
    // It takes minutes.
    if options.only.as_deref() == Some(rollout::SECTION) {
        progress("rollouts, 10000 services");
        add(figures, rollout::measure(lab, options.quick)?);
    }
    if is_wanted(page::SECTION) {
        for services in [1000, 100_000] {
            if !(options.quick && services > 1000) {
                progress(&format!("page, {services} services"));
                add(figures, page::measure(lab, services)?);
            }
        }
    }
    if is_wanted(runtime::SECTION) {
        progress("runtime, 100000 keys");
        add(figures, runtime::measure()?);
    }
    if options.only.as_deref() == Some(million::SECTION) {
        figures.extend(million::measure(lab)?);
    }
    if options.only.as_deref() == Some(fleet::SECTION) {
        fleet::measure(lab, options.quick, figures)?;
    }
    for percent in ["p50", "p99"] {
        let limit = Limit::AtMost(Quantity::Times(1.2));
        figures.extend(growth(
            figures,
            &format!("first packet, contiv, {percent}"),
            limit,
        ));
    }
    Ok(())
}

/// Prints figures immediately, so that they are not lost if a later measurement hangs.
fn add(figures: &mut Vec<Figure>, measured: Vec<Figure>) {
    progress(&format!("\n{}", table(&measured)));
    figures.extend(measured);
}

/// The end-to-end measurements, with the limits that must hold.
fn scenario(quick: bool) -> Vec<Scenario> {
    let seconds = |limit| Some(Limit::AtMost(Quantity::Seconds(limit)));
    let mebibytes = |limit| Some(Limit::AtMost(Quantity::Mebibytes(limit)));
    let main = Scenario {
        section: cluster::SECTION,
        workload: Workload {
            services: 10_000,
            backends: 4,
        },
        start: seconds(0.4),
        restart: seconds(0.4),
        memory: mebibytes(50.0),
        change: [seconds(0.001), seconds(0.005)],
        list_alone: false,
        churn: Some(Duration::from_secs(if quick { 10 } else { 60 })),
        restart_under_load: true,
    };
    let many_services = Scenario {
        section: cluster::SECTION,
        workload: Workload {
            services: 100_000,
            backends: 4,
        },
        start: seconds(5.0),
        restart: seconds(5.0),
        memory: mebibytes(400.0),
        change: [seconds(0.010), None],
        list_alone: false,
        churn: None,
        restart_under_load: false,
    };
    let many_backends = Scenario {
        workload: Workload {
            services: 1000,
            backends: 1000,
        },
        change: [None, None],
        ..many_services
    };
    if quick {
        vec![main]
    } else {
        vec![main, many_services, many_backends]
    }
}

#[expect(clippy::print_stdout, reason = "this is the result")]
fn report(machine: &Machine, figures: &[Figure], options: &Options) -> Result<()> {
    println!("{machine}\n");
    // These sections have tables of their own; this one has only their figures with a limit.
    let has_own_table = |section| [changes::SECTION, fleet::SECTION].contains(&section);
    let listed = |figure: &&Figure| !has_own_table(figure.section) || figure.limit.is_some();
    println!(
        "{}",
        table(&figures.iter().filter(listed).cloned().collect::<Vec<_>>())
    );
    if figures
        .iter()
        .any(|figure| figure.section == changes::SECTION)
    {
        println!("{}", changes::matrix(figures));
    }
    let tables = fleet::tables(figures);
    if !tables.is_empty() {
        println!("{tables}");
    }
    let path = options.out.join("results.json");
    let json = serde_json::to_vec_pretty(figures)
        .map_err(|error| LabError::Unexpected(error.to_string()))?;
    fs::create_dir_all(&options.out)
        .and_then(|()| fs::write(&path, json))
        .map_err(|error| LabError::system(format!("write {}", path.display()), error))?;
    plot::draw_all(figures, &options.out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_section_is_refused() {
        let parse = |section| Options::try_parse_from(["contiv-bench", "--only", section]);
        for section in SECTIONS {
            assert_eq!(parse(section).unwrap().only.as_deref(), Some(section));
        }
        let refused = parse("part").unwrap_err().to_string();
        assert!(
            SECTIONS.iter().all(|section| refused.contains(section)),
            "{refused}"
        );
    }
}
