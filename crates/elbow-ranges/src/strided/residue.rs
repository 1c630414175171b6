//! Where an arithmetic progression first falls into a window of a modulus.
//!
//! Source: the Euclidean descent on `l <= a*x mod m <= r`; Knuth, *The Art of Computer Programming* 2, 4.5.2 and 4.5.3.

/// The smallest `k >= 0` with `(first + k*step) mod modulus <= window`, where `window < modulus`. `O(log modulus)`.
pub(super) fn first_within(first: u64, step: u64, modulus: u64, window: u64) -> Option<u64> {
    let first = first % modulus;
    if first <= window {
        return Some(0);
    }
    let low = modulus - first;
    first_multiple(step % modulus, modulus, low, low + window)
}

/// The smallest `x` with `low <= step*x mod modulus <= high`, where `0 < low <= high < modulus` and `step < modulus`.
fn first_multiple(step: u64, modulus: u64, low: u64, high: u64) -> Option<u64> {
    if step == 0 {
        return None;
    }
    let x = low.div_ceil(step);
    if x <= high / step {
        return Some(x);
    }
    // No multiple of `step` lies in the window, so the product has to wrap around y times: modulo `step` this is
    // the same question, with both numbers smaller.
    let y = first_multiple(modulus % step, step, step - high % step, step - low % step)?;
    let x = (u128::from(low) + u128::from(modulus) * u128::from(y)).div_ceil(u128::from(step));
    Some(x as u64) // below the modulus
}

/// The greatest common divisor; `gcd(a, 0) = a`.
pub(super) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_small_cases_equal_a_search() {
        for modulus in 1..14 {
            for (first, step, window) in
                (0..14).flat_map(|f| (0..14).flat_map(move |s| (0..modulus).map(move |w| (f, s, w))))
            {
                let expected = (0..modulus).find(|k| (first + k * step) % modulus <= window);
                assert_eq!(
                    first_within(first, step, modulus, window),
                    expected,
                    "({first} + k*{step}) mod {modulus} <= {window}"
                );
            }
        }
    }

    #[test]
    fn numbers_near_two_to_the_64_do_not_overflow() {
        let modulus = u64::MAX - 58; // a prime
        let k = first_within(modulus - 1, modulus - 2, modulus, 0).expect("all residues are reached");
        assert_eq!(
            (u128::from(modulus - 1) + u128::from(k) * u128::from(modulus - 2)) % u128::from(modulus),
            0
        );
        assert_eq!(first_within(1, u64::MAX - 1, u64::MAX - 1, 0), None);
    }
}
