//! The hand-off of a prompt's pages from the prefill pool to the decode pool.
//!
//! Pure state machines over messages: they order what happens and never touch a page. The engine
//! converts, writes and checks pages when an action says so, and reports back.

mod descriptor;
mod message;
mod receiver;
mod sender;
mod wire;

pub use descriptor::{Descriptor, Difference, FREE_TO_DIFFER};
pub use message::{AbortReason, Message, PageMessage, Signal};
pub use receiver::{Receiver, ReceiverAction};
pub use sender::{SendOffer, Sender, SenderAction};
pub use wire::{PeerGone, WireEnd, wire_pair};
