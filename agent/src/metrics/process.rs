//! The process itself, and the build.

use std::{
    fmt, fs,
    time::{SystemTime, UNIX_EPOCH},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{
        family::Family,
        gauge::{ConstGauge, Gauge},
    },
    registry::Registry,
};
use std::sync::atomic::AtomicU64;

pub(super) fn register(registry: &mut Registry) {
    let build: Family<Vec<(&str, &str)>, Gauge> = Family::default();
    build.get_or_create(&vec![("version", env!("CARGO_PKG_VERSION"))]).set(1);
    registry.register("build_info", "The version that runs", build);

    let start = Gauge::<f64, AtomicU64>::default();
    start.set(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
    registry.register("process_start_time_seconds", "When the process has started", start);
    registry.register_collector(Box::new(Memory));
}

/// Read from the kernel when the metrics are read.
#[derive(Debug)]
struct Memory;

impl Collector for Memory {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let gauge = ConstGauge::new(resident_bytes().unwrap_or(0));
        let help = "Memory that the process holds";
        let metric =
            encoder.encode_descriptor("process_resident_memory_bytes", help, None, gauge.metric_type())?;
        gauge.encode(metric)
    }
}

fn resident_bytes() -> Option<i64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<i64>().ok()? * 1024)
}
