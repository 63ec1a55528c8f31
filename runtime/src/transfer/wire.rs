//! Messages between two pools of one process.

use super::Message;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

/// One end of a wire in both directions.
#[derive(Debug)]
pub struct WireEnd {
    out: Sender<Message>,
    inbox: Receiver<Message>,
}

/// Both ends of a new wire.
pub fn wire_pair() -> (WireEnd, WireEnd) {
    let (to_right, right) = channel();
    let (to_left, left) = channel();
    (WireEnd { out: to_right, inbox: left }, WireEnd { out: to_left, inbox: right })
}

/// The peer is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the other pool has ended")]
pub struct PeerGone;

impl WireEnd {
    /// Sends; never blocks.
    ///
    /// # Errors
    /// [`PeerGone`] if the other end was dropped.
    pub fn send(&self, message: Message) -> Result<(), PeerGone> {
        self.out.send(message).map_err(|_| PeerGone)
    }

    /// The next message that is there already.
    ///
    /// # Errors
    /// [`PeerGone`] if the other end was dropped and everything it sent has been read.
    pub fn try_recv(&self) -> Result<Option<Message>, PeerGone> {
        match self.inbox.try_recv() {
            Ok(message) => Ok(Some(message)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(PeerGone),
        }
    }
}
