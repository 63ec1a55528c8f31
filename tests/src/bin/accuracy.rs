//! `cargo xtask accuracy`: the bundled model's evaluation sets through HTTP, per configuration.
//!
//! "as transformers" counts answers whose token ids are the ones transformers gave greedily in
//! float32; a first difference between two tokens that are nearly as likely is a tie and counts
//! apart. "right" counts answers whose text is the expected one.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tessera_tests::client::Served;

/// Log-probability gap under which two tokens count as equally likely.
const TIE: f64 = 0.02;
/// Requests in flight.
const CLIENTS: usize = 8;

/// The configurations, by the name printed.
const CONFIGURATIONS: [(&str, &[&str]); 2] = [
    (
        "bf16",
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
    (
        "split",
        &[
            "--prefill-weights",
            "fp8",
            "--prefill-kv",
            "bf16",
            "--decode-weights",
            "int4",
            "--decode-kv",
            "fp8_e4m3",
            "--kv-scale",
            "auto",
        ],
    ),
];

/// Accuracy of a model on its evaluation sets.
#[derive(Debug, Parser)]
struct Args {
    /// The `tessera` binary.
    #[arg(long)]
    tessera: PathBuf,
    /// Model with an `eval` folder.
    #[arg(long)]
    model: PathBuf,
    /// Fail if fewer BF16 answers than this share are transformers' (ties aside).
    #[arg(long, default_value_t = 0.99)]
    require: f64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Score {
    items: usize,
    same: usize,
    ties: usize,
    right: usize,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let tasks = read_tasks(&args.model.join("eval"))?;
    let mut columns = Vec::new();
    for (name, flags) in CONFIGURATIONS {
        eprintln!("{name}: tessera serve {}", flags.join(" "));
        let model = args.model.to_str().context("the model's path is not UTF-8")?;
        let server = Served::start(&args.tessera, &[&["--model", model], flags].concat())?;
        columns.push(run(&server, &tasks)?);
    }
    print_table(&tasks, &columns);
    let bf16 = columns[0].values().fold(Score::default(), |a, &b| a + b);
    let share = (bf16.same + bf16.ties) as f64 / bf16.items as f64;
    println!("\nbf16 answers as transformers, ties aside: {:.2} %", 100.0 * share);
    ensure!(share >= args.require, "fewer than {:.2} %", 100.0 * args.require);
    Ok(())
}

type Tasks = BTreeMap<String, Vec<Value>>;

fn read_tasks(dir: &Path) -> Result<Tasks> {
    let mut tasks = Tasks::new();
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "jsonl") {
            let text = std::fs::read_to_string(&path)?;
            let items = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            tasks.insert(name, items);
        }
    }
    ensure!(!tasks.is_empty(), "{} holds no .jsonl file", dir.display());
    Ok(tasks)
}

fn run(server: &Served, tasks: &Tasks) -> Result<BTreeMap<String, Score>> {
    let items: Vec<(&String, &Value)> =
        tasks.iter().flat_map(|(task, items)| items.iter().map(move |item| (task, item))).collect();
    let next = AtomicUsize::new(0);
    let scores = Mutex::new(BTreeMap::<String, Score>::new());
    std::thread::scope(|scope| {
        let client = || -> Result<()> {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some((task, item)) = items.get(index) else { return Ok(()) };
                let score = ask(server, item).with_context(|| item["id"].to_string())?;
                let mut scores = scores.lock().expect("no client panicked");
                let entry = scores.entry((*task).clone()).or_default();
                *entry = *entry + score;
                if (index + 1).is_multiple_of(40) {
                    eprintln!("  {} of {}", index + 1, items.len());
                }
            }
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        clients.into_iter().try_for_each(|client| client.join().expect("no client panicked"))
    })?;
    Ok(scores.into_inner().expect("no client panicked"))
}

fn ask(server: &Served, item: &Value) -> Result<Score> {
    let mut body = json!({
        "model": "tiny-kimi", "messages": item["messages"], "temperature": 0, "max_tokens": 256,
        "logprobs": true, "top_logprobs": 2, "return_token_ids": true,
    });
    if !item["tools"].is_null() {
        body["tools"] = item["tools"].clone();
    }
    let answer = server.post("/v1/chat/completions", &body)?;
    ensure!(answer["prompt_token_ids"] == item["prompt_ids"], "the prompt's ids differ: {answer}");
    let choice = &answer["choices"][0];
    let ids = |value: &Value| -> Vec<u64> {
        value.as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
    };
    let (got, want) = (ids(&choice["token_ids"]), ids(&item["transformers_ids"]));
    let same = got == want;
    let tie = !same && first_difference_is_tie(choice, &got, &want);
    let right = choice["message"]["content"] == item["answer_text"];
    Ok(Score { items: 1, same: same.into(), ties: tie.into(), right: right.into() })
}

/// Whether the first token that differs was nearly as likely as the best other one.
fn first_difference_is_tie(choice: &Value, got: &[u64], want: &[u64]) -> bool {
    let at = got.iter().zip(want).take_while(|(a, b)| a == b).count();
    let top = &choice["logprobs"]["content"][at]["top_logprobs"];
    let gap = |value: &Value| value["logprob"].as_f64();
    matches!((gap(&top[0]), gap(&top[1])), (Some(a), Some(b)) if a - b < TIE)
}

fn print_table(tasks: &Tasks, columns: &[BTreeMap<String, Score>]) {
    print!("{:<18} {:>6}", "task", "items");
    for (name, _) in CONFIGURATIONS {
        print!(" | {:>5} {:>15} {:>5} {:>6}", name, "as transformers", "ties", "right");
    }
    println!();
    let row = |name: &str, scores: Vec<Score>| {
        print!("{name:<18} {:>6}", scores[0].items);
        for s in scores {
            let percent = |n: usize| format!("{:.1}%", 100.0 * n as f64 / s.items as f64);
            print!(" | {:>21} {:>5} {:>6}", percent(s.same), s.ties, percent(s.right));
        }
        println!();
    };
    for task in tasks.keys() {
        row(task, columns.iter().map(|column| column[task]).collect());
    }
    let total =
        |column: &BTreeMap<String, Score>| column.values().fold(Score::default(), |a, &b| a + b);
    row("all", columns.iter().map(total).collect());
}

impl std::ops::Add for Score {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            items: self.items + other.items,
            same: self.same + other.same,
            ties: self.ties + other.ties,
            right: self.right + other.right,
        }
    }
}
