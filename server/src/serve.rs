//! `tessera serve`: engine, text and HTTP put together, until a signal ends it.

use crate::cli::{ServeArgs, start_engine};
use crate::clock::Clock;
use crate::http::{Server, ServerParts, ShutdownHandle};
use crate::text::TextModel;
use anyhow::Context;
use std::net::SocketAddr;
use tokio::signal::unix::{SignalKind, signal};

/// Serves until SIGINT or SIGTERM, then finishes what runs.
///
/// # Errors
/// A setting, the checkpoint or the address will not do; nothing was served then.
pub fn serve(args: &ServeArgs) -> anyhow::Result<()> {
    let config = args.server_config()?;
    let dir = args.model_dir()?;
    let text = TextModel::load(&dir).with_context(|| format!("model {}", dir.display()))?;
    let clock = Clock::system();
    let (engine, threads) = start_engine(args, &clock)?;
    let name = config.served_names.first().cloned().unwrap_or_else(|| engine.info().model.clone());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let drain = engine.clone();
    let served = runtime.block_on(async {
        let (host, port) = (config.host.clone(), config.port);
        let parts = ServerParts { engine, text, clock };
        let server = Server::bind(config, parts)
            .await
            .with_context(|| format!("cannot listen on {host}:{port}"))?;
        print!("{}", banner(server.local_addr()?, &name));
        tokio::spawn(end_on_signal(server.shutdown_handle())?);
        server.run().await;
        anyhow::Ok(())
    });
    if served.is_err() {
        // The engine has nothing to finish; it only has to know that nobody will come.
        let _ = drain.drain();
    }
    drop(drain);
    threads.join()?;
    served
}

/// The signals are caught from here on; awaiting the future waits for one.
fn end_on_signal(
    shutdown: ShutdownHandle,
) -> anyhow::Result<impl Future<Output = ()> + Send + 'static> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        eprintln!("shutting down: running requests may finish");
        shutdown.shut_down();
    })
}

/// What a user sees once the server listens.
fn banner(addr: SocketAddr, model: &str) -> String {
    format!(
        "serving {model} on http://{addr}\n\
         try it:\n  \
         curl -N http://{addr}/v1/chat/completions -d '{{\"model\":\"{model}\",\"stream\":true,\
         \"messages\":[{{\"role\":\"user\",\"content\":\"What is the capital of France?\"}}]}}'\n\
         health http://{addr}/health/ready, metrics http://{addr}/metrics, settings \
         http://{addr}/server_info; Ctrl-C ends it\n"
    )
}
