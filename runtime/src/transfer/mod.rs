//! Hands a prefilled request from one pool to the other.
