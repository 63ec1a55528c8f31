//! PTX to machine code, on every core, and never twice: what the tools said is kept under the hash
//! of everything that they were given.

use super::ptxas::{Figures, Finding, Said};
use super::sass::Sass;
use super::toolchain::{NVDISASM_VERSION, Toolchain};
use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tessera_ptx::Sm;
use tessera_ptx::bundle::{PTXAS_VERSION, sha256};

/// What the assembler is told besides the target: to say what a kernel takes, and to keep the
/// author's lines.
pub const FLAGS: [&str; 2] = ["--verbose", "--generate-line-info"];

/// Bytes of the cache past which the older half of it goes.
const MOST_CACHED_BYTES: u64 = 1 << 30;

/// What came of one kernel.
#[derive(Debug)]
pub enum Outcome {
    /// It was assembled.
    Assembled(Box<Assembled>),
    /// It was not, and why.
    Refused(Vec<Finding>),
}

/// One assembled kernel.
#[derive(Debug)]
pub struct Assembled {
    /// What it takes.
    pub figures: Figures,
    /// What the assembler warned of.
    pub warnings: Vec<Finding>,
    /// Its machine code.
    pub cubin: Vec<u8>,
    /// The same as text.
    pub sass: Sass,
}

/// The two tools, a target and the folder of what they said.
#[derive(Debug)]
pub struct Assembler {
    tools: Toolchain,
    target: Sm,
    cache: PathBuf,
}

impl Assembler {
    /// For a target; what the tools say is kept in `cache`.
    ///
    /// # Errors
    /// If that folder cannot be made.
    pub fn new(tools: Toolchain, target: Sm, cache: &Path) -> Result<Self> {
        std::fs::create_dir_all(cache)
            .with_context(|| format!("cannot make {}", cache.display()))?;
        prune(cache, MOST_CACHED_BYTES)?;
        Ok(Self { tools, target, cache: cache.to_owned() })
    }

    /// Assembles texts on every core; the outcomes are in their order.
    ///
    /// # Errors
    /// If a tool cannot be run, or the cache not be written.
    pub fn all(&self, texts: &[&str], bar: &ProgressBar) -> Result<Vec<Outcome>> {
        let next = AtomicUsize::new(0);
        let done: Mutex<Vec<(usize, Result<Outcome>)>> = Mutex::default();
        let work = || {
            while let Some((i, text)) = {
                let i = next.fetch_add(1, Ordering::Relaxed);
                texts.get(i).map(|text| (i, text))
            } {
                let outcome = self.one(text);
                bar.inc(1);
                done.lock().expect("no worker panics").push((i, outcome));
            }
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            (0..cores.min(texts.len())).for_each(|_| _ = scope.spawn(work));
        });
        let mut done = done.into_inner().expect("no worker panics");
        done.sort_by_key(|(i, _)| *i);
        done.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// Assembles one text, or reads what came of it before.
    ///
    /// # Errors
    /// If a tool cannot be run, or the cache not be written.
    pub fn one(&self, ptx: &str) -> Result<Outcome> {
        let key = self.key(ptx);
        let file = |end: &str| self.cache.join(format!("{key}.{end}"));
        let (said, cubin, sass) = (file("said"), file("cubin"), file("sass"));
        if ![&said, &cubin, &sass].iter().all(|file| file.exists()) {
            let text = file(&format!("{}.ptx", std::process::id()));
            write(&text, ptx.as_bytes())?;
            let mut ptxas = Command::new(&self.tools.ptxas);
            ptxas.args(FLAGS).arg(format!("--gpu-name={}", self.target.name()));
            let output = ptxas.arg(&text).arg("--output-file").arg(&cubin).output();
            let output = output.with_context(|| format!("cannot run {}", ptxas_name(&ptxas)))?;
            let words = [output.stdout, output.stderr].concat();
            let parsed = Said::parse(&String::from_utf8_lossy(&words));
            if !output.status.success() {
                return refused(parsed, &words);
            }
            // Of use to nobody else; a file that stays is pruned in time.
            let _ = std::fs::remove_file(&text);
            write(&said, &words)?;
            write(&sass, &self.disassemble(&cubin)?)?;
        }
        let parsed = Said::parse(&read_text(&said)?);
        let figures = parsed.figures.context("ptxas said nothing of the kernel")?;
        let cubin =
            std::fs::read(&cubin).with_context(|| format!("cannot read {}", cubin.display()))?;
        let sass = Sass::parse(&read_text(&sass)?);
        let warnings = parsed.findings;
        Ok(Outcome::Assembled(Box::new(Assembled { figures, warnings, cubin, sass })))
    }

    fn disassemble(&self, cubin: &Path) -> Result<Vec<u8>> {
        let mut nvdisasm = Command::new(&self.tools.nvdisasm);
        nvdisasm.args(["--print-line-info", "--print-code"]).arg(cubin);
        let output = nvdisasm.output().context("cannot run nvdisasm")?;
        if !output.status.success() {
            bail!("nvdisasm: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(output.stdout)
    }

    /// Hash of everything that the outcome depends on.
    fn key(&self, ptx: &str) -> String {
        let [verbose, lines] = FLAGS;
        let target = self.target.name();
        let head = format!("{PTXAS_VERSION} {NVDISASM_VERSION} {target} {verbose} {lines}\n");
        sha256((head + ptx).as_bytes())[..32].to_owned()
    }
}

fn ptxas_name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

fn refused(said: Said, words: &[u8]) -> Result<Outcome> {
    if !said.failed() {
        bail!("ptxas failed and said: {}", String::from_utf8_lossy(words).trim());
    }
    Ok(Outcome::Refused(said.findings))
}

/// Removes the oldest files of a cache until half of `most` is left, if there are more bytes.
fn prune(cache: &Path, most: u64) -> Result<()> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(cache)? {
        let entry = entry?;
        let about = entry.metadata()?;
        files.push((about.modified()?, about.len(), entry.path()));
    }
    let mut bytes: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
    if bytes <= most {
        return Ok(());
    }
    files.sort();
    for (_, own, path) in files {
        if bytes <= most / 2 {
            break;
        }
        // Another build may have removed it.
        let _ = std::fs::remove_file(path);
        bytes -= own;
    }
    Ok(())
}

fn read_text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Writes a file that others may be reading: it is there whole or not at all.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let partial = path.with_extension(format!("{}-{number}.partial", std::process::id()));
    std::fs::write(&partial, bytes)
        .and_then(|()| std::fs::rename(&partial, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_that_is_too_large_loses_half() {
        let folder = std::env::temp_dir().join(format!("tessera-prune-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for i in 0..8 {
            write(&folder.join(format!("{i}.sass")), &[0; 100]).unwrap();
        }
        let left = || std::fs::read_dir(&folder).unwrap().count();
        prune(&folder, 800).unwrap();
        assert_eq!(left(), 8);
        prune(&folder, 799).unwrap();
        assert_eq!(left(), 3);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
