//! The listener, its connections, and how they end.

use super::framing::{HeadScan, Watched};
use super::routes;
use crate::api::{Limits, Surface};
use crate::clock::Clock;
use crate::metrics::ServerMetrics;
use crate::text::TextModel;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tessera_runtime::engine::EngineHandle;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Bytes of request line and headers together; more is answered with 431.
pub(super) const MAX_HEADER_BYTES: usize = 64 * 1024;
/// The default body limit gives each token of the context this many bytes of JSON.
const BODY_BYTES_PER_TOKEN: usize = 64;
const MIN_BODY_LIMIT: usize = 16 << 20;
/// Pause after a connection could not be accepted, which would fail again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Settings of the HTTP side.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Host name or address to listen on.
    pub host: String,
    /// Port; 0 takes a free one.
    pub port: u16,
    /// Names that clients may call the model; empty takes the engine's.
    pub served_names: Vec<String>,
    /// Serves `/debug/fault`.
    pub fault_injection: bool,
    /// Bytes of a body, at most; `None` fits the model's context.
    pub body_limit: Option<usize>,
    /// A body has to arrive within it.
    pub body_timeout: Duration,
    /// An idle connection is kept this long.
    pub keep_alive: Duration,
    /// A client that takes nothing of its stream for this long is cut off.
    pub stall_limit: Duration,
    /// Events that wait for a slow client, at most.
    pub event_buffer: usize,
    /// How long a stream's headers wait for its first event, to carry an honest status.
    pub stream_header_wait: Duration,
    /// How long running requests may go on after a shutdown began.
    pub shutdown_grace: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 8000,
            served_names: Vec::new(),
            fault_injection: false,
            body_limit: None,
            body_timeout: Duration::from_secs(60),
            keep_alive: Duration::from_secs(120),
            stall_limit: Duration::from_secs(60),
            event_buffer: 64,
            stream_header_wait: Duration::from_secs(1),
            shutdown_grace: Duration::from_secs(30),
        }
    }
}

/// What a server serves.
#[derive(Debug)]
pub struct ServerParts {
    /// The engine.
    pub engine: EngineHandle,
    /// Its model's text side.
    pub text: TextModel,
    /// The time.
    pub clock: Clock,
}

/// What every request sees.
#[derive(Debug)]
pub(super) struct App {
    pub(super) config: ServerConfig,
    pub(super) engine: EngineHandle,
    pub(super) text: TextModel,
    pub(super) clock: Clock,
    pub(super) metrics: ServerMetrics,
    pub(super) limits: Limits,
    pub(super) body_limit: usize,
    pub(super) started_unix: u64,
    shutdown: watch::Receiver<bool>,
    /// Keyed by the system's randomness: the source of ids and of seeds that nobody chose.
    entropy: RandomState,
    counter: AtomicU64,
}

impl App {
    fn new(config: ServerConfig, parts: ServerParts, shutdown: watch::Receiver<bool>) -> Self {
        let info = parts.engine.info();
        let mut served_names = config.served_names.clone();
        if served_names.is_empty() {
            served_names.push(info.model.clone());
        }
        let limits =
            Limits { served_names, vocab_size: info.vocab_size, max_model_len: info.max_model_len };
        let fitting = limits.max_model_len.saturating_mul(BODY_BYTES_PER_TOKEN);
        Self {
            body_limit: config.body_limit.unwrap_or(fitting.max(MIN_BODY_LIMIT)),
            config,
            engine: parts.engine,
            text: parts.text,
            started_unix: parts.clock.unix_seconds(),
            clock: parts.clock,
            metrics: ServerMetrics::default(),
            limits,
            shutdown,
            entropy: RandomState::new(),
            counter: AtomicU64::new(0),
        }
    }

    /// The name that answers carry.
    pub(super) fn served_name(&self) -> &str {
        &self.limits.served_names[0]
    }

