//! Owns pages: who holds each, its tag, and what may be reused.
