//! Notices requests that state both a length and a chunked body.
//!
//! hyper drops the length and goes on; a proxy in front may have believed it, so the request is
//! refused. hyper does not pass both headers on, hence this look at the bytes of each head.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Bytes of a head that are looked at; hyper refuses longer ones.
const MAX_HEAD: usize = super::server::MAX_HEADER_BYTES + 1024;

#[derive(Debug, Default)]
struct Scan {
    head: Vec<u8>,
    done: bool,
    both: bool,
}

impl Scan {
    fn feed(&mut self, bytes: &[u8]) {
        if self.done {
            return;
        }
        let from = self.head.len().saturating_sub(3);
        self.head.extend_from_slice(&bytes[..bytes.len().min(MAX_HEAD)]);
        let end = self.head[from..].windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = end {
            self.both = has_both(&self.head[..from + end]);
        }
        if end.is_some() || self.head.len() > MAX_HEAD {
            self.done = true;
            self.head = Vec::new();
        }
    }
}

fn has_both(head: &[u8]) -> bool {
    let has = |name: &[u8]| {
        head.split(|&byte| byte == b'\n').any(|line| {
            line.len() > name.len()
                && line[..name.len()].eq_ignore_ascii_case(name)
                && line[name.len()] == b':'
        })
    };
    has(b"content-length") && has(b"transfer-encoding")
}

/// What is known of the current request's head.
#[derive(Debug, Clone, Default)]
pub(super) struct HeadScan(Arc<Mutex<Scan>>);

impl HeadScan {
    /// Whether the current request states both.
    pub(super) fn has_both(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).both
    }

    /// Looks at the next head; called once the current body has been read to its end.
    pub(super) fn rearm(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Scan::default();
    }
}

/// A connection whose heads are looked at on the way.
#[derive(Debug)]
pub(super) struct Watched {
    stream: TcpStream,
    scan: HeadScan,
}

impl Watched {
    pub(super) fn new(stream: TcpStream) -> (Self, HeadScan) {
        let scan = HeadScan::default();
        (Self { stream, scan: scan.clone() }, scan)
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buf);
        let mut scan = self.scan.0.lock().unwrap_or_else(PoisonError::into_inner);
        scan.feed(&buf.filled()[before..]);
        result
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
