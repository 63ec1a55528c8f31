//! What travels between two pools.

use super::descriptor::{Descriptor, Difference};
use crate::cache::LeaseId;
use crate::request::RequestId;
use std::sync::Arc;

/// A message about the transfer and generation in `lease`; the handshake has transfer 0.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Transfer, and generation of the *sending pool's* process, whoever speaks.
    pub lease: LeaseId,
    /// What is said.
    pub signal: Signal,
}

/// What is said.
#[derive(Debug, Clone, PartialEq)]
pub enum Signal {
    /// Sender: who I am.
    Hello(Box<Descriptor>),
    /// Receiver: who I am; offers may follow.
    HelloAck(Box<Descriptor>),
    /// Receiver: we cannot work together.
    Refused(Vec<Difference>),
    /// Sender: a prompt has been read.
    Offer {
        /// Whose.
        request: RequestId,
        /// Tokens in its pages.
        prompt_tokens: usize,
        /// Tokens to generate at most.
        max_tokens: usize,
    },
    /// Receiver: write up to this many pages.
    Lease {
        /// Pages.
        num_pages: usize,
    },
    /// Sender: one page.
    Page(PageMessage),
    /// Sender: that was all.
    Commit {
        /// Sampled from the prompt; not to be told to the client before the commit.
        first_token: u32,
    },
    /// Receiver: checked and taken over.
    Committed,
    /// Either side: this transfer ends.
    Abort(AbortReason),
    /// Sender: nothing of this transfer is under way any more.
    Fenced,
}

/// One page in the receiver's format.
#[derive(Debug, Clone, PartialEq)]
pub struct PageMessage {
    /// Place in the request's table.
    pub index: usize,
    /// `[num_layers][page_size, kv_entry]`.
    pub bytes: Arc<[u8]>,
    /// One a layer.
    pub scales: Arc<[f32]>,
    /// One a layer; empty with integrity off.
    pub digests: Arc<[u64]>,
}

/// Why a transfer ends early.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message is the doc")]
pub enum AbortReason {
    #[error("the client aborted")]
    Client,
    #[error("page {index} is not what was sent")]
    Digest { index: usize },
    #[error("page {index} is outside the lease")]
    Page { index: usize },
    #[error("the receiver cannot hold the request")]
    Refused,
    #[error("the prefill pool gave up: {reason}")]
    Prefill { reason: String },
    #[error("the peer restarted")]
    PeerRestarted,
}
