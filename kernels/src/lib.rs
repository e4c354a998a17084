//! The numeric kernels: CPU references and, beside them, their CUDA twins.
