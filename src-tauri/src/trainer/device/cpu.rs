//! The processor as a device.

use super::{DeviceChoice, DeviceInfo, DeviceKind};

/// The processor: its name, how many threads run at once, and the widest instructions the kernels pick at run time.
pub fn processor() -> DeviceInfo {
    DeviceInfo {
        id: DeviceChoice::Cpu,
        kind: DeviceKind::Cpu,
        name: name().unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        interface: format!("flex {}", instruction_set()),
        memory_bytes: None,
        n_cores: Some(n_cores()),
    }
}

/// Threads that run at once, 1 where the system does not tell.
pub fn n_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The instruction set that decides which kernels run: `avx512f`, `avx2`, `neon`, or `baseline` when none of them is there.
///
/// It belongs to a run's device identity, since kernels of different width add in a different order.
pub fn instruction_set() -> &'static str {
    #[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            return "avx512f";
        }
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
            return "avx2";
        }
    }
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("neon") {
        return "neon";
    }
    "baseline"
}

/// What the system calls the processor; only Linux and Windows are asked.
fn name() -> Option<String> {
    if cfg!(windows) {
        return std::env::var("PROCESSOR_IDENTIFIER").ok();
    }
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let (_, name) = cpuinfo.lines().find(|line| line.starts_with("model name"))?.split_once(':')?;
    Some(name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_always_has_a_core_a_name_and_an_instruction_set() {
        let cpu = processor();
        assert!(cpu.n_cores.is_some_and(|n_cores| n_cores >= 1));
        assert!(!cpu.name.is_empty());
        assert!(["avx512f", "avx2", "neon", "baseline"].contains(&instruction_set()));
        assert_eq!(cpu.id, DeviceChoice::Cpu);
    }
}
