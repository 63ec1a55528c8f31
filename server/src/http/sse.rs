//! Answers over the wire: server-sent events through a bounded buffer, or one body.

use super::body::EventBody;
use super::generate::Generation;
use super::server::{App, Connection};
use crate::api::{ApiError, Delta, Reply};
use bytes::Bytes;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tessera_runtime::request::RequestError;
use tokio::sync::mpsc::{Sender, channel};
use tokio::time::timeout;

/// The next thing a generation says.
pub(super) type Said = Option<Result<(usize, Delta), RequestError>>;

/// Reports a request that ends before its answer does: its client went away.
#[derive(Debug)]
pub(super) struct Watch {
    app: Arc<App>,
    id: String,
    ended: bool,
}

impl Watch {
    pub(super) fn new(app: &Arc<App>, id: &str) -> Self {
        Self { app: Arc::clone(app), id: id.to_owned(), ended: false }
    }

    /// The request has had its answer.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.ended {
            self.app.metrics.client_disconnects_total.fetch_add(1, Ordering::Relaxed);
            eprintln!("{}: the client went away; the request is aborted", self.id);
        }
    }
}

/// Collects the whole answer.
pub(super) async fn collect(mut generation: Generation, reply: &Reply) -> Result<Value, ApiError> {
    let mut said = vec![Delta::default(); generation.num_choices()];
    while let Some(next) = generation.next().await {
        let (index, delta) = next?;
        let all = &mut said[index];
        all.text.push_str(&delta.text);
        all.token_ids.extend(delta.token_ids);
        all.logprobs.extend(delta.logprobs);
        all.finish = delta.finish.or(all.finish);
    }
    let choices = said.into_iter().enumerate();
    let choices = choices.map(|(index, said)| (said, &**generation.prompt_of(index)));
    Ok(reply.whole(&choices.collect::<Vec<_>>(), generation.usage))
}

/// Starts a task that forwards events, beginning with `first`, to the body it returns.
pub(super) fn stream(
    (app, connection): (&Arc<App>, &Connection),
    generation: Generation,
    (reply, watch): (Reply, Watch),
    first: Option<Said>,
) -> EventBody {
    let (sender, receiver) = channel(app.config.event_buffer);
    let forward = Forward {
        app: Arc::clone(app),
        connection: connection.clone(),
        generation,
        reply,
        watch,
        sender,
    };
    tokio::spawn(forward.run(first));
    EventBody(receiver)
}

struct Forward {
    app: Arc<App>,
    connection: Connection,
    generation: Generation,
    reply: Reply,
    watch: Watch,
    sender: Sender<Bytes>,
}

impl Forward {
    /// Forwards until the answer or the client ends; dropping `self` aborts what still runs.
    async fn run(mut self, mut first: Option<Said>) {
        for index in 0..self.generation.num_choices() {
            let opening = self.reply.opening(index, self.generation.prompt_of(index));
            if let Some(event) = opening
                && !self.send(&event).await
            {
                return;
            }
        }
        loop {
            let said = match first.take() {
                Some(said) => said,
                None => tokio::select! {
                    () = self.sender.closed() => return,
                    said = self.generation.next() => said,
                },
            };
            let event = match said {
                None => break,
                Some(Err(error)) => {
                    // After an error there is no [DONE]: the answer is not whole.
                    self.send(&ApiError::from(error).body()).await;
                    self.watch.end();
                    return;
                }
                Some(Ok((index, delta))) if self.is_worth_sending(&delta) => {
                    self.reply.event(index, &delta)
                }
                Some(Ok(_)) => continue,
            };
            if !self.send(&event).await {
                return;
            }
        }
        if self.reply.include_usage
            && !self.send(&self.reply.usage_event(self.generation.usage)).await
        {
            return;
        }
        self.send_bytes(Bytes::from_static(b"data: [DONE]\n\n")).await;
        self.watch.end();
    }

    fn is_worth_sending(&self, delta: &Delta) -> bool {
        !delta.text.is_empty()
            || !delta.logprobs.is_empty()
            || delta.finish.is_some()
            || self.reply.token_ids
    }

    async fn send(&mut self, event: &Value) -> bool {
        self.send_bytes(Bytes::from(format!("data: {event}\n\n"))).await
    }

    /// Whether the client still takes events. One that takes nothing for too long is cut off.
    async fn send_bytes(&mut self, bytes: Bytes) -> bool {
        let limit = self.app.config.stall_limit;
        match timeout(limit, self.sender.send(bytes)).await {
            Ok(sent) => sent.is_ok(),
            Err(_) => {
                self.app.metrics.client_stalls_total.fetch_add(1, Ordering::Relaxed);
                self.watch.end();
                let error = ApiError::Stalled { seconds: limit.as_secs() };
                eprintln!("{}: {error}; the request is aborted", self.reply.id);
                self.connection.kill();
                false
            }
        }
    }
}
