//! A step's inputs and answers in host memory, which every step uses again.

use super::forward::{Sampled, SeqInput, SeqOutput, StepLimits, row_index};
use super::workspace::Workspace;
use crate::cache::{PageTracker, tracking};
use crate::device::{Device, DeviceError, Target};
use tessera_kernels::ops::sample::MAX_TOP_LOGPROBS;

/// A step's inputs as the device wants them.
#[derive(Debug)]
pub(super) struct StepInputs {
    pub(super) ids: Vec<i32>,
    pub(super) positions: Vec<i32>,
    pub(super) slots: Vec<i64>,
    pub(super) cu_seqlens_q: Vec<i32>,
    pub(super) seq_lens: Vec<i32>,
    pub(super) block_table: Vec<i32>,
    pub(super) expected_tags: Vec<u64>,
    pub(super) num_pages: Vec<i32>,
    /// As many as tokens: what the count of clamped elements begins with.
    pub(super) zeros: Vec<u32>,
    /// Which sequences want a sample.
    pub(super) sampling: Vec<usize>,
    /// Row of the last token of each of those.
    pub(super) last_rows: Vec<i32>,
    pages_per_seq: usize,
}

impl StepInputs {
    /// Room for the largest step.
    pub(super) fn new(limits: &StepLimits) -> Self {
        let (tokens, seqs) = (limits.tokens, limits.seqs);
        let pages = seqs * limits.pages_per_seq;
        Self {
            ids: Vec::with_capacity(tokens),
            positions: Vec::with_capacity(tokens),
            slots: Vec::with_capacity(tokens),
            cu_seqlens_q: Vec::with_capacity(seqs + 1),
            seq_lens: Vec::with_capacity(seqs),
            block_table: Vec::with_capacity(pages),
            expected_tags: Vec::with_capacity(pages),
            num_pages: Vec::with_capacity(seqs),
            zeros: Vec::with_capacity(tokens),
            sampling: Vec::with_capacity(seqs),
            last_rows: Vec::with_capacity(seqs),
            pages_per_seq: limits.pages_per_seq,
        }
    }

    /// Tokens of the step.
    pub(super) fn num_tokens(&self) -> usize {
        self.ids.len()
    }

