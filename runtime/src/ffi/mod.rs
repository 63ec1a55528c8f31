//! The unsafe corner: mapping files into memory.
