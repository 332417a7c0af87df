//! What needs root or mounts. It fails without, and never skips.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a suite fails by panicking")]

mod ordinary_user;

use rustix::process::geteuid;

/// Every test of this suite begins with this.
fn as_root() {
    assert!(geteuid().is_root(), "this suite needs root; run it with: sudo -E make test-root");
}