    /// Takes a step's sequences.
    pub(super) fn fill<T: PageTracker>(&mut self, seqs: &[SeqInput<'_, T>], page_size: usize) {
        self.ids.clear();
        self.positions.clear();
        self.slots.clear();
        self.cu_seqlens_q.clear();
        self.cu_seqlens_q.push(0);
        self.seq_lens.clear();
        self.sampling.clear();
        self.last_rows.clear();
        self.block_table.clear();
        for (s, seq) in seqs.iter().enumerate() {
            self.push(seq, page_size);
            if seq.sample.is_some() {
                self.sampling.push(s);
                self.last_rows.push(row_index(self.ids.len() - 1));
            }
            let pages = seq.pages.iter().take(self.pages_per_seq);
            self.block_table.extend(pages.map(|page| row_index(page.0 as usize)));
            self.block_table.resize((s + 1) * self.pages_per_seq, 0);
        }
        self.zeros.clear();
        self.zeros.resize(self.ids.len(), 0);
        tracking! {
            if T::KEEPS_TAGS {
                self.fill_ledgers(seqs);
            }
        }
    }

    fn push<T: PageTracker>(&mut self, seq: &SeqInput<'_, T>, page_size: usize) {
        for (i, &token) in seq.tokens.iter().enumerate() {
            let position = seq.start + i;
            let page = seq.pages[position / page_size].0 as usize;
            self.ids.push(row_index(token as usize));
            self.positions.push(row_index(position));
            self.slots.push((page * page_size + position % page_size) as i64);
        }
        self.cu_seqlens_q.push(row_index(self.ids.len()));
        self.seq_lens.push(row_index(seq.start + seq.tokens.len()));
    }

    /// The tags that each sequence expects of its pages.
    fn fill_ledgers<T: PageTracker>(&mut self, seqs: &[SeqInput<'_, T>]) {
        self.expected_tags.clear();
        self.num_pages.clear();
        for (s, seq) in seqs.iter().enumerate() {
            let tags = T::tags(seq.ledger);
            self.expected_tags.extend(tags.iter().take(self.pages_per_seq).map(|tag| tag.0));
            self.expected_tags.resize((s + 1) * self.pages_per_seq, 0);
            self.num_pages.push(row_index(tags.len()));
        }
    }
}

/// What a step reads back.
#[derive(Debug)]
pub(super) struct StepAnswers {
    saturated: Vec<u32>,
    mismatch: Vec<i32>,
    tokens: Vec<i32>,
    logprobs: Vec<f32>,
    top_ids: Vec<i32>,
    top_logprobs: Vec<f32>,
    /// Likeliest tokens read for each row.
    max_top: usize,
}

impl StepAnswers {
    /// Room for the largest step.
    pub(super) fn new(limits: &StepLimits) -> Self {
        let (rows, top) = (limits.logit_rows, limits.logit_rows * MAX_TOP_LOGPROBS as usize);
        Self {
            saturated: Vec::with_capacity(limits.tokens),
            mismatch: Vec::with_capacity(limits.seqs),
            tokens: Vec::with_capacity(rows),
            logprobs: Vec::with_capacity(rows),
            top_ids: Vec::with_capacity(top),
            top_logprobs: Vec::with_capacity(top),
            max_top: 0,
        }
    }

    /// Reads what the step of `inputs` left on the device, `max_top` likeliest tokens a row.
    pub(super) fn read<D: Device, T: PageTracker>(
        &mut self,
        device: &D,
        work: &Workspace,
        (inputs, max_top): (&StepInputs, usize),
    ) -> Result<(), DeviceError> {
        let rows = inputs.sampling.len();
        self.max_top = max_top;
        self.saturated.resize(inputs.num_tokens(), 0);
        self.tokens.resize(rows, 0);
        self.logprobs.resize(rows, 0.0);
        self.top_ids.resize(rows * max_top, 0);
        self.top_logprobs.resize(rows * max_top, 0.0);
        let sampled = [
            (work.saturated, Target::U32(&mut self.saturated)),
            (work.sampled, Target::I32(&mut self.tokens)),
            (work.sampled_logprob, Target::F32(&mut self.logprobs)),
            (work.top_ids, Target::I32(&mut self.top_ids)),
            (work.top_logprobs, Target::F32(&mut self.top_logprobs)),
        ];
        tracking! {
            if T::KEEPS_TAGS {
                self.mismatch.resize(inputs.seq_lens.len(), -1);
                let [a, b, c, d, e] = sampled;
                let checked = (work.mismatch, Target::I32(&mut self.mismatch));
                return device.read_all(&mut [a, b, c, d, e, checked]);
            }
        }
        let mut sampled = sampled;
        device.read_all(&mut sampled)
    }

    /// One output a sequence. They leave the step, so they alone are allocated: the list, and the
    /// likeliest tokens of each row that asked for some.
    pub(super) fn outputs<T: PageTracker>(&self, seqs: &[SeqInput<'_, T>]) -> Vec<SeqOutput> {
        let mut rest = self.saturated.as_slice();
        let mut row = 0;
        let mut outputs = Vec::with_capacity(seqs.len());
        for seq in seqs {
            let (own, others) = rest.split_at(seq.tokens.len());
            rest = others;
            let sampled = seq.sample.as_ref().map(|sample| {
                let top = sample.params.top_logprobs.unwrap_or(0) as usize;
                row += 1;
                self.sampled(row - 1, top)
            });
            let saturated = own.iter().map(|&count| u64::from(count)).sum();
            outputs.push(SeqOutput { bad_page: None, sampled, saturated });
        }
        tracking! {
            if T::KEEPS_TAGS {
                for (output, &index) in outputs.iter_mut().zip(&self.mismatch) {
                    output.bad_page = usize::try_from(index).ok();
                }
            }
        }
        outputs
    }

    fn sampled(&self, row: usize, top: usize) -> Sampled {
        let Ok(id) = u32::try_from(self.tokens[row]) else { return Sampled::NotFinite };
        let range = row * self.max_top..row * self.max_top + top;
        let top = self.top_ids[range.clone()].iter().zip(&self.top_logprobs[range]);
        let top = top.filter_map(|(&id, &lp)| Some((u32::try_from(id).ok()?, lp))).collect();
        Sampled::Token { id, logprob: self.logprobs[row], top }
    }
}
