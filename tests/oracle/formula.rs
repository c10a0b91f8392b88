//! The closed formulas that make weights, images and predictions; described in `tests/reference/oracle/README.md`.

/// 64-bit FNV-1a hash of a key's UTF-8 bytes.
pub fn fnv1a64(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ byte as u64).wrapping_mul(0x0100_0000_01b3))
}

fn splitmix64(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The `i`-th number of the stream named `key`, in `[0, 1)`.
pub fn u(key: &str, i: u64) -> f64 {
    u_hashed(fnv1a64(key), i)
}

/// As [`u`], for a key that was hashed before: long streams need not hash it again.
pub fn u_hashed(hash: u64, i: u64) -> f64 {
    (splitmix64(hash.wrapping_add(i)) >> 11) as f64 * 2f64.powi(-53)
}

/// The `i`-th number of the stream whose hashed key is `hash`, in `[-1, 1)`.
pub fn s_hashed(hash: u64, i: u64) -> f64 {
    2.0 * u_hashed(hash, i) - 1.0
}

/// Fails loudly when the generators above differ from the ones that made the files.
pub fn self_check() {
    assert_eq!(fnv1a64("image"), 0x2ab6_1288_8528_489a);
    assert_eq!(u("image", 0), 0.6917657712417054);
    assert_eq!(u("image", 1), 0.7843706166745478);
}
