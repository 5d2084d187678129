//! A file in which every epoch leaves its stamp: its number at the beginning, and elsewhere bytes derived from the
//! number. So the file says at which epoch it is, and whether it is that epoch's as a whole can be checked.

use famio_test_support::random::Random;

/// Nothing is written above this offset.
const LONGEST: u64 = 200_000;

/// One operation of an epoch.
pub enum Op {
    Write(u64, Vec<u8>),
    Size(u64),
}

/// The operations of an epoch; the stamp comes last.
pub fn ops(epoch: u64) -> Vec<Op> {
    let mut random = Random::new(epoch);
    let mut ops = Vec::new();
    for _ in 0..1 + random.below(5) {
        if random.below(12) == 0 {
            ops.push(Op::Size(random.below(LONGEST)));
            continue;
        }
        let len = 1 + if random.below(3) == 0 { random.below(12_000) } else { random.below(300) };
        let byte = epoch as u8 ^ random.below(250) as u8;
        ops.push(Op::Write(random.below(LONGEST), vec![byte; len as usize]));
    }
    ops.push(Op::Write(0, epoch.to_le_bytes().to_vec()));
    ops
}

/// The contents of the file after this many epochs.
pub fn model(epochs: u64) -> Vec<u8> {
    let mut model = Vec::new();
    for op in (1..=epochs).flat_map(ops) {
        match op {
            Op::Size(size) => model.resize(size as usize, 0),
            Op::Write(at, bytes) => {
                let end = at as usize + bytes.len();
                model.resize(model.len().max(end), 0);
                model[at as usize..end].copy_from_slice(&bytes);
            }
        }
    }
    model
}

/// The epoch of a consistent file, or what is wrong with it. `acknowledged`: this epoch must be there.
pub fn check(found: &[u8], acknowledged: u64) -> Result<u64, String> {
    let stamp = found.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    if found.len() < 8 && !found.is_empty() {
        return Err(format!("torn: {} bytes, without a stamp", found.len()));
    }
    if stamp < acknowledged {
        return Err(format!("lost: epoch {acknowledged} was acknowledged, it is at {stamp}"));
    }
    if stamp > acknowledged + 10_000 {
        return Err(format!("torn: no epoch has the stamp {stamp}"));
    }
    let expected = model(stamp);
    if found == expected {
        return Ok(stamp);
    }
    let at = found.iter().zip(&expected).position(|(a, b)| a != b).unwrap_or(found.len().min(expected.len()));
    let (found, expected) = (found.len(), expected.len());
    Err(format!("torn: not epoch {stamp} as a whole: byte {at} differs ({found} bytes, {expected} expected)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_epochs_are_told_from_torn_and_lost_ones() {
        let whole = model(40);
        assert_eq!(check(&whole, 40), Ok(40));
        assert_eq!(check(&whole, 39), Ok(40));
        assert_eq!(check(&[], 0), Ok(0));
        assert!(check(&whole, 41).unwrap_err().starts_with("lost"));
        assert!(check(&[], 1).unwrap_err().starts_with("lost"));
        for at in [0, 8, whole.len() / 2, whole.len() - 1] {
            let mut torn = whole.clone();
            torn[at] ^= 1;
            assert!(check(&torn, 39).is_err(), "byte {at}");
        }
        assert!(check(&whole[..whole.len() - 1], 40).unwrap_err().starts_with("torn"));
        // The bytes of one epoch under the stamp of the next.
        let mut mixed = whole;
        mixed[..8].copy_from_slice(&41u64.to_le_bytes());
        assert!(check(&mixed, 40).unwrap_err().starts_with("torn"));
    }
}
