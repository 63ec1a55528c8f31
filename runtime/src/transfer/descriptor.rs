//! What two pools tell each other before the first hand-off.

/// Version of the messages.
pub(super) const PROTOCOL_VERSION: u32 = 1;

/// Fields in which two pools may differ: pages are converted to the receiver's format on the way.
pub const FREE_TO_DIFFER: &[&str] = &["weights", "kv_format"];

/// One pool, as its peer must know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    /// Tokens a page.
    pub page_size: usize,
    /// Elements of a token's entry in one layer.
    pub kv_entry: usize,
    /// Layers with a cache.
    pub num_layers: usize,
    /// Rope settings in full, as text.
    pub rope: String,
    /// Hash of config, tokenizer, template and base weights.
    pub model_fingerprint: String,
    /// Whether pages carry tags and digests.
    pub integrity: bool,
    /// Speculative layers whose cache travels too.
    pub speculative_layers: usize,
    /// Weight policy; free to differ.
    pub weights: String,
    /// KV-cache format; free to differ.
    pub kv_format: String,
    /// Version of the messages.
    pub protocol_version: u32,
}

/// A field in which two pools differ and must not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` is {ours} here and {theirs} at the peer")]
#[expect(missing_docs, reason = "the message is the doc")]
pub struct Difference {
    pub field: &'static str,
    pub ours: String,
    pub theirs: String,
}

impl Descriptor {
    /// The version of the messages that this code speaks.
    pub const PROTOCOL_VERSION: u32 = PROTOCOL_VERSION;

    /// Every field that differs and must not; empty if the two can work together.
    pub fn differences(&self, theirs: &Self) -> Vec<Difference> {
        let (ours, theirs) = (self.fields(), theirs.fields());
        let pairs = ours.into_iter().zip(theirs);
        pairs
            .filter(|((field, ours), (_, theirs))| {
                ours != theirs && !FREE_TO_DIFFER.contains(field)
            })
            .map(|((field, ours), (_, theirs))| Difference { field, ours, theirs })
            .collect()
    }

    fn fields(&self) -> Vec<(&'static str, String)> {
        // Taken apart by name, so that a new field cannot be forgotten here.
        let Self {
            page_size,
            kv_entry,
            num_layers,
            rope,
            model_fingerprint,
            integrity,
            speculative_layers,
            weights,
            kv_format,
            protocol_version,
        } = self;
        vec![
            ("page_size", page_size.to_string()),
            ("kv_entry", kv_entry.to_string()),
            ("num_layers", num_layers.to_string()),
            ("rope", rope.clone()),
            ("model_fingerprint", model_fingerprint.clone()),
            ("integrity", integrity.to_string()),
            ("speculative_layers", speculative_layers.to_string()),
            ("weights", weights.clone()),
            ("kv_format", kv_format.clone()),
            ("protocol_version", protocol_version.to_string()),
        ]
    }
}
