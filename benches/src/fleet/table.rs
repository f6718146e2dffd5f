//! Figures of a fleet as tables: a row for each quantity, a column for each size. Not wider than 80 columns.

use std::fmt::Write;

use super::scenario::SECTION;
use crate::figures::Figure;

/// How names of figures begin that are of agents without anything saved, and of agents that start again.
pub(super) const START: &str = "agents start, ";
pub(super) const RESTART: &str = "agents restart, ";

/// The width of the first column, and of each other one.
const NAME_WIDTH: usize = 41;
const CELL_WIDTH: usize = 13;

/// All figures of this section: the watchers of each topology, then the agents.
pub fn tables(figures: &[Figure]) -> String {
    let of_section = || figures.iter().filter(|figure| figure.section == SECTION);
    let is_of_agents = |figure: &&Figure| {
        [START, RESTART]
            .iter()
            .any(|start| figure.name.starts_with(start))
    };
    let watchers: Vec<&Figure> = of_section()
        .filter(|figure| !is_of_agents(figure))
        .collect();
    let mut tables: Vec<String> = distinct(watchers.iter().map(|figure| figure.backends))
        .into_iter()
        .map(|proxies| of_watchers(&watchers, proxies))
        .collect();
    let agents: Vec<&Figure> = of_section().filter(is_of_agents).collect();
    if let Some(figure) = agents.first() {
        tables.push(of_agents(&agents, figure.services));
    }
    tables.join("\n")
}

/// A column for each number of watchers.
fn of_watchers(figures: &[&Figure], proxies: usize) -> String {
    let figures: Vec<&&Figure> = figures
        .iter()
        .filter(|figure| figure.backends == proxies)
        .collect();
    let sizes = distinct(figures.iter().map(|figure| figure.services));
    let names = distinct(figures.iter().map(|figure| figure.name.as_str()));
    let row = |name: &str| {
        let cell = |size: &usize| {
            let figure = figures
                .iter()
                .find(|figure| figure.name == name && figure.services == *size);
            figure.map_or_else(String::new, |figure| figure.measured.to_string())
        };
        (name.to_owned(), sizes.iter().map(cell).collect())
    };
    let title = match proxies {
        0 => "watchers, directly at etcd".to_owned(),
        1 => "watchers, behind one etcd grpc-proxy".to_owned(),
        _ => format!("watchers, behind {proxies} etcd grpc-proxies"),
    };
    let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
    let rows: Vec<_> = names.into_iter().map(row).collect();
    lines(&title, &sizes, &rows)
}

/// A column for the first start, and one for the second.
fn of_agents(figures: &[&Figure], services: usize) -> String {
    let cell = |start: &str, what: &str| {
        let figure = figures
            .iter()
            .find(|figure| figure.name.strip_prefix(start) == Some(what));
        figure.map_or_else(String::new, |figure| figure.measured.to_string())
    };
    let rows: Vec<_> = figures
        .iter()
        .filter_map(|figure| figure.name.strip_prefix(START))
        .map(|what| {
            let cells = [START, RESTART].map(|start| cell(start, what));
            (what.to_owned(), cells.to_vec())
        })
        .collect();
    let columns = ["start", "restart"].map(str::to_owned);
    lines(&format!("agents, {services} services"), &columns, &rows)
}

fn lines(title: &str, columns: &[String], rows: &[(String, Vec<String>)]) -> String {
    let line = |first: &str, cells: &[String]| {
        let mut line = format!("{first:<NAME_WIDTH$}");
        for cell in cells {
            // Writing to a string cannot fail.
            let _ = write!(line, "{cell:>CELL_WIDTH$}");
        }
        format!("{}\n", line.trim_end())
    };
    let rows: String = rows.iter().map(|(name, cells)| line(name, cells)).collect();
    format!("{}{rows}", line(title, columns))
}

/// The different values, each where it comes first.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.fold(Vec::new(), |mut distinct, value| {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
        distinct
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Quantity;

    fn figure(name: &str, size: (usize, usize), seconds: f64) -> Figure {
        Figure::new(SECTION, name, size, Quantity::Seconds(seconds))
    }

    #[test]
    fn table_of_watchers_has_column_for_each_size_and_80_columns() {
        let direct = [100, 1000, 10_000].map(|watchers| figure("a put", (watchers, 0), 0.25));
        let proxied = [
            figure("a put", (100, 1), 2.4),
            figure("a proxy", (100, 1), 0.1),
        ];
        let text = tables(&[&direct[..], &proxied].concat());
        let widths: Vec<_> = text.lines().map(|line| line.chars().count()).collect();
        assert_eq!(widths, [80, 80, 0, 54, 54, 54], "{text}");
        let words = |line: usize| text.lines().nth(line).unwrap().split_whitespace();
        assert!(
            words(0).eq([
                "watchers,",
                "directly",
                "at",
                "etcd",
                "100",
                "1000",
                "10000"
            ]),
            "{text}"
        );
        assert!(
            words(1).eq(["a", "put", "250", "ms", "250", "ms", "250", "ms"]),
            "{text}"
        );
        assert!(words(5).eq(["a", "proxy", "100", "ms"]), "{text}");
    }

    #[test]
    fn table_of_agents_has_both_starts_of_each_row() {
        let named = |start: &str, seconds| figure(&format!("{start}last"), (1000, 4), seconds);
        let text = tables(&[named(START, 2.0), named(RESTART, 0.5)]);
        let words = |line: usize| text.lines().nth(line).unwrap().split_whitespace();
        assert!(
            words(0).eq(["agents,", "1000", "services", "start", "restart"]),
            "{text}"
        );
        assert!(words(1).eq(["last", "2.00", "s", "500", "ms"]), "{text}");
    }
}
