//! A `tessera serve` of one's own, and just enough HTTP to talk to it.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A running server process; it ends with this value.
#[derive(Debug)]
pub struct Served {
    child: Child,
    address: String,
}

impl Served {
    /// Starts `tessera serve --port 0 ARGS...` and waits until it says where it listens.
    ///
    /// # Errors
    /// If it cannot be started or ends before it is ready.
    pub fn start(tessera: &Path, args: &[&str]) -> Result<Self> {
        let mut child = Command::new(tessera)
            .args(["serve", "--port", "0"])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", tessera.display()))?;
        let stdout = child.stdout.take().context("stdout was piped")?;
        let mut lines = BufReader::new(stdout).lines();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let rest = line.split("http://").nth(1)?;
            let end = rest.find(|c: char| c == '/' || c.is_whitespace()).unwrap_or(rest.len());
            Some(rest[..end].to_owned())
        });
        // Whatever it prints later must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let Some(address) = address else {
            bail!("`tessera serve {}` ended with {}", args.join(" "), child.wait()?);
        };
        Ok(Self { child, address })
    }

    /// Where it listens, `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Answer to a GET, as text.
    ///
    /// # Errors
    /// If the connection fails or the status is not 200.
    pub fn get(&self, path: &str) -> Result<String> {
        exchange(&self.address, &format!("GET {path} HTTP/1.0\r\n\r\n"))
    }

    /// Answer to a POST of JSON.
    ///
    /// # Errors
    /// If the connection fails, the status is not 200 or the answer is not JSON.
    pub fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let answer = exchange(&self.address, &(head + &body))?;
        serde_json::from_str(&answer).with_context(|| format!("not JSON: {answer}"))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended on its own; either way nothing is left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn exchange(address: &str, request: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer without a body")?;
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    ensure!(status == "200", "status {status}: {body}");
    Ok(body.to_owned())
}
