//! The names of cubecl-llvm that cubecl-cuda needs to be compiled, without LLVM behind them.
//!
//! cubecl-cuda 0.11 has two compilers of kernels: CUDA C++ through NVRTC, and LLVM. It always compiles both in, and the
//! real cubecl-llvm fetches a prebuilt LLVM while it is built. Fermata takes the first (feature `cuda-cpp` of cubecl), so
//! nothing here is ever reached at run time; asked to compile a kernel all the same, it returns an error that says why.

use cubecl_core::ir::nvidia::SmArch;
use cubecl_core::prelude::KernelDefinition;
use cubecl_environment::backtrace::BackTrace;
use cubecl_runtime::compiler::{CompilationError, Compiler};
use cubecl_runtime::kernel::BufferIOAttr;

pub mod nvptx {
    pub mod ptx_version {
        use std::fmt;

        /// A version of NVIDIA's PTX. There is none here, since only LLVM would be told which to emit.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum PtxVersion {}

        impl PtxVersion {
            /// Always `None`: NVRTC writes the version of its own toolkit.
            pub fn for_driver(_driver: i32) -> Option<Self> {
                None
            }
        }

        impl fmt::Display for PtxVersion {
            fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self {}
            }
        }
    }
}

pub mod shared {
    pub mod lowered_features {
        use cubecl_core::ir::DeviceProperties;

        /// The GPU target whose features would be narrowed for LLVM.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum GpuTarget {
            Nvptx,
        }

        /// Leaves the properties as they are: there is no LLVM to narrow them for.
        pub fn restrict_features(_properties: &mut DeviceProperties, _target: GpuTarget) {}
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LlvmTarget {
    Nvptx,
}

/// The compiler that is not here.
#[derive(Clone, Debug)]
pub struct PlironCompiler {
    pub target: LlvmTarget,
}

/// What cubecl-cuda would tell LLVM.
#[derive(Clone, Debug, Default)]
pub struct PlironOptions {
    pub arch: Option<String>,
    pub sm_arch: Option<SmArch>,
    pub ptx_version: Option<nvptx::ptx_version::PtxVersion>,
    pub grid_constants: bool,
}

/// A kernel that LLVM would have compiled.
#[derive(Clone, Debug)]
pub struct NvptxModule {
    pub ptx: Vec<std::ffi::c_char>,
    pub entrypoint: String,
    pub ir: String,
    pub shared_memory_size: usize,
    pub io: Vec<BufferIOAttr>,
}

#[derive(Clone, Debug)]
pub enum PlironArtifact {
    NvptxCode(NvptxModule),
}

impl std::fmt::Display for PlironArtifact {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self::NvptxCode(module) = self;
        f.write_str(&module.ir)
    }
}

impl Compiler for PlironCompiler {
    type Representation = PlironArtifact;
    type CompilationOptions = PlironOptions;

    fn compile(
        &mut self,
        _kernel: KernelDefinition,
        _options: &Self::CompilationOptions,
    ) -> Result<Self::Representation, CompilationError> {
        let reason = "this program has no LLVM; its CUDA kernels are compiled by NVRTC".to_owned();
        Err(CompilationError::Generic { reason, backtrace: BackTrace::capture() })
    }

    fn extension(&self) -> &'static str {
        "ll"
    }

    fn lang_tag(&self) -> &'static str {
        "llvm"
    }
}
