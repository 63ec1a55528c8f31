//! Every op as a kernel of the tile language, one file an op.
//!
//! A kernel here and the reference in [`crate::ops`] say the same; the cases of `tests/cases` hold
//! both to the f64 evaluator. Nothing here runs: `kernels/artifacts` makes code of it.

pub mod absorb;
pub mod feed;
pub mod gather;
pub mod gqa;
pub mod kv_convert;
pub mod mla_decode;
pub mod mla_prefill;
pub mod page_digest;
pub mod page_tag_check;
mod paging;
pub mod permute;
pub mod rms_norm;
pub mod rope;
pub mod router;
pub mod sample;
mod softmax;
pub mod swiglu;
pub mod w_gemm;

use tessera_kernel_dsl::Entry;

/// Every kernel, one row each.
pub fn entries() -> Vec<Entry> {
    vec![
        absorb::absorb_query(),
        absorb::absorb_value(),
        feed::feed_tokens(),
        gather::embedding(),
        gather::gather_rows(),
        gqa::gqa_decode(),
        gqa::gqa_prefill(),
        kv_convert::kv_amax(),
        kv_convert::kv_convert(),
        kv_convert::kv_rescale(),
        mla_decode::mla_decode(),
        mla_decode::mla_merge(),
        mla_prefill::kv_gather(),
        mla_prefill::mla_prefill(),
        page_digest::page_digest(),
        page_tag_check::page_tag_check(),
        permute::combine(),
        permute::combine_shared(),
        permute::permute_order(),
        permute::permute_rows(),
        rms_norm::add_rms_norm(),
        rms_norm::rms_norm(),
        rope::kv_write(),
        rope::rope(),
        router::router(),
        sample::logit_stats(),
        sample::top_logprobs(),
        swiglu::swiglu(),
        w_gemm::w_gemm(),
        w_gemm::w_gemm_grouped(),
    ]
}
