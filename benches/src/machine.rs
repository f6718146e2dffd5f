//! The machine on which a run measures, in one line.

use std::{fmt, fs, thread};

use contiv_tests::lab::{LabError, Result};

use crate::{cluster::process, command};

/// What figures depend on.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    processors: usize,
    model: String,
    gibibytes: f64,
    kernel: String,
    etcd: String,
    load: f64,
}

impl Machine {
    /// This machine, with its load now.
    ///
    /// # Errors
    /// When files of the kernel cannot be read, or etcd is not installed.
    pub fn read() -> Result<Self> {
        let processors = thread::available_parallelism()
            .map_err(|error| LabError::system("count the processors", error))?;
        Ok(Self {
            processors: processors.get(),
            model: model(&text("/proc/cpuinfo")?),
            gibibytes: gibibytes(&text("/proc/meminfo")?),
            kernel: text("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            etcd: etcd_version(&command::run(&["etcd", "--version"])?),
            load: process::load()?,
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            processors,
            model,
            gibibytes,
            kernel,
            etcd,
            load,
        } = self;
        write!(
            f,
            "{processors} x {model}, {gibibytes:.0} GiB\nLinux {kernel}, etcd {etcd}, load {load:.1} before the run"
        )
    }
}

fn text(path: &str) -> Result<String> {
    fs::read_to_string(path).map_err(|error| LabError::system(format!("read {path}"), error))
}

/// The first model of the processors. Some architectures name none.
fn model(cpuinfo: &str) -> String {
    let field = |line: &str| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == "model name").then(|| value.trim().to_owned())
    };
    cpuinfo
        .lines()
        .find_map(field)
        .unwrap_or_else(|| "processors without a name".to_owned())
}

fn gibibytes(meminfo: &str) -> f64 {
    let kibibytes = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.strip_suffix("kB"));
    kibibytes.map_or(f64::NAN, |text| {
        text.trim().parse::<f64>().unwrap_or(f64::NAN) / f64::from(1 << 20)
    })
}

/// From `etcd Version: 3.4.23`, the first line of `etcd --version`.
fn etcd_version(printed: &str) -> String {
    let version = printed
        .lines()
        .find_map(|line| line.strip_prefix("etcd Version:"));
    version.map_or("unknown", str::trim).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_is_named_from_the_files_of_the_kernel() {
        let cpuinfo = "processor\t: 0\nmodel\t\t: 143\nmodel name\t: Xeon\nmodel name\t: Other\n";
        assert_eq!(model(cpuinfo), "Xeon");
        assert_eq!(
            model("processor: 0\nBogoMIPS: 50\n"),
            "processors without a name"
        );
        let memory = gibibytes("MemTotal:       25165824 kB\nMemFree:        1 kB\n");
        assert!((memory - 24.0).abs() < 1e-6, "{memory}");
        assert_eq!(
            etcd_version("etcd Version: 3.4.23\nGit SHA: Not provided\n"),
            "3.4.23"
        );
    }
}
