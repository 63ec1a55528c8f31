//! Sampling: rows that only want their likeliest token by kernels, the others on the host, where
//! penalties, filters and the seeded draw are.

use super::super::CudaDevice;
use super::super::ffi::{bytes_of, bytes_of_mut};
use super::super::memory::Hold;
use super::super::views::dense;
use super::Result;
use crate::device::layout::wants_likeliest;
use rayon::prelude::*;
use tessera_kernels::launch::{BufferId, BufferType};
use tessera_kernels::ops::sample::{Choice, Sample, SampleOutputs, sample_row};

pub(super) fn sample(device: &mut CudaDevice, op: &Sample) -> Result {
    device.writes([op.tokens, op.top_ids]);
    let plain: Vec<bool> = op.rows.iter().map(|row| wants_likeliest(&row.params)).collect();
    if plain.contains(&true) {
        likeliest(device, op)?;
    }
    if plain.contains(&false) || op.max_top > 0 {
        on_host(device, op, &plain)?;
    }
    Ok(())
}

/// Likeliest token of every row and its log probability. A row that holds no such gets -1 and NaN.
fn likeliest(device: &mut CudaDevice, op: &Sample) -> Result {
    let rows = op.rows.len();
    let log_sum = device.hold(Hold::LogSum, BufferType::F32, [rows])?;
    let top_ids = device.hold(Hold::TopIds, BufferType::I32, [rows, 1])?;
    let counts = device.scratch.one_each(&mut device.uploads, rows)?;
    let counts = dense(counts.address(), "i32", [rows]);
    let logits = device.rows(&op.logits);
    let args = [logits, device.array(op.tokens, [rows]), log_sum];
    device.kernels.launch("logit_stats", &args)?;
    // The likeliest one's log probability is the first of the top one.
    let args = [logits, log_sum, counts, top_ids, device.array(op.logprob, [rows, 1])];
    Ok(device.kernels.launch("top_logprobs", &args)?)
}

/// Samples the rows that are not plain, and writes all rows' outputs together.
fn on_host(device: &mut CudaDevice, op: &Sample, plain: &[bool]) -> Result {
    let (count, vocab, top) = (op.rows.len(), op.logits.cols, op.rows.len() * op.max_top);
    let (mut tokens, mut logprob) = (vec![0i32; count], vec![0f32; count]);
    let drawn = plain.iter().filter(|&&plain| !plain).count();
    let mut logits = vec![0f32; drawn * vocab];
    let memory = |id: BufferId| &device.buffers[id.0 as usize].memory;
    let mut readers = vec![
        (memory(op.tokens), 0, bytes_of_mut(&mut tokens)),
        (memory(op.logprob), 0, bytes_of_mut(&mut logprob)),
    ];
    let drawn = (0..count).filter(|&row| !plain[row]);
    for (row, logits) in drawn.zip(logits.chunks_mut(vocab.max(1))) {
        let start = op.logits.offset + row * op.logits.stride;
        readers.push((memory(op.logits.buffer), start * 4, bytes_of_mut(logits)));
    }
    device.fetch(readers)?;
    let drawn: Vec<usize> = (0..count).filter(|&row| !plain[row]).collect();
    let drawn: Vec<Choice> = drawn
        .par_iter()
        .zip(logits.par_chunks(vocab.max(1)))
        .map(|(&row, logits)| sample_row(logits, &op.rows[row]))
        .collect();
    let mut drawn = drawn.into_iter();
    let likeliest = tokens.clone().into_iter().zip(logprob.clone());
    let choices = plain.iter().zip(likeliest).map(|(&plain, (token, logprob))| match plain {
        true => Choice { token: u32::try_from(token).ok(), logprob, top: Vec::new() },
        false => drawn.next().expect("one a row that is drawn"),
    });
    let choices: Vec<Choice> = choices.collect();
    let (mut top_ids, mut top_logprobs) = (vec![-1i32; top], vec![f32::NEG_INFINITY; top]);
    op.write(
        choices,
        SampleOutputs {
            tokens: &mut tokens,
            logprob: &mut logprob,
            top_ids: &mut top_ids,
            top_logprobs: &mut top_logprobs,
        },
    );
    let CudaDevice { buffers, uploads, .. } = device;
    let mut write =
        |id: BufferId, bytes: &[u8]| uploads.write((&buffers[id.0 as usize].memory, 0), bytes);
    write(op.tokens, bytes_of(&tokens))?;
    write(op.logprob, bytes_of(&logprob))?;
    write(op.top_ids, bytes_of(&top_ids))?;
    Ok(write(op.top_logprobs, bytes_of(&top_logprobs))?)
}
