//! Every op in plain loops on the CPU, and a whole model made of them: what the kernels are tested against, and the
//! text to read first.

pub mod backward;
pub mod gradients;
pub mod model;
pub mod ops;
pub mod optimizer;

pub use model::ReferenceModel;
