//! Request bodies within a limit and a time; response bodies that are whole or a stream.

use crate::api::ApiError;
use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Body, Frame, Incoming};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;

/// How long an oversized body is read and thrown away, so that the refusal reaches its sender.
const DRAIN_TIME: Duration = Duration::from_secs(2);

/// A response body.
pub(super) type ReplyBody = Either<Full<Bytes>, EventBody>;

/// Events as the forwarding task sends them; dropping it tells that task.
#[derive(Debug)]
pub(super) struct EventBody(pub(super) Receiver<Bytes>);

impl Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// Reads a body of at most `limit` bytes within `time`.
pub(super) async fn read(
    mut body: Incoming,
    limit: usize,
    time: Duration,
) -> Result<Vec<u8>, ApiError> {
    let declared = body.size_hint().lower();
    if declared > limit as u64 {
        drain(body, limit).await;
        return Err(ApiError::BodyTooLarge { limit });
    }
    let mut bytes = Vec::new();
    let collect = async {
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| ApiError::BodyBroken)?.into_data() else { continue };
            if bytes.len() + data.len() > limit {
                return Err(ApiError::BodyTooLarge { limit });
            }
            bytes.extend_from_slice(&data);
        }
        Ok(())
    };
    match timeout(time, collect).await {
        Ok(Ok(())) => Ok(bytes),
        Ok(Err(error)) => {
            if matches!(error, ApiError::BodyTooLarge { .. }) {
                drain(body, limit).await;
            }
            Err(error)
        }
        Err(_) => Err(ApiError::BodyTimeout { seconds: time.as_secs() }),
    }
}

/// Throws away up to twice `limit` bytes for a short while: closing on a client that still sends
/// would reset the connection before it has read the answer.
async fn drain(mut body: Incoming, limit: usize) {
    let throw_away = async {
        let mut left = limit.saturating_mul(2);
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return;
            }
        }
    };
    // Running out of time is as good an end as any.
    let _ = timeout(DRAIN_TIME, throw_away).await;
}
