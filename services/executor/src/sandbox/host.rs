//! How the host's root folder is laid out, as far as programs in `/usr` need it inside a sandbox.

use std::fs;
use std::path::{Path, PathBuf};

/// Where programs and their loaders are looked for beside `/usr`. Not every host has all of them.
const ROOT_NAMES: [&str; 4] = ["/bin", "/sbin", "/lib", "/lib64"];

/// What the host has of the root folders; what is absent there is absent inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    pub root: Vec<(&'static str, RootEntry)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootEntry {
    /// Into `/usr`, as on most hosts of today.
    Link(PathBuf),
    /// A folder of its own.
    Folder,
}

// === impl Host ===

impl Host {
    /// Reads the layout of this machine.
    pub fn read() -> Self {
        Self::below(Path::new("/"))
    }

    fn below(root: &Path) -> Self {
        let entry = |name: &'static str| {
            let path = root.join(name.trim_start_matches('/'));
            match fs::read_link(&path) {
                Ok(target) => Some((name, RootEntry::Link(target))),
                Err(_) => path.is_dir().then_some((name, RootEntry::Folder)),
            }
        };
        Self { root: ROOT_NAMES.into_iter().filter_map(entry).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_stay_links_and_the_absent_stays_absent() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("usr/bin", folder.path().join("bin")).unwrap();
        fs::create_dir(folder.path().join("lib")).unwrap();
        let host = Host::below(folder.path());
        let expected = [("/bin", RootEntry::Link("usr/bin".into())), ("/lib", RootEntry::Folder)];
        assert_eq!(host.root, expected);
    }
}