    pub(super) fn is_shutting_down(&self) -> bool {
        *self.shutdown.borrow()
    }

    /// A seed for a request whose client chose none.
    pub(super) fn fresh_seed(&self) -> u64 {
        self.entropy.hash_one(self.counter.fetch_add(1, Ordering::Relaxed))
    }

    /// An id for an answer, unique for the life of the process.
    pub(super) fn fresh_id(&self, surface: Surface) -> String {
        let count = self.counter.fetch_add(1, Ordering::Relaxed);
        let prefix = match surface {
            Surface::Chat => "chatcmpl",
            Surface::Raw => "cmpl",
        };
        format!("{prefix}-{:016x}{count:08x}", self.entropy.hash_one((count, prefix)))
    }
}

/// What a request knows of its connection.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) heads: HeadScan,
    killed: Arc<Notify>,
}

impl Connection {
    /// Closes the connection at once, whatever it still has to send.
    pub(super) fn kill(&self) {
        self.killed.notify_one();
    }
}

/// Starts a shutdown; clones start the same one.
#[derive(Debug, Clone)]
pub struct ShutdownHandle(watch::Sender<bool>);

impl ShutdownHandle {
    /// Stops accepting, lets running requests end within the grace, then aborts them.
    pub fn shut_down(&self) {
        self.0.send_replace(true);
    }
}

/// A server that listens and, once [`Server::run`] is awaited, answers.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    app: Arc<App>,
    shutdown: watch::Sender<bool>,
}

impl Server {
    /// Listens on the configured address.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub async fn bind(config: ServerConfig, parts: ServerParts) -> std::io::Result<Self> {
        let listener = TcpListener::bind((config.host.as_str(), config.port)).await?;
        let (shutdown, receiver) = watch::channel(false);
        Ok(Self { listener, app: Arc::new(App::new(config, parts, receiver)), shutdown })
    }

    /// The address listened on.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// A handle that ends [`Server::run`].
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        ShutdownHandle(self.shutdown.clone())
    }

    /// Answers requests until a shutdown has ended; then asks the engine to drain.
    pub async fn run(self) {
        let mut shutdown = self.app.shutdown.clone();
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(serve_connection(Arc::clone(&self.app), stream));
                    }
                    // Out of file descriptors, or a client gone before it was accepted: others
                    // still have to be served, so give them time to end and go on.
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
                Some(_) = connections.join_next() => {}
                () = begun(&mut shutdown) => break,
            }
        }
        drop(self.listener);
        let all_ended = async { while connections.join_next().await.is_some() {} };
        if timeout(self.app.config.shutdown_grace, all_ended).await.is_err() {
            eprintln!("the shutdown grace is over; {} connections are cut", connections.len());
            connections.shutdown().await;
        }
        if let Err(error) = self.app.engine.drain() {
            eprintln!("drain: {error}");
        }
    }
}

/// Waits until a shutdown has begun, or the server is gone.
async fn begun(shutdown: &mut watch::Receiver<bool>) {
    let _ = shutdown.wait_for(|down| *down).await;
}

async fn serve_connection(app: Arc<App>, stream: TcpStream) {
    // Tokens are small writes that must not wait for one another; without it they are only later.
    let _ = stream.set_nodelay(true);
    let (stream, heads) = Watched::new(stream);
    let killed = Arc::new(Notify::new());
    let handle = Connection { heads, killed: Arc::clone(&killed) };
    let mut shutdown = app.shutdown.clone();
    let keep_alive = app.config.keep_alive;
    let service =
        service_fn(move |request| routes::handle(Arc::clone(&app), handle.clone(), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(keep_alive)
        .max_header_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        // How a connection ends is the client's affair; its requests have their own reports.
        _ = connection.as_mut() => return,
        () = killed.notified() => return,
        () = begun(&mut shutdown) => connection.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        _ = connection => {}
        () = killed.notified() => {}
    }
}
