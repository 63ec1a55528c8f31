//! The bundled model behind its two pools, on the CPU and on the device: the same greedy tokens.

use crate::options::Options;
use crate::worker::{Message, Served, say};
use anyhow::{Context, Result, bail};
use clap::Parser;
use serde::Deserialize;
use std::path::Path;
use tessera::cli::{Cli, Command, DeviceKind, ServeArgs, start_engine};
use tessera::clock::Clock;
use tessera_tests::engine::{Engine, Said, greedy};

/// Formats of both pools: the stored weights, as transformers ran them, and those that are served
/// unless somebody says otherwise.
const FORMATS: [(&str, &[&str]); 2] = [
    (
        "bf16, bf16",
        &[
            "--prefill-weights",
            "bf16",
            "--prefill-kv",
            "bf16",
            "--decode-weights",
            "bf16",
            "--decode-kv",
            "bf16",
        ],
    ),
    // The bundled model has no scales of its own.
    ("fp8, int4", &["--kv-scale", "auto"]),
];

/// Sets of the model's evaluation of which the first prompts are taken; the first few where few are
/// wanted.
const SETS: [&str; 6] =
    ["capital", "arithmetic", "greeting", "multiple_choice", "word_problem", "story"];
const FEW_SETS: usize = 2;
/// Prompts of a set.
const PROMPTS: usize = 2;

/// A prompt of the evaluation.
#[derive(Debug, Clone, Deserialize)]
struct Prompt {
    id: String,
    prompt_ids: Vec<u32>,
    transformers_ids: Vec<u32>,
}

/// Says what came of each prompt.
pub(crate) fn run(options: &Options, small: bool) -> Result<()> {
    let prompts = prompts(&options.model().join("eval"), small)?;
    for (formats, flags) in FORMATS {
        let mut args = args(options, flags)?;
        let tokens = answers(&args, &prompts)?;
        args.engine.device = DeviceKind::Cpu;
        let cpu = answers(&args, &prompts)?;
        for ((prompt, tokens), cpu_tokens) in prompts.iter().zip(tokens).zip(cpu) {
            say(&Message::Served(Served {
                formats: formats.to_owned(),
                prompt: prompt.id.clone(),
                tokens,
                cpu_tokens,
                transformers_tokens: prompt.transformers_ids.clone(),
            }))?;
        }
    }
    Ok(())
}

fn prompts(folder: &Path, small: bool) -> Result<Vec<Prompt>> {
    let (sets, count) = if small { (&SETS[..FEW_SETS], 1) } else { (&SETS[..], PROMPTS) };
    let mut prompts = Vec::new();
    for set in sets {
        let path = folder.join(format!("{set}.jsonl"));
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        for line in text.lines().take(count) {
            prompts.push(serde_json::from_str(line).with_context(|| path.display().to_string())?);
        }
    }
    Ok(prompts)
}

/// What `tessera serve --device cuda` is told.
fn args(options: &Options, flags: &[&str]) -> Result<Box<ServeArgs>> {
    let (model, kernels) = (options.model(), options.kernels());
    let path = |path: &Path| path.to_str().map(str::to_owned).context("a path that is no text");
    let (model, kernels) = (path(&model)?, path(&kernels)?);
    let all = ["tessera", "serve", "--device", "cuda", "--model", &model, "--kernels", &kernels];
    // A small cache: the stand-in driver's memory is the host's.
    let all = [&all[..], &["--kv-memory", "4MiB", "--max-batch", "8"], flags].concat();
    match Cli::try_parse_from(all)?.command {
        Command::Serve(args) => Ok(args),
        other => bail!("{other:?}"),
    }
}

/// Greedy tokens of each prompt, all of them asked at once.
fn answers(args: &ServeArgs, prompts: &[Prompt]) -> Result<Vec<Vec<u32>>> {
    let (handle, threads) = start_engine(args, &Clock::system())?;
    let engine = Engine { handle, threads };
    let mut events = Vec::new();
    for prompt in prompts {
        let request = greedy(&prompt.prompt_ids, prompt.transformers_ids.len());
        events.push(engine.handle.submit(request)?.1);
    }
    let said: Vec<Said> = events.into_iter().map(Said::read).collect();
    engine.finish(0);
    for (prompt, said) in prompts.iter().zip(&said) {
        if let Err(error) = &said.end {
            bail!("{}: {error}", prompt.id);
        }
    }
    Ok(said.iter().map(Said::ids).collect())
}
