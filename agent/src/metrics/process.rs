//! The process itself, under the names that Prometheus' clients give it in every language, and the build.

use std::{fmt, fs};

use nix::{
    time::{ClockId, clock_gettime},
    unistd::{SysconfVar, sysconf},
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{
        counter::ConstCounter,
        family::Family,
        gauge::{ConstGauge, Gauge},
    },
    registry::Registry,
};

use crate::connections::open_files_limit;

/// Registers the version, whose name gets the prefix of `registry`.
pub(super) fn register_build(registry: &mut Registry) {
    let build: Family<Vec<(&str, &str)>, Gauge> = Family::default();
    build
        .get_or_create(&vec![("version", env!("CARGO_PKG_VERSION"))])
        .set(1);
    registry.register("build_info", "The running version", build);
}

/// Registers `process_…`; `registry` has no prefix.
pub(super) fn register(registry: &mut Registry) {
    registry.register_collector(Box::new(Process {
        started: start_time(),
    }));
}

/// Read from the kernel when the metrics are read. What the kernel does not say is left out.
#[derive(Debug)]
struct Process {
    /// In seconds since 1970.
    started: Option<f64>,
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut encode = |name: &str, help: &str, metric: &dyn EncodeMetricValue| {
            metric.encode_as(&mut encoder, name, help)
        };
        if let Some(seconds) = processor_seconds() {
            encode(
                "process_cpu_seconds",
                "Processor time that the process has used",
                &ConstCounter::new(seconds),
            )?;
        }
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        for (name, help, bytes) in [
            (
                "process_resident_memory_bytes",
                "Memory that the process holds",
                memory(&status, "VmRSS:"),
            ),
            (
                "process_virtual_memory_bytes",
                "Address space that the process has",
                memory(&status, "VmSize:"),
            ),
            (
                "process_open_fds",
                "Files that the process has open",
                open_files(),
            ),
            (
                "process_max_fds",
                "Files that the process may have open",
                open_files_limit().try_into().ok(),
            ),
        ] {
            if let Some(bytes) = bytes {
                encode(name, help, &ConstGauge::new(bytes))?;
            }
        }
        if let Some(started) = self.started {
            encode(
                "process_start_time_seconds",
                "When the process has started",
                &ConstGauge::new(started),
            )?;
        }
        Ok(())
    }
}

/// A value that can be written as a metric.
trait EncodeMetricValue {
    fn encode_as(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
    ) -> Result<(), fmt::Error>;
}

impl<M: EncodeMetric> EncodeMetricValue for M {
    fn encode_as(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
    ) -> Result<(), fmt::Error> {
        self.encode(encoder.encode_descriptor(name, help, None, self.metric_type())?)
    }
}

fn processor_seconds() -> Option<f64> {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).ok()?;
    Some(std::time::Duration::from(time).as_secs_f64())
}

/// A size in `/proc/PID/status`, in bytes.
fn memory(status: &str, name: &str) -> Option<i64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<i64>().ok()? * 1024)
}

/// Without the one by which they are counted.
fn open_files() -> Option<i64> {
    fs::read_dir("/proc/self/fd")
        .ok()?
        .count()
        .checked_sub(1)?
        .try_into()
        .ok()
}

/// When the process has started, in seconds since 1970.
fn start_time() -> Option<f64> {
    let ticks = ticks_of(&fs::read_to_string("/proc/self/stat").ok()?)?;
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = stat
        .lines()
        .find_map(|line| line.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()?;
    let second = sysconf(SysconfVar::CLK_TCK).ok()??;
    #[expect(clippy::cast_precision_loss, reason = "a hundred a second")]
    Some(boot + ticks / second as f64)
}

/// `starttime` of `/proc/PID/stat`, since the boot. The name before it may hold anything.
fn ticks_of(stat: &str) -> Option<f64> {
    let after_name = stat.rsplit_once(')')?.1;
    after_name.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn process_is_read_from_the_kernel() {
        let status = "VmSize:\t  12 kB\nVmRSS:\t       8 kB\n";
        assert_eq!(
            (memory(status, "VmRSS:"), memory(status, "VmSize:")),
            (Some(8192), Some(12288))
        );
        assert_eq!(
            ticks_of("7 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20"),
            Some(4711.0)
        );
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs_f64();
        let age = now - start_time().unwrap();
        assert!((-2.0..3600.0).contains(&age), "{age}");
        let before = processor_seconds().unwrap();
        while processor_seconds().unwrap() <= before {}
        let file = fs::File::open("/proc/self/stat").unwrap();
        assert!(open_files().unwrap() >= 3, "{file:?}");
    }
}
