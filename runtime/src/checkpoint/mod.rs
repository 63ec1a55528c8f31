//! Maps checkpoints one to one: every parameter filled once, every tensor consumed, or no start.
