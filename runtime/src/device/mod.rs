//! Performs launches.
