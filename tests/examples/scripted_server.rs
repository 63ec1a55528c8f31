//! Serves a scripted engine with the bundled model's text side, for client libraries to be tried
//! against: every request is answered with the same sentence. Takes the port as its argument.

use std::path::Path;
use std::sync::Arc;
use tessera::clock::Clock;
use tessera::http::{Server, ServerConfig, ServerParts};
use tessera::text::TextModel;
use tessera_tests::script::{self, Step};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let port = std::env::args().nth(1).map_or(Ok(8000), |port| port.parse())?;
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny-kimi");
    let text = TextModel::load(&dir)?;
    let bos = 1;
    let said = text.encode_prompt("The capital of France is Paris.")?.split_off(bos);
    let steps = said.into_iter().chain([1012]).map(Step::Token).collect::<Vec<_>>();
    let info = script::info(1024, 4096, vec![1012]);
    let engine = script::start(info, Arc::new(move |_| steps.clone()));
    let config = ServerConfig {
        port,
        served_names: vec!["tiny-kimi".to_owned()],
        ..ServerConfig::default()
    };
    let parts = ServerParts { engine: engine.handle.clone(), text, clock: Clock::system() };
    let server = Server::bind(config, parts).await?;
    println!("listening on {}", server.local_addr()?);
    server.run().await;
    Ok(())
}
