//! Sampling: rows that only want their likeliest token by a kernel, the others on the host, where
//! penalties, filters and the seeded draw are.

use super::super::cpu::CpuDevice;
use super::super::layout::wants_likeliest;
use super::{Result, launched};
use std::sync::OnceLock;
use tessera_kernel_artifacts::cpu;
use tessera_kernels::ops::Rows;
use tessera_kernels::ops::sample::{Choice, Sample, SampleOutputs, sample_row};

pub(super) fn sample(device: &mut CpuDevice, op: &Sample) -> Result {
    let lent = [op.tokens, op.logprob, op.top_ids, op.top_logprobs];
    device.lend_with_scratch(lent, |device, scratch, [tokens, logprob, top_ids, top_logprobs]| {
        let (logits, rows) = (device.view(&op.logits), op.rows.len());
        let (argmax, log_sum) = (&mut scratch.argmax, &mut scratch.log_sum);
        if op.rows.iter().any(|row| wants_likeliest(&row.params)) {
            let (argmax, log_sum) = (argmax.view([rows]), log_sum.view([rows]));
            launched(cpu::LogitStats { logits, argmax, log_sum }.launch(device.cpu()))?;
        }
        let all = Rows::new(device.f32(op.logits.buffer), &op.logits);
        let choices: Vec<OnceLock<Choice>> = (0..rows).map(|_| OnceLock::new()).collect();
        let (argmax, log_sum) = (argmax.take(rows), log_sum.take(rows));
        device.cpu().pool().run(rows, 1, |part, _| {
            for row in part {
                let choice = if wants_likeliest(&op.rows[row].params) {
                    likeliest(all.row(row), argmax[row], log_sum[row])
                } else {
                    sample_row(all.row(row), &op.rows[row])
                };
                choices[row].get_or_init(|| choice);
            }
        });
        let choices = choices.into_iter().map(|choice| choice.into_inner().expect("set above"));
        let outputs = SampleOutputs {
            tokens: tokens.i32(),
            logprob: logprob.f32(),
            top_ids: top_ids.i32(),
            top_logprobs: top_logprobs.f32(),
        };
        op.write(choices, outputs);
        Ok(())
    })
}

fn likeliest(logits: &[f32], argmax: i32, log_sum: f32) -> Choice {
    let token = u32::try_from(argmax).ok();
    let logprob = token.map_or(f32::NAN, |token| logits[token as usize] - log_sum);
    Choice { token, logprob, top: Vec::new() }
}
