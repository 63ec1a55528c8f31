//! A step's inputs and answers in host memory, which every step uses again.

use super::forward::{NewTokens, Sampled, SeqInput, SeqOutput, StepLimits, row_index};
use super::workspace::Workspace;
use crate::cache::{PageTracker, tracking};
use crate::device::{Device, DeviceError, ReadTicket, Target};
use tessera_kernels::launch::BufferId;
use tessera_kernels::ops::feed::given;
use tessera_kernels::ops::sample::MAX_TOP_LOGPROBS;

/// A step's inputs as the device wants them.
#[derive(Debug)]
pub(super) struct StepInputs {
    /// Whether `ids` are what the device makes the step's ids of.
    pub(super) are_fed: bool,
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
    /// Row of the last token of each sequence that wants a sample.
    pub(super) last_rows: Vec<i32>,
    pages_per_seq: usize,
}

impl StepInputs {
    /// Room for the largest step.
    pub(super) fn new(limits: &StepLimits) -> Self {
        let (tokens, seqs) = (limits.tokens, limits.seqs);
        let pages = seqs * limits.pages_per_seq;
        Self {
            are_fed: false,
            ids: Vec::with_capacity(tokens),
            positions: Vec::with_capacity(tokens),
            slots: Vec::with_capacity(tokens),
            cu_seqlens_q: Vec::with_capacity(seqs + 1),
            seq_lens: Vec::with_capacity(seqs),
            block_table: Vec::with_capacity(pages),
            expected_tags: Vec::with_capacity(pages),
            num_pages: Vec::with_capacity(seqs),
            zeros: Vec::with_capacity(tokens),
            last_rows: Vec::with_capacity(seqs),
            pages_per_seq: limits.pages_per_seq,
        }
    }

    /// Tokens of the step.
    pub(super) fn num_tokens(&self) -> usize {
        self.ids.len()
    }

    /// Takes a step's sequences. If `are_fed`, the device makes its ids itself.
    pub(super) fn fill<T: PageTracker>(
        &mut self,
        seqs: &[SeqInput<'_, T>],
        (page_size, are_fed): (usize, bool),
    ) {
        self.are_fed = are_fed;
        self.ids.clear();
        self.positions.clear();
        self.slots.clear();
        self.cu_seqlens_q.clear();
        self.cu_seqlens_q.push(0);
        self.seq_lens.clear();
        self.last_rows.clear();
        self.block_table.clear();
        for (s, seq) in seqs.iter().enumerate() {
            self.push(seq, page_size);
            if seq.sample.is_some() {
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
        match seq.tokens {
            NewTokens::Given(tokens) if self.are_fed => {
                self.ids.extend(tokens.iter().map(|&token| given(row_index(token as usize))));
            }
            NewTokens::Given(tokens) => {
                self.ids.extend(tokens.iter().map(|&token| row_index(token as usize)));
            }
            NewTokens::Sampled { row } => {
                assert!(
                    self.are_fed,
                    "a token that is not known, on a device that never runs ahead"
                );
                self.ids.push(row_index(row));
            }
        }
        for position in seq.start..seq.start + seq.tokens.len() {
            let page = seq.pages[position / page_size].0 as usize;
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
    /// What each sequence of the step gets of it.
    shares: Vec<Share>,
    saturated: Vec<u32>,
    mismatch: Vec<i32>,
    tokens: Vec<i32>,
    logprobs: Vec<f32>,
    top_ids: Vec<i32>,
    top_logprobs: Vec<f32>,
    /// Likeliest tokens read for each row.
    max_top: usize,
}

/// One sequence's part of a step's answers.
#[derive(Debug, Clone, Copy)]
struct Share {
    tokens: usize,
    /// Likeliest tokens it wants beside its sample; `None` if it wants no sample.
    top: Option<usize>,
}

impl StepAnswers {
    /// Room for the largest step.
    pub(super) fn new(limits: &StepLimits) -> Self {
        let (rows, top) = (limits.logit_rows, limits.logit_rows * MAX_TOP_LOGPROBS as usize);
        Self {
            shares: Vec::with_capacity(limits.seqs),
            saturated: Vec::with_capacity(limits.tokens),
            mismatch: Vec::with_capacity(limits.seqs),
            tokens: Vec::with_capacity(rows),
            logprobs: Vec::with_capacity(rows),
            top_ids: Vec::with_capacity(top),
            top_logprobs: Vec::with_capacity(top),
            max_top: 0,
        }
    }

    /// Makes room for the answers of a step, with `max_top` likeliest tokens a row.
    pub(super) fn expect<T: PageTracker>(&mut self, seqs: &[SeqInput<'_, T>], max_top: usize) {
        self.shares.clear();
        self.shares.extend(seqs.iter().map(|seq| Share {
            tokens: seq.tokens.len(),
            top: seq.sample.as_ref().map(|row| row.params.top_logprobs.unwrap_or(0) as usize),
        }));
        let rows = self.shares.iter().filter(|share| share.top.is_some()).count();
        self.max_top = max_top;
        self.saturated.resize(self.shares.iter().map(|share| share.tokens).sum(), 0);
        self.tokens.resize(rows, 0);
        self.logprobs.resize(rows, 0.0);
        self.top_ids.resize(rows * max_top, 0);
        self.top_logprobs.resize(rows * max_top, 0.0);
        tracking! {
            if T::KEEPS_TAGS {
                self.mismatch.resize(seqs.len(), -1);
            }
        }
    }

    /// Starts to read them.
    pub(super) fn start_read<D: Device, T: PageTracker>(
        &mut self,
        device: &mut D,
        work: &Workspace,
    ) -> Result<ReadTicket, DeviceError> {
        self.with_targets::<T, _>(work, |targets| device.start_read(targets))
    }

    /// Waits for them.
    pub(super) fn finish_read<D: Device, T: PageTracker>(
        &mut self,
        device: &mut D,
        (work, ticket): (&Workspace, ReadTicket),
    ) -> Result<(), DeviceError> {
        self.with_targets::<T, _>(work, |targets| device.finish_read(ticket, targets))
    }

    fn with_targets<T: PageTracker, R>(
        &mut self,
        work: &Workspace,
        read: impl FnOnce(&mut [(BufferId, Target<'_>)]) -> R,
    ) -> R {
        let sampled = [
            (work.saturated, Target::U32(&mut self.saturated)),
            (work.sampled, Target::I32(&mut self.tokens)),
            (work.sampled_logprob, Target::F32(&mut self.logprobs)),
            (work.top_ids, Target::I32(&mut self.top_ids)),
            (work.top_logprobs, Target::F32(&mut self.top_logprobs)),
        ];
        tracking! {
            if T::KEEPS_TAGS {
                let [a, b, c, d, e] = sampled;
                let checked = (work.mismatch, Target::I32(&mut self.mismatch));
                return read(&mut [a, b, c, d, e, checked]);
            }
        }
        let mut sampled = sampled;
        read(&mut sampled)
    }

    /// One output a sequence. They leave the step, so they alone are allocated: the list, and the
    /// likeliest tokens of each row that asked for some.
    pub(super) fn outputs<T: PageTracker>(&self) -> Vec<SeqOutput> {
        let mut rest = self.saturated.as_slice();
        let mut row = 0;
        let mut outputs = Vec::with_capacity(self.shares.len());
        for share in &self.shares {
            let (own, others) = rest.split_at(share.tokens);
            rest = others;
            let sampled = share.top.map(|top| {
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
