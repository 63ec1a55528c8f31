//! What the accesses of a warp cost the memory: sectors and passes.

use super::access::lanes;
use crate::program::Lanes;

/// Bytes of a sector.
const SECTOR: u64 = 32;
const BANKS: usize = 32;

/// Whether all lanes take part and follow each other in memory.
fn is_contiguous(mask: u32, addresses: &Lanes, total: usize) -> bool {
    let follows = |pair: &[u64]| pair[0].checked_add(total as u64) == Some(pair[1]);
    mask == u32::MAX && addresses.windows(2).all(follows)
}

/// Sectors of 32 bytes that lanes touch, each counted once.
pub(super) fn sectors(mask: u32, addresses: &Lanes, total: usize) -> u64 {
    if is_contiguous(mask, addresses, total) {
        let first = addresses[0] / SECTOR;
        return addresses[31].saturating_add(total as u64 - 1) / SECTOR - first + 1;
    }
    let mut seen = [0; 64];
    let mut count = 0;
    let mut rising = true;
    for lane in lanes(mask) {
        let first = addresses[lane] / SECTOR;
        let last = addresses[lane].saturating_add(total as u64 - 1) / SECTOR;
        for sector in first..=last {
            let previous = if count == 0 { None } else { Some(seen[count - 1]) };
            if previous == Some(sector) {
                continue;
            }
            rising &= previous.is_none_or(|previous| previous < sector);
            if count < seen.len() {
                seen[count] = sector;
                count += 1;
            }
        }
    }
    if rising {
        return count as u64;
    }
    let seen = &mut seen[..count];
    seen.sort_unstable();
    1 + seen.windows(2).map(|pair| u64::from(pair[0] != pair[1])).sum::<u64>()
}

/// Passes over shared memory beyond those that as many bytes need without conflicts. Accesses of 8
/// bytes are served for half a warp at a time, those of 16 for a quarter.
pub(super) fn conflicts(mask: u32, addresses: &Lanes, total: usize) -> u64 {
    if is_contiguous(mask, addresses, total) {
        return 0;
    }
    let together = match total {
        0..=4 => 32,
        5..=8 => 16,
        _ => 8,
    };
    let mut extra = 0;
    for part in 0..32 / together {
        let window = crate::types::low_mask(together as u32) as u32;
        let part = mask & window << (part * together);
        if part != 0 {
            extra += passes(part, addresses, total) - 1;
        }
    }
    extra
}

/// The most distinct words that one bank has to give.
fn passes(mask: u32, addresses: &Lanes, total: usize) -> u64 {
    // Mostly every word has a bank of its own, or comes again.
    let mut first = [u64::MAX; BANKS];
    let plain = lanes(mask).all(|lane| {
        words(addresses[lane], total).all(|word| {
            let seen = &mut first[word as usize % BANKS];
            let free = *seen == u64::MAX || *seen == word;
            *seen = word;
            free
        })
    });
    if plain {
        return 1;
    }
    let mut all: Vec<u64> = lanes(mask).flat_map(|lane| words(addresses[lane], total)).collect();
    all.sort_unstable();
    all.dedup();
    let mut filled = [0u64; BANKS];
    all.into_iter().for_each(|word| filled[word as usize % BANKS] += 1);
    filled.into_iter().max().unwrap_or(1)
}

fn words(address: u64, total: usize) -> std::ops::RangeInclusive<u64> {
    address / 4..=address.saturating_add(total as u64 - 1) / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stride(bytes: u64) -> Lanes {
        std::array::from_fn(|lane| 0x1000 + lane as u64 * bytes)
    }

    #[test]
    fn sectors_count_each_once() {
        assert_eq!(sectors(u32::MAX, &stride(4), 4), 4);
        assert_eq!(sectors(u32::MAX, &stride(16), 16), 16);
        assert_eq!(sectors(u32::MAX, &stride(0), 4), 1);
        assert_eq!(sectors(u32::MAX, &stride(64), 4), 32);
        let mut falling = stride(4);
        falling.reverse();
        assert_eq!(sectors(u32::MAX, &falling, 4), 4);
        assert_eq!(sectors(1, &stride(4), 4), 1);
    }

    #[test]
    fn conflicts_are_passes_beyond_the_needed() {
        assert_eq!(conflicts(u32::MAX, &stride(4), 4), 0);
        assert_eq!(conflicts(u32::MAX, &stride(0), 4), 0);
        assert_eq!(conflicts(u32::MAX, &stride(8), 4), 1);
        assert_eq!(conflicts(u32::MAX, &stride(128), 4), 31);
        assert_eq!(conflicts(u32::MAX, &stride(16), 16), 0);
        assert_eq!(conflicts(u32::MAX, &stride(8), 8), 0);
    }
}
