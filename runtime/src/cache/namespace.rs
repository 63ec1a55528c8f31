//! Who may share a cached prefix: fields of their own types, never strings put together.

use crate::request::RequestId;
use std::sync::Arc;

/// Whose cached prefixes a request may share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum CacheSalt {
    /// Everyone who gives this salt.
    Tenant(Arc<str>),
    /// Nobody: the request gave no salt, so it is a tenant of its own.
    Private(RequestId),
}

/// An adapter on top of the model.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Adapter {
    /// Name it is served under.
    pub name: Arc<str>,
    /// Changes whenever its weights do.
    pub version: u64,
}

/// All that must agree, besides the tokens, before two requests share a page.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CacheNamespace {
    /// Tenant.
    pub salt: CacheSalt,
    /// Adapter, if any.
    pub adapter: Option<Adapter>,
    /// Fingerprint of the model's weights.
    pub model_revision: Arc<str>,
}
