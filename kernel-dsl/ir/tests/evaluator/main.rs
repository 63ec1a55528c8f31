//! The evaluator against values worked out by hand.

mod launch;
