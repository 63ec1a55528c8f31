//! The fake model: what lies in page memory says whose it is, and the next token depends on it.

use tessera_kernels::ops::page_digest::{DigestKey, digest_layer};
use tessera_runtime::cache::{CacheNamespace, CacheSalt, LeaseId, PageId, PageTag, PoolSize};
use tessera_runtime::request::RequestId;

/// Xorshift: the same schedule for the same seed everywhere.
#[derive(Debug)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(mix(seed) | 1)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).expect("below a usize")
    }

    pub(super) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 31)).wrapping_mul(0x7fb5_d329_728e_a185);
    (x ^ (x >> 27)).wrapping_add(0x9e37_79b9_7f4a_7c15)
}

/// One position of a page: who wrote it, where, and after which tokens of which tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) owner: u64,
    pub(super) position: u64,
    pub(super) chain: u64,
}

impl Stamp {
    const BYTES: usize = 24;

    fn bytes(self) -> impl Iterator<Item = u8> {
        [self.owner, self.position, self.chain].into_iter().flat_map(u64::to_le_bytes)
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let word = |index: usize| {
            let bytes = bytes[8 * index..8 * index + 8].try_into().expect("eight bytes");
            u64::from_le_bytes(bytes)
        };
        Self { owner: word(0), position: word(1), chain: word(2) }
    }
}

/// Stamps as they travel.
pub(super) fn to_bytes(stamps: &[Stamp]) -> Vec<u8> {
    stamps.iter().flat_map(|stamp| stamp.bytes()).collect()
}

/// The digest that the engine would send, over one layer.
pub(super) fn digest(lease: LeaseId, index: usize, bytes: &[u8]) -> u64 {
    let narrow = |value: usize| u32::try_from(value).expect("a small pool");
    let key = DigestKey {
        owner: lease.transfer,
        generation: lease.generation,
        logical_page: narrow(index),
        valid_tokens: narrow(bytes.len() / Stamp::BYTES),
    };
    digest_layer(&key, 0, 1.0, bytes)
}

/// Why a request ended, as far as the simulation cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Finished,
    Aborted,
    Refused,
    Integrity,
    NotFinite,
    Handoff,
    ProcessDied,
}

/// A request as its client sees it, and what the model makes of it.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) id: RequestId,
    pub(super) salt: CacheSalt,
    pub(super) prompt_len: usize,
    pub(super) max_tokens: usize,
    /// Prompt and output.
    pub(super) tokens: Vec<u32>,
    /// The logits after so many tokens are not finite.
    pub(super) poison_at: Option<usize>,
    /// Sampled from the prompt, not told before the commit.
    pub(super) first: Option<u32>,
    pub(super) has_left: bool,
    pub(super) end: Option<End>,
}

impl Client {
    /// End of output.
    pub(super) const EOS: u32 = 0;

    pub(super) fn namespace(&self) -> CacheNamespace {
        CacheNamespace { salt: self.salt.clone(), adapter: None, model_revision: "m".into() }
    }

    pub(super) fn remaining(&self) -> usize {
        self.max_tokens - (self.tokens.len() - self.prompt_len)
    }

    pub(super) fn is_last(&self, token: u32) -> bool {
        token == Self::EOS || self.remaining() <= 1
    }

    /// What each position of the request must hold.
    pub(super) fn stamps(&self) -> Vec<Stamp> {
        let tenant = match &self.salt {
            CacheSalt::Tenant(name) => name.bytes().map(u64::from).sum(),
            CacheSalt::Private(id) => 1_000_000 + id.0,
        };
        let mut chain = mix(tenant);
        let stamp = |(position, token): (u64, &u32)| {
            chain = mix(chain ^ mix(u64::from(*token) + 1));
            Stamp { owner: self.id.0, position, chain }
        };
        (0..).zip(&self.tokens).map(stamp).collect()
    }

    /// The output as it must be, whatever happened on the way.
    pub(super) fn right_output(&self) -> Vec<u32> {
        let mut ideal = Self {
            salt: self.salt.clone(),
            tokens: self.tokens[..self.prompt_len].to_vec(),
            ..*self
        };
        loop {
            let token = sample(ideal.stamps().iter().map(|stamp| stamp.chain));
            let is_last = ideal.is_last(token);
            ideal.tokens.push(token);
            if is_last {
                return ideal.tokens;
            }
        }
    }
}

/// The next token, from all that was read.
pub(super) fn sample(chains: impl Iterator<Item = u64>) -> u32 {
    let sum = chains.fold(0, |sum, chain| mix(sum ^ chain));
    u32::try_from(sum % 23).expect("below 23")
}

/// A pool's memory and the device's copy of its tags.
#[derive(Debug)]
pub(super) struct Memory {
    page_size: usize,
    stamps: Vec<Option<Stamp>>,
    pub(super) tags: Vec<PageTag>,
}

impl Memory {
    pub(super) fn new(size: PoolSize) -> Self {
        let num_pages = size.num_pages as usize;
        let stamps = vec![None; num_pages * size.page_size];
        Self { page_size: size.page_size, stamps, tags: vec![PageTag(0); num_pages] }
    }

    /// The first entry of a table whose tag is not the device's.
    pub(super) fn bad_page(&self, pages: &[PageId], tags: &[PageTag]) -> Option<usize> {
        pages.iter().zip(tags).position(|(page, tag)| self.tags[page.0 as usize] != *tag)
    }

    pub(super) fn read(&self, pages: &[PageId], position: usize) -> Option<Stamp> {
        let page = pages[position / self.page_size].0 as usize;
        self.stamps[page * self.page_size + position % self.page_size]
    }

    pub(super) fn write(&mut self, pages: &[PageId], position: usize, stamp: Stamp) {
        let page = pages[position / self.page_size].0 as usize;
        self.stamps[page * self.page_size + position % self.page_size] = Some(stamp);
    }

    /// What came from the other pool, without asking whose the page is.
    pub(super) fn receive(&mut self, page: PageId, bytes: &[u8]) {
        let start = page.0 as usize * self.page_size;
        for (place, bytes) in self.stamps[start..].iter_mut().zip(bytes.chunks_exact(Stamp::BYTES))
        {
            *place = Some(Stamp::from_bytes(bytes));
        }
    }

    /// The first `len` positions of a page; short if some were never written.
    pub(super) fn bytes(&self, page: PageId, len: usize) -> Vec<u8> {
        let start = page.0 as usize * self.page_size;
        self.stamps[start..start + len].iter().flatten().flat_map(|stamp| stamp.bytes()).collect()
    }

    pub(super) fn clear(&mut self, page: PageId) {
        let start = page.0 as usize * self.page_size;
        self.stamps[start..start + self.page_size].fill(None);
    }
}
