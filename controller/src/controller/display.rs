//! Controllers as text, in consul's form.

use std::{fmt, time::Duration};

use super::Controller;

impl<T> fmt::Display for Controller<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let watched: Vec<&str> = self.watches.iter().map(|watch| watch.type_name()).collect();
        write!(
            f,
            "<Controller managed_type={}, watched_types=[{}], backoff=<base={}, max={}>, placement={}>",
            self.managed.name(),
            watched.join(", "),
            GoDuration(self.retry.base),
            GoDuration(self.retry.max_delay),
            self.placement
        )
    }
}

impl<T> fmt::Debug for Controller<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A duration as Go prints it: `1h0m0s`, `16m40s`, `5ms`, `1.5s`.
struct GoDuration(Duration);

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let seconds = self.0.as_secs();
        match nanos {
            0 => return f.write_str("0s"),
            1..1_000 => return write!(f, "{nanos}ns"),
            1_000..1_000_000 => return write!(f, "{}µs", self.0.as_secs_f64() * 1e6),
            1_000_000..1_000_000_000 => return write!(f, "{}ms", self.0.as_secs_f64() * 1e3),
            _ => {}
        }
        if seconds >= 3600 {
            write!(f, "{}h", seconds / 3600)?;
        }
        if seconds >= 60 {
            write!(f, "{}m", seconds / 60 % 60)?;
        }
        write!(f, "{}s", self.0.as_secs_f64() % 60.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_printed_as_go_does() {
        for (duration, text) in [
            (Duration::ZERO, "0s"),
            (Duration::from_nanos(7), "7ns"),
            (Duration::from_micros(250), "250µs"),
            (Duration::from_millis(5), "5ms"),
            (Duration::from_millis(1500), "1.5s"),
            (Duration::from_secs(5), "5s"),
            (Duration::from_secs(1000), "16m40s"),
            (Duration::from_secs(3600), "1h0m0s"),
            (Duration::from_secs(8 * 3600 + 61), "8h1m1s"),
        ] {
            assert_eq!(GoDuration(duration).to_string(), text);
        }
    }
}
