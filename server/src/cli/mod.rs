//! The command line: `serve`, `quantize`, `inspect`. It parses and hands over; a bad setting
//! stops the start.

mod checkpoints;
mod engine;
mod progress;
mod size;

pub use checkpoints::{inspect, quantize};
pub use engine::start_engine;
pub use size::{ByteSize, SizeError};

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Serves mixture-of-experts models over an OpenAI-compatible HTTP API.
#[derive(Debug, Parser)]
#[command(name = "tessera", version, about)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a model over HTTP.
    Serve(Box<ServeArgs>),
    /// Write a checkpoint again with other weights.
    Quantize(QuantizeArgs),
    /// Say what is in a checkpoint, and what of its cache fits into memory.
    Inspect(InspectArgs),
}

/// `tessera serve`. Without options: the bundled model, FP8 prefill weights over a BF16 cache,
/// INT4 decode weights over an FP8 cache, integrity on.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// Folder of the checkpoint; the bundled model if run from the repository.
    #[arg(long, value_name = "DIR")]
    pub model: Option<PathBuf>,
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// Port to listen on.
    #[arg(long, default_value_t = 8000)]
    pub port: u16,
    /// Name clients call the model by; the checkpoint folder's name by default. May repeat.
    #[arg(long, value_name = "NAME")]
    pub served_model_name: Vec<String>,
    /// What the engine is made of.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Limits of the HTTP side.
    #[command(flatten)]
    pub limits: LimitArgs,
    /// Serve /debug/fault, which damages running requests on purpose. Never in production.
    #[arg(long)]
    pub fault_injection: bool,
}

/// Settings of the engine, as text where the runtime parses them.
#[derive(Debug, Clone, Args)]
pub struct EngineArgs {
    /// Weights of the prefill pool.
    #[arg(long, value_name = "FORMAT", default_value = "fp8")]
    pub prefill_weights: String,
    /// KV cache of the prefill pool.
    #[arg(long, value_name = "FORMAT", default_value = "bf16")]
    pub prefill_kv: String,
    /// Weights of the decode pool.
    #[arg(long, value_name = "FORMAT", default_value = "int4")]
    pub decode_weights: String,
    /// KV cache of the decode pool.
    #[arg(long, value_name = "FORMAT", default_value = "fp8_e4m3")]
    pub decode_kv: String,
    /// Check page tags before every read and page bytes at every hand-off.
    #[arg(long, value_enum, default_value_t = OnOff::On)]
    pub kv_integrity: OnOff,
    /// Scale of an FP8 cache: `auto` measures each layer at prefill, a number holds for all
    /// layers, a file has one a layer. Without it, the checkpoint has to have scales; the bundled
    /// model has none and takes `auto`.
    #[arg(long, value_name = "auto|NUMBER|FILE")]
    pub kv_scale: Option<String>,
    /// Bytes of each pool's KV cache.
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub kv_memory: ByteSize,
    /// Tokens a page.
    #[arg(long, value_name = "TOKENS", default_value_t = 64)]
    pub page_size: usize,
    /// Sequences that decode together, at most.
    #[arg(long, value_name = "SEQUENCES", default_value_t = 64)]
    pub max_batch: usize,
    /// Prompt tokens of one prefill step, at most.
    #[arg(long, value_name = "TOKENS", default_value_t = 512)]
    pub chunk_tokens: usize,
    /// Worker threads that both pools share; 0 takes one a core.
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
    /// What computes. `cuda` needs kernels that were built for the device.
    #[arg(long, value_enum, default_value_t = DeviceKind::Cpu)]
    pub device: DeviceKind,
    /// Folder of kernels that `cargo xtask build-kernels` made, for `--device cuda`.
    #[arg(long, value_name = "DIR", required_if_eq("device", "cuda"))]
    pub kernels: Option<PathBuf>,
    /// CUDA device of the prefill pool.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub prefill_device: u32,
    /// CUDA device of the decode pool; both pools may share one.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub decode_device: u32,
}

/// Limits of the HTTP side.
#[derive(Debug, Clone, Args)]
pub struct LimitArgs {
    /// Longest request body; fits the model's context by default.
    #[arg(long, value_name = "SIZE")]
    pub body_limit: Option<ByteSize>,
    /// Seconds in which a request body has to arrive.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub body_timeout: u64,
    /// Seconds that an idle connection is kept.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub keep_alive: u64,
    /// Seconds after which a client that does not read its stream is cut off.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub stall_limit: u64,
    /// Seconds that running requests may go on after SIGINT or SIGTERM.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub shutdown_grace: u64,
}

/// What computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[expect(missing_docs, reason = "named as they are written")]
pub enum DeviceKind {
    Cpu,
    Cuda,
}

/// `on` or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[expect(missing_docs, reason = "named as they are written")]
pub enum OnOff {
    On,
    Off,
}

