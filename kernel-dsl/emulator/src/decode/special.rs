//! Special registers.

use crate::program::{MaskKind, Special};

/// The special register that a name stands for.
pub(crate) fn parse(name: &str) -> Option<Special> {
    let name = name.strip_prefix('%')?;
    if let Some((base, axis)) = name.split_once('.') {
        let axis = ["x", "y", "z"].iter().position(|&letter| letter == axis)?;
        return Some(match base {
            "tid" => Special::Tid(axis),
            "ntid" => Special::Ntid(axis),
            "ctaid" | "clusterid" => Special::Ctaid(axis),
            "nctaid" | "nclusterid" => Special::Nctaid(axis),
            // A cluster is one CTA here.
            "cluster_ctaid" => Special::Zero,
            "cluster_nctaid" => Special::One,
            _ => return None,
        });
    }
    Some(match name {
        "laneid" => Special::LaneId,
        "warpid" => Special::WarpId,
        "nwarpid" => Special::NumWarps,
        "smid" => Special::SmId,
        "cluster_ctarank" => Special::Zero,
        "cluster_nctarank" => Special::One,
        "clock" => Special::Clock { bits: 32 },
        "clock64" | "globaltimer" => Special::Clock { bits: 64 },
        "lanemask_eq" => Special::LaneMask(MaskKind::Eq),
        "lanemask_le" => Special::LaneMask(MaskKind::Le),
        "lanemask_lt" => Special::LaneMask(MaskKind::Lt),
        "lanemask_ge" => Special::LaneMask(MaskKind::Ge),
        "lanemask_gt" => Special::LaneMask(MaskKind::Gt),
        "dynamic_smem_size" => Special::DynamicShared,
        "total_smem_size" => Special::TotalShared,
        _ => return None,
    })
}
