//! `resident-shim`: PID 1 of a sandbox. Everything it does is in [`executor::shim`].

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    match executor::shim::run(std::env::args_os().skip(1)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let mut line = format!("resident-shim: {error}");
            let mut source = error.source();
            while let Some(cause) = source {
                line.push_str(&format!(": {cause}"));
                source = cause.source();
            }
            // Standard error is the one way out; if even that is closed, the exit code has to do.
            let _unsaid = writeln!(std::io::stderr(), "{line}");
            ExitCode::from(executor::shim::FAILED)
        }
    }
}
