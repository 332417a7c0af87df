//! Descriptors that nobody meant to hand on.
//!
//! The executor's launcher (a terminal, an editor, a supervisor) may have left descriptors open across its own exec;
//! they come through the executor and bubblewrap to here, and would give the harness a way out of the sandbox.

use std::fs;
use std::io;

use rustix::fd::{BorrowedFd, RawFd};
use rustix::io::{FdFlags, fcntl_setfd};

/// Input, output and error output are the only ones that are meant to be here.
const STANDARD: std::ops::RangeInclusive<RawFd> = 0..=2;

/// Marks everything beyond the standard streams close-on-exec. Called before any thread or descriptor of our own.
pub(super) fn keep_from_harness() -> io::Result<()> {
    for entry in fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.parse().ok());
        if let Some(number) = number.filter(|number| !STANDARD.contains(number)) {
            close_on_exec(number)?;
        }
    }
    Ok(())
}

#[expect(
    unsafe_code,
    reason = "a descriptor that was inherited has no owner from which it could be borrowed"
)]
fn close_on_exec(number: RawFd) -> io::Result<()> {
    // SAFETY: the number was just read from the list of open descriptors, no other thread runs that could close it,
    // and the borrow ends with this call.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(fcntl_setfd(descriptor, FdFlags::CLOEXEC)?)
}
