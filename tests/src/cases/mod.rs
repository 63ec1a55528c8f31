//! Cases of kernels, run by every executor and judged by the f64 evaluator.

mod mutate;
mod reference;
mod run;

pub use mutate::{Mutant, mutants};
pub use reference::reference;
pub use run::run;
pub use tessera_kernel_tool::cases::{
    Built, Case, Difference, Fill, Seeded, Weight, differences, load,
};
