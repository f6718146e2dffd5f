//! Resource usage of a process as the kernel reports it. Source: `proc(5)`.

use std::{fs, time::Duration};

use contiv_tests::lab::{LabError, Result};

use crate::figures::Quantity;

/// Linux counts the time of processes in hundredths of a second, on every architecture.
const CLOCK_TICK: Duration = Duration::from_millis(10);

/// Resident memory of a process.
pub(crate) struct Memory {
    pub(crate) resident: Quantity,
    pub(crate) peak: Quantity,
}

pub(crate) fn memory(process: u32) -> Result<Memory> {
    let status = read(process, "status")?;
    let field = |name: &str| {
        let value = status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_suffix("kB"));
        let kibibytes: f64 = value
            .and_then(|value| value.trim().parse().ok())
            .ok_or_else(|| LabError::Unexpected(format!("no {name} in /proc/{process}/status")))?;
        Ok::<_, LabError>(Quantity::Mebibytes(kibibytes / 1024.0))
    };
    Ok(Memory {
        resident: field("VmRSS:")?,
        peak: field("VmHWM:")?,
    })
}

/// The processor time used so far, in user and kernel mode.
pub(crate) fn processor_time(process: u32) -> Result<Duration> {
    let stat = read(process, "stat")?;
    // The name, in parentheses, can contain anything. The third field follows; 14 and 15 are the times.
    let fields = stat
        .rsplit_once(") ")
        .map(|(_, fields)| fields.split(' ').skip(11).take(2));
    let ticks: Option<Vec<u32>> =
        fields.and_then(|fields| fields.map(|field| field.parse().ok()).collect());
    let ticks = ticks
        .ok_or_else(|| LabError::Unexpected(format!("cannot read /proc/{process}/stat: {stat}")))?;
    Ok(CLOCK_TICK * ticks.iter().sum())
}

/// The time that all processors were busy so far, also for other virtual machines (steal).
pub(crate) fn machine_time() -> Result<Duration> {
    let path = "/proc/stat";
    let text = fs::read_to_string(path)
        .map_err(|error| LabError::system(format!("read {path}"), error))?;
    let ticks = busy_ticks(&text).ok_or_else(|| LabError::Unexpected(format!("{path}: {text}")))?;
    Ok(CLOCK_TICK * ticks)
}

/// Of the first line of `/proc/stat`: all but idle and iowait. Guests are in user time too.
fn busy_ticks(stat: &str) -> Option<u32> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Option<Vec<u32>> = fields
        .split_whitespace()
        .take(8)
        .map(|field| field.parse().ok())
        .collect();
    match ticks?.as_slice() {
        [user, nice, system, _, _, irq, softirq, steal] => {
            Some(user + nice + system + irq + softirq + steal)
        }
        _ => None,
    }
}

/// Open file descriptors.
pub(crate) fn descriptors(process: u32) -> Result<usize> {
    count(process, "fd")
}

/// Threads.
pub(crate) fn threads(process: u32) -> Result<usize> {
    count(process, "task")
}

/// The load of the machine over the last minute.
pub(crate) fn load() -> Result<f64> {
    let path = "/proc/loadavg";
    let text = fs::read_to_string(path)
        .map_err(|error| LabError::system(format!("read {path}"), error))?;
    let first = text.split(' ').next().and_then(|load| load.parse().ok());
    first.ok_or_else(|| LabError::Unexpected(format!("{path}: {text}")))
}

fn count(process: u32, folder: &str) -> Result<usize> {
    let path = format!("/proc/{process}/{folder}");
    let entries =
        fs::read_dir(&path).map_err(|error| LabError::system(format!("read {path}"), error))?;
    Ok(entries.count())
}

fn read(process: u32, name: &str) -> Result<String> {
    let path = format!("/proc/{process}/{name}");
    fs::read_to_string(&path).map_err(|error| LabError::system(format!("read {path}"), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_is_busy_unless_idle_or_waiting_for_disks() {
        let stat = "cpu  1000 200 30 4 5 6 7 8 900 90\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(busy_ticks(stat), Some(1251));
        assert_eq!(busy_ticks("cpu  1 2 3\n"), None);
        assert!(machine_time().unwrap() > Duration::ZERO);
    }

    #[test]
    fn process_has_memory_and_time() {
        let this = std::process::id();
        let memory = memory(this).unwrap();
        assert!(memory.resident.number() > 0.0 && memory.peak >= memory.resident);
        assert!(descriptors(this).unwrap() > 2 && threads(this).unwrap() >= 1);
        assert!(processor_time(this).unwrap() < Duration::from_secs(3600));
    }
}
