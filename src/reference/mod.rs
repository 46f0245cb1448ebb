//! Every op in plain loops on the CPU: what the kernels are tested against, and the text to read first.

pub mod ops;
