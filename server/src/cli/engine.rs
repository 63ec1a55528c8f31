//! From settings to a running engine.

use super::ServeArgs;
use tessera_runtime::engine::EngineHandle;

/// The threads of a running engine.
#[derive(Debug, Default)]
pub struct EngineThreads(pub Vec<std::thread::JoinHandle<()>>);

impl EngineThreads {
    /// Waits until every thread has ended, which they do once the engine has drained.
    ///
    /// # Errors
    /// A thread has panicked.
    pub fn join(self) -> anyhow::Result<()> {
        for thread in self.0 {
            let name = thread.thread().name().unwrap_or("engine").to_owned();
            thread.join().map_err(|_| anyhow::anyhow!("the {name} thread has panicked"))?;
        }
        Ok(())
    }
}

/// Loads the checkpoint and starts both pools.
///
/// # Errors
/// A setting or a file will not do; the message says which and why.
pub fn start_engine(args: &ServeArgs) -> anyhow::Result<(EngineHandle, EngineThreads)> {
    let dir = args.model_dir()?;
    anyhow::bail!("{}: this build has no engine yet", dir.display())
}