/// `tessera quantize`.
#[derive(Debug, Clone, Args)]
pub struct QuantizeArgs {
    /// Folder of the checkpoint to read.
    #[arg(long, value_name = "DIR")]
    pub model: PathBuf,
    /// Weight format to write, such as `int4-g32`.
    #[arg(long, value_name = "FORMAT")]
    pub weights: String,
    /// Folder to write, which must not exist yet.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// `tessera inspect`.
#[derive(Debug, Clone, Args)]
pub struct InspectArgs {
    /// Folder of the checkpoint; a config alone will do.
    #[arg(value_name = "DIR")]
    pub model: PathBuf,
    /// Memory to fit weights and cache into, such as `141GB` or `16GiB`.
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<ByteSize>,
}

impl ServeArgs {
    /// The checkpoint to serve: `--model`, or the bundled one where the repository is at hand.
    ///
    /// # Errors
    /// Neither is there.
    pub fn model_dir(&self) -> anyhow::Result<PathBuf> {
        if let Some(dir) = &self.model {
            anyhow::ensure!(dir.is_dir(), "--model {}: there is no such folder", dir.display());
            return Ok(dir.clone());
        }
        bundled_model().ok_or_else(|| {
            anyhow::anyhow!("--model DIR is required: the bundled model is not beside this program")
        })
    }

    /// The scale setting: what was asked for; the bundled model, which has no scales, takes `auto`.
    pub fn kv_scale(&self) -> Option<&str> {
        let bundled = self.model.is_none().then_some("auto");
        self.engine.kv_scale.as_deref().or(bundled)
    }

    /// The names clients may call the model by; the first is reported.
    ///
    /// # Errors
    /// As [`ServeArgs::model_dir`].
    pub fn served_names(&self) -> anyhow::Result<Vec<String>> {
        if !self.served_model_name.is_empty() {
            return Ok(self.served_model_name.clone());
        }
        let dir = self.model_dir()?;
        let dir = dir.canonicalize().unwrap_or(dir);
        let name = dir.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(vec![name.unwrap_or_else(|| "model".to_owned())])
    }

    /// The HTTP side's settings.
    ///
    /// # Errors
    /// As [`ServeArgs::model_dir`].
    pub fn server_config(&self) -> anyhow::Result<crate::http::ServerConfig> {
        let limits = &self.limits;
        Ok(crate::http::ServerConfig {
            host: self.host.clone(),
            port: self.port,
            served_names: self.served_names()?,
            fault_injection: self.fault_injection,
            body_limit: limits.body_limit.map(|size| size.0),
            body_timeout: Duration::from_secs(limits.body_timeout),
            keep_alive: Duration::from_secs(limits.keep_alive),
            stall_limit: Duration::from_secs(limits.stall_limit),
            shutdown_grace: Duration::from_secs(limits.shutdown_grace),
            ..crate::http::ServerConfig::default()
        })
    }
}

/// The model in the repository that this program was built from.
fn bundled_model() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.join("models/tiny-kimi");
    dir.is_dir().then_some(dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn serve(args: &[&str]) -> Result<ServeArgs, clap::Error> {
        let cli = Cli::try_parse_from(["tessera", "serve"].iter().chain(args))?;
        match cli.command {
            Command::Serve(args) => Ok(*args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_default_is_the_split_of_the_recipe() {
        let args = serve(&[]).unwrap();
        let engine = &args.engine;
        assert_eq!((&*engine.prefill_weights, &*engine.prefill_kv), ("fp8", "bf16"));
        assert_eq!((&*engine.decode_weights, &*engine.decode_kv), ("int4", "fp8_e4m3"));
        assert_eq!((engine.kv_integrity, args.kv_scale()), (OnOff::On, Some("auto")));
        assert_eq!(args.served_names().unwrap(), ["tiny-kimi"]);
        assert!(args.server_config().unwrap().keep_alive > Duration::from_secs(90));
    }

    #[test]
    fn a_device_a_pool() {
        let engine = serve(&[]).unwrap().engine;
        assert_eq!((engine.device, engine.kernels), (DeviceKind::Cpu, None));
        let args = ["--device", "cuda", "--kernels", "built", "--decode-device", "1"];
        let engine = serve(&args).unwrap().engine;
        assert_eq!((engine.device, engine.kernels), (DeviceKind::Cuda, Some("built".into())));
        assert_eq!((engine.prefill_device, engine.decode_device), (0, 1));
    }

    #[test]
    fn bad_settings_are_refused() {
        assert!(serve(&["--kv-memory", "lots"]).is_err());
        assert!(serve(&["--kv-integrity", "maybe"]).is_err());
        assert!(serve(&["--device", "cuda"]).is_err(), "without --kernels");
        assert!(serve(&["--model", "/nowhere"]).unwrap().server_config().is_err());
        assert_eq!(serve(&["--model", "x"]).unwrap().kv_scale(), None);
    }
}
