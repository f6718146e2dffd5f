//! Measured figures, as rows of a table and of a JSON file.

use std::{fmt, time::Duration};

use serde::Serialize;

/// One measured figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// The part of the measurement that it belongs to, such as [`crate::parts::SECTION`].
    pub section: &'static str,
    /// The measured quantity and implementation: the name of a series in the plots.
    pub name: String,
    /// The number of services.
    pub services: usize,
    /// The number of backends of each.
    pub backends: usize,
    /// The measured value.
    pub measured: Quantity,
    /// The time of the kernel alone for the same work in the same run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor: Option<Quantity>,
    /// The limit, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Whether the limit holds; none without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds: Option<bool>,
}

/// A number with its unit.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Seconds.
    Seconds(f64),
    /// Mebibytes.
    Mebibytes(f64),
    /// Bytes, where they are few.
    Bytes(f64),
    /// Busy processors.
    Cores(f64),
    /// A count.
    Count(f64),
    /// A factor.
    Times(f64),
}

/// A limit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// At most this.
    AtMost(Quantity),
    /// At most this factor times the floor.
    TimesFloor(f64),
}

impl Quantity {
    /// The bare number.
    pub const fn number(self) -> f64 {
        match self {
            Self::Seconds(number)
            | Self::Mebibytes(number)
            | Self::Bytes(number)
            | Self::Cores(number)
            | Self::Count(number)
            | Self::Times(number) => number,
        }
    }
}

impl From<Duration> for Quantity {
    fn from(duration: Duration) -> Self {
        Self::Seconds(duration.as_secs_f64())
    }
}

impl fmt::Display for Quantity {
    /// Three significant digits, in the unit that reads best.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, unit) = match *self {
            Self::Seconds(seconds) if seconds >= 1.0 => (seconds, " s"),
            Self::Seconds(seconds) if seconds >= 1e-3 => (seconds * 1e3, " ms"),
            Self::Seconds(seconds) => (seconds * 1e6, " µs"),
            Self::Mebibytes(number) => (number, " MiB"),
            Self::Bytes(bytes) if bytes >= 1024.0 * 1024.0 => (bytes / 1024.0 / 1024.0, " MiB"),
            Self::Bytes(bytes) if bytes >= 1024.0 => (bytes / 1024.0, " KiB"),
            Self::Bytes(bytes) => (bytes, " B"),
            Self::Cores(number) => (number, " cores"),
            // A bound of three thousandths can be seen.
            Self::Times(number) if number < 2.0 => return write!(f, "{number:.3} ×"),
            Self::Times(number) => (number, " ×"),
            Self::Count(number) => return write!(f, "{number:.0}"),
        };
        let decimals = if number >= 100.0 {
            0
        } else if number >= 10.0 {
            1
        } else {
            2
        };
        write!(f, "{number:.decimals$}{unit}")
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(limit) => write!(f, "≤ {limit}"),
            Self::TimesFloor(times) => write!(f, "≤ {times} × floor"),
        }
    }
}

impl Figure {
    /// A figure without a limit and a floor.
    pub fn new(
        section: &'static str,
        name: impl Into<String>,
        (services, backends): (usize, usize),
        measured: impl Into<Quantity>,
    ) -> Self {
        let (name, measured) = (name.into(), measured.into());
        Self {
            section,
            name,
            services,
            backends,
            measured,
            floor: None,
            limit: None,
            holds: None,
        }
    }

    /// Adds the floor: what the kernel alone needs.
    #[must_use]
    pub fn beside(mut self, floor: impl Into<Quantity>) -> Self {
        self.floor = Some(floor.into());
        self
    }

    /// Adds a limit. One relative to the floor needs the floor first.
    #[must_use]
    pub fn with_limit(mut self, limit: Limit) -> Self {
        let most = match limit {
            Limit::AtMost(most) => most.number(),
            Limit::TimesFloor(times) => self.floor.map_or(f64::NAN, Quantity::number) * times,
        };
        self.limit = Some(limit);
        self.holds = Some(self.measured.number() <= most);
        self
    }

