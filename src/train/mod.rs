//! Training: how fast to learn (schedule), and by which rule (optimizer). So far the CPU reference alone learns.

mod optimizer;
mod schedule;

pub use optimizer::AdamW;
pub use schedule::{Decline, Schedule};
