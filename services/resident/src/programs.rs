//! Where the programs lie that others are made of.

use std::path::{Path, PathBuf};

use executor::{ExecutorConfig, Found};

use crate::failure::Failure;

const SHIM: &str = "resident-shim";

/// What `make tools` fetches into, below a checkout.
const TOOLS: &str = ".tools/bin";

/// The programs of an executor.
pub(crate) fn of_executor(config: &ExecutorConfig) -> Result<Found, Failure> {
    let shim = match &config.shim {
        Some(shim) => found("resident-shim", shim, "executor.shim")?,
        None => beside_this(SHIM).unwrap_or_else(|| PathBuf::from(SHIM)),
    };
    Ok(Found {
        // A missing one is told by the sandbox's own look, with the command that mends it.
        bwrap: look(&config.bwrap).unwrap_or_else(|| config.bwrap.clone()),
        shim: found("resident-shim", &shim, "executor.shim")?,
        claude_code: found("Claude Code", &config.claude_code, "executor.claude_code")?,
    })
}

pub(crate) fn found(name: &'static str, program: &Path, key: &'static str) -> Result<PathBuf, Failure> {
    look(program).ok_or_else(|| Failure::Program { name, found: program.to_owned(), key })
}

/// A path as it is, a bare name by PATH, then in the tools of the checkout that this program was built in.
fn look(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.canonicalize().ok();
    }
    let path = service::config::real_environment()
        .into_iter()
        .find(|(name, _)| name == "PATH")
        .map(|(_, path)| path);
    let path = path.unwrap_or_default();
    let checkout = std::env::current_exe().ok().and_then(|exe| Some(exe.ancestors().nth(3)?.join(TOOLS)));
    std::env::split_paths(&path)
        .chain([PathBuf::from(TOOLS)])
        .chain(checkout)
        .map(|dir| dir.join(program))
        .find(|candidate| candidate.is_file())
        .and_then(|candidate| candidate.canonicalize().ok())
}

fn beside_this(name: &str) -> Option<PathBuf> {
    let beside = std::env::current_exe().ok()?.parent()?.join(name);
    beside.is_file().then_some(beside)
}
