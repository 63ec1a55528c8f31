//! Cases of kernels, run by every executor and judged by the f64 evaluator.

mod compare;
mod mutate;
mod reference;
mod run;

pub use compare::{Difference, differences};
pub use mutate::{Mutant, mutants};
pub use reference::reference;
pub use run::run;
pub use tessera_kernel_tool::cases::{Built, Case, Fill, Seeded, Weight, load};
