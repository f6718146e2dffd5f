//! Any single change, of each kind, by the number of services: what the kernel needs for it, and how long it takes from etcd's
//! acknowledgement until the kernel has it.

mod common;
mod end_to_end;
mod kernel;
mod mixed;

use std::{collections::BTreeSet, time::Duration};

use contiv_tests::lab::{Lab, Result};

use crate::{
    figures::{Figure, Limit, Quantity, growth},
    statistics::Samples,
    workload::{SingleChange, Workload},
};

pub use common::SECTION;
use common::Times;

/// At this size the times themselves have limits.
const MAX_SERVICES: usize = 100_000;

/// Measures at one size. At the largest it also makes 1,000 changes of all kinds a second, for this long.
///
/// # Errors
/// When an operation fails; slow figures are not errors.
pub fn measure(lab: &Lab, services: usize, mixed: Duration) -> Result<Vec<Figure>> {
    let workload = Workload {
        services,
        backends: 4,
    };
    let kernel = kernel::measure(lab, workload)?;
    let (end_to_end, mixed) =
        end_to_end::measure(lab, workload, (services == MAX_SERVICES).then_some(mixed))?;
    let kernel = figures("kernel", &kernel, workload, [None, Some(100e-6)]);
    let end_to_end = figures(
        "end to end",
        &end_to_end,
        workload,
        [Some(150e-6), Some(3e-3)],
    );
    Ok([kernel, end_to_end, mixed].concat())
}

fn figures(part: &str, times: &Times, workload: Workload, limits: [Option<f64>; 2]) -> Vec<Figure> {
    let size = (workload.services, workload.backends);
    let of_kind = |(kind, samples): (&SingleChange, &Samples)| {
        [50, 99]
            .into_iter()
            .zip(limits)
            .map(|(percent, limit)| {
                let figure = Figure::new(
                    SECTION,
                    name(*kind, part, percent),
                    size,
                    samples.percentile(percent),
                );
                let limit = limit.filter(|_| workload.services == MAX_SERVICES);
                limit.into_iter().fold(figure, |figure, limit| {
                    figure.with_limit(Limit::AtMost(Quantity::Seconds(limit)))
                })
            })
            .collect::<Vec<_>>()
    };
    times.iter().flat_map(of_kind).collect()
}

fn name(kind: SingleChange, part: &str, percent: usize) -> String {
    format!("{}, {part}, p{percent}", kind.name())
}

/// How much more the kernel needs with the most services than with the fewest.
pub fn growths(figures: &[Figure]) -> Vec<Figure> {
    let flat = Limit::AtMost(Quantity::Times(2.0));
    SingleChange::ALL
        .iter()
        .filter_map(|kind| growth(figures, &name(*kind, "kernel", 50), flat))
        .collect()
}

/// One row for each kind of change, a column for each size: median and 99th percentile.
pub fn matrix(figures: &[Figure]) -> String {
    let sizes: BTreeSet<usize> = figures
        .iter()
        .filter(|figure| figure.section == SECTION)
        .map(|figure| figure.services)
        .collect();
    let measured = |name: &str, services: usize| {
        let figure = figures
            .iter()
            .find(|figure| figure.name == name && figure.services == services);
        figure.map_or_else(String::new, |figure| figure.measured.to_string())
    };
    let row = |first: &str, cells: &dyn Fn(usize) -> String| {
        let cells: Vec<_> = sizes
            .iter()
            .map(|services| format!("{:>20}", cells(*services)))
            .collect();
        format!("{first:<20}{}", cells.concat())
    };
    let part = |(part, title): (&str, &str)| {
        let title = format!("any single change, {title}: p50 / p99, by the number of services");
        let of_kind = |kind: SingleChange| {
            let cell = |services| {
                [50, 99]
                    .map(|percent| measured(&name(kind, part, percent), services))
                    .join(" / ")
            };
            row(kind.name(), &cell)
        };
        let rows = SingleChange::ALL.map(of_kind).join("\n");
        format!(
            "{title}\n{}\n{rows}\n",
            row("", &|services| services.to_string())
        )
    };
    [
        ("kernel", "in the kernel"),
        ("end to end", "from etcd's acknowledgement to the commit"),
    ]
    .map(part)
    .join("\n")
}

#[cfg(test)]
mod tests {
    use super::{common::by_kind, *};

    #[test]
    fn matrix_has_a_row_for_each_kind_and_a_column_for_each_size() {
        let times = SingleChange::ALL.map(|kind| (kind, Duration::from_micros(5)));
        let sized = |services| {
            figures(
                "kernel",
                &by_kind(&times),
                Workload {
                    services,
                    backends: 4,
                },
                [None; 2],
            )
        };
        let text = matrix(&[sized(100), sized(MAX_SERVICES)].concat());
        let row = text
            .lines()
            .find(|line| line.starts_with("affinity on"))
            .unwrap();
        assert_eq!(
            row.split_whitespace().collect::<Vec<_>>().join(" "),
            "affinity on 5.00 µs / 5.00 µs 5.00 µs / 5.00 µs"
        );
        assert!(
            text.lines()
                .any(|line| line.split_whitespace().eq(["100", "100000"])),
            "{text}"
        );
    }
}
