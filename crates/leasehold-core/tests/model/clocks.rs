//! What lets the model count all clocks together: whatever two clocks do within drift, a session ends on its own
//! clock within one ttl of true time, and silence is only long enough after one.

use std::time::Duration;

use leasehold_core::config::{Config, shrink, stretch};

/// True time, in nanoseconds times 1000, that a clock off by `permille` needs to count `span`.
fn true_time_at_most(span: Duration, slow_permille: u32) -> u128 {
    (span.as_nanos() * 1_000_000).div_ceil(u128::from(1000 - slow_permille))
}

fn true_time_at_least(span: Duration, fast_permille: u32) -> u128 {
    span.as_nanos() * 1_000_000 / u128::from(1000 + fast_permille)
}

#[test]
fn the_slowest_holder_ends_before_the_fastest_observer_may_fence() {
    for ttl_ms in (200..2_000).chain([5_000, 9_999, 10_000, 15_001, 30_000, 60_000, 86_400_000]) {
        for drift in 0..200 {
            let ttl = Duration::from_millis(ttl_ms);
            let one_ttl = ttl.as_nanos() * 1000;
            assert!(true_time_at_most(shrink(ttl, drift), drift) <= one_ttl, "{ttl_ms} ms, {drift} ‰");
            assert!(true_time_at_least(stretch(ttl, drift), drift) >= one_ttl, "{ttl_ms} ms, {drift} ‰");
            if drift > 0 {
                assert!(
                    true_time_at_most(ttl, drift) > one_ttl,
                    "without the allowance a slow holder is too late"
                );
                assert!(true_time_at_least(ttl, drift) < one_ttl, "without it a fast observer is too early");
            }
        }
    }
}

#[test]
fn the_settings_use_that_allowance() {
    let config = Config::with_ttl("a".parse().unwrap(), Duration::from_secs(10));
    assert_eq!(config.valid_for(), shrink(config.ttl, config.drift_permille));
    assert_eq!(config.silent_for(), stretch(config.ttl, config.drift_permille));
}
