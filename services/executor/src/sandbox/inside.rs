//! Where things are inside a sandbox. The same for every segment, since a harness finds its session by these paths.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use crate::volume::DirName;

/// User and group inside.
pub const UID: &str = "1000";

pub const HARNESS: &str = "/opt/resident/harness";
pub const SHIM: &str = "/opt/resident/shim";

/// Our configuration of the segment, read-only.
pub const RUN: &str = "/run/resident";
pub const PROMPT_FILE: &str = "prompt.md";
pub const MCP_FILE: &str = "mcp.json";
pub const SOCKET_FILE: &str = "runtime.sock";

pub const WORKDIRS: &str = "/agent/data/workdirs";
pub const PACKAGES: &str = "/agent/data/packages";
pub const NOTES: &str = "/agent/data/notes";
pub const HOME: &str = "/agent/data/home";
pub const TMP: &str = "/agent/data/tmp";

/// Where the runtime is reached from inside; the shim carries it to the socket.
pub const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 18080);
pub const BASE_URL: &str = "http://127.0.0.1:18080";

/// The conversation's working tree, and the harness's current directory.
pub fn workdir(conversation: &DirName) -> String {
    format!("{WORKDIRS}/{conversation}")
}

pub fn prompt() -> PathBuf {
    PathBuf::from(RUN).join(PROMPT_FILE)
}

pub fn mcp() -> PathBuf {
    PathBuf::from(RUN).join(MCP_FILE)
}

pub fn socket() -> PathBuf {
    PathBuf::from(RUN).join(SOCKET_FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_and_the_url_are_one() {
        assert_eq!(BASE_URL, format!("http://{LISTEN}"));
    }
}