    fn cells(&self) -> [String; 7] {
        let or_nothing = |text: Option<String>| text.unwrap_or_default();
        let ratio = self
            .floor
            .map(|floor| format!("{:.2}", self.measured.number() / floor.number()));
        let size = format!("{} x {}", self.services, self.backends);
        [
            format!("{}: {}", self.section, self.name),
            size,
            self.measured.to_string(),
            or_nothing(self.floor.map(|floor| floor.to_string())),
            or_nothing(ratio),
            or_nothing(self.limit.map(|limit| limit.to_string())),
            or_nothing(
                self.holds
                    .map(|holds| if holds { "yes" } else { "NO" }.to_owned()),
            ),
        ]
    }
}

/// How much more something costs with the most services than with the fewest; none without two sizes.
pub fn growth(figures: &[Figure], name: &str, limit: Limit) -> Option<Figure> {
    let of_name = || figures.iter().filter(|figure| figure.name == name);
    let first = of_name().min_by_key(|figure| figure.services)?;
    let last = of_name()
        .max_by_key(|figure| figure.services)
        .filter(|last| last.services > first.services)?;
    let growth = Quantity::Times(last.measured.number() / first.measured.number());
    let name = format!("{name}: beside {} services", first.services);
    Some(Figure::new(last.section, name, (last.services, last.backends), growth).with_limit(limit))
}

/// All figures as a table of aligned columns.
pub fn table(figures: &[Figure]) -> String {
    let header = ["WHAT", "SIZE", "SEEN", "FLOOR", "RATIO", "WANTED", "HOLDS"].map(str::to_owned);
    let rows: Vec<[String; 7]> = std::iter::once(header)
        .chain(figures.iter().map(Figure::cells))
        .collect();
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: [usize; 7] = std::array::from_fn(width);
    let line = |row: &[String; 7]| {
        let cells: Vec<_> = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_printed_in_unit_that_reads_best() {
        let printed =
            [0.000_004_56, 0.0123, 0.25, 2.4].map(|seconds| Quantity::Seconds(seconds).to_string());
        assert_eq!(printed, ["4.56 µs", "12.3 ms", "250 ms", "2.40 s"]);
        let printed =
            [0.5, 1023.0, 2048.0, 5_242_880.0].map(|bytes| Quantity::Bytes(bytes).to_string());
        assert_eq!(printed, ["0.50 B", "1023 B", "2.00 KiB", "5.00 MiB"]);
    }

    #[test]
    fn growth_is_from_fewest_services_to_most() {
        let figure = |services, seconds| {
            Figure::new("parts", "x", (services, 4), Quantity::Seconds(seconds))
        };
        let limit = Limit::AtMost(Quantity::Times(2.0));
        let figures = [figure(100, 1.0), figure(10_000, 9.0), figure(100_000, 3.0)];
        let growth =
            |figures| growth(figures, "x", limit).map(|growth| (growth.measured, growth.holds));
        assert_eq!(growth(&figures), Some((Quantity::Times(3.0), Some(false))));
        assert_eq!(growth(&figures[..1]), None);
    }

    #[test]
    fn limit_holds_or_does_not_and_may_be_multiple_of_floor() {
        let figure = |measured| Figure::new("parts", "apply", (1, 1), Quantity::Seconds(measured));
        let holds = |measured| {
            figure(measured)
                .beside(Quantity::Seconds(2.0))
                .with_limit(Limit::TimesFloor(1.5))
                .holds
        };
        assert_eq!([holds(3.0), holds(3.1)], [Some(true), Some(false)]);
        let limit = Limit::AtMost(Quantity::Seconds(1.0));
        assert_eq!(figure(1.1).with_limit(limit).holds, Some(false));
        // Without a measured floor there is no multiple of it.
        assert_eq!(
            figure(0.1).with_limit(Limit::TimesFloor(1.5)).holds,
            Some(false)
        );
    }
}
