//! The data directory of `resident dev`: one program at a time, and what it keeps there for the next start.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use domain::ids::{AgentId, OrgId, UserId};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// Held as long as the program runs.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    _lock: File,
}

/// Who this installation belongs to, and where it was last reached. Only its owner may read it: a key is in it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Installation {
    pub(crate) org: OrgId,
    pub(crate) user: UserId,
    pub(crate) agent: AgentId,
    pub(crate) api_key: String,
    #[serde(default)]
    pub(crate) url: Option<String>,
    #[serde(default)]
    pub(crate) nats_url: Option<String>,
}

// === impl DataDir ===

impl DataDir {
    pub(crate) fn take(path: &Path) -> Result<Self, Failure> {
        let failed = |source| Failure::DataDir { path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let path = path.canonicalize().map_err(failed)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut lock = options.open(path.join("lock")).map_err(failed)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut pid = String::new();
            // Who holds it wrote its number; without it the sentence is shorter.
            let _ = lock.read_to_string(&mut pid);
            return Err(Failure::DataDirInUse { path, pid: pid.trim().parse().ok() });
        }
        lock.set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| lock.write_all(std::process::id().to_string().as_bytes()))
            .map_err(failed)?;
        Ok(Self { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn remember(&self, installation: &Installation) -> Result<(), Failure> {
        let failed = |source| Failure::DataDir { path: self.path.clone(), source };
        let text = serde_json::to_string_pretty(installation).map_err(|error| failed(error.into()))?;
        let partial = self.path.join("dev.json.new");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options
            .open(&partial)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&partial, self.path.join("dev.json")))
            .map_err(failed)
    }
}

/// What a program on this directory remembered; `None` where none ever ran.
pub(crate) fn installation(path: &Path) -> Option<Installation> {
    serde_json::from_slice(&fs::read(path.join("dev.json")).ok()?).ok()
}
