//! Settings of cubecl, burn's GPU runtime, which hold for the whole process.

use std::path::Path;

use burn::cubecl::config::autotune::AutotuneLevel;
use burn::cubecl::config::cache::CacheConfig;
use burn::cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};

use super::DeviceKind;

/// Chooses how long kernels are compared before one is taken, and where results of that are kept.
///
/// Call it before the first use of a GPU: cubecl reads its settings once, and later calls of this function change nothing.
/// A `cubecl.toml` that happens to lie in the working folder is not read; cubecl's own environment variables are.
pub fn configure(kind: DeviceKind, cache_dir: &Path) {
    let mut config = CubeClRuntimeConfig::default();
    config.autotune.level = autotune_level(kind);
    config.environment.path = CacheConfig::Directory(cache_dir.join("kernels"));
    let _is_first = CubeClRuntimeConfig::try_set(config.override_from_env());
}

/// A software adapter would spend minutes on comparing kernels that all run on the processor.
fn autotune_level(kind: DeviceKind) -> AutotuneLevel {
    match kind {
        DeviceKind::Software | DeviceKind::Cpu => AutotuneLevel::Minimal,
        DeviceKind::Discrete | DeviceKind::Integrated | DeviceKind::Virtual => AutotuneLevel::Balanced,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_adapters_compare_as_few_kernels_as_possible() {
        assert!(matches!(autotune_level(DeviceKind::Software), AutotuneLevel::Minimal));
        assert!(matches!(autotune_level(DeviceKind::Discrete), AutotuneLevel::Balanced));
    }
}
