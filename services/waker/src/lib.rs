//! The waker: places everything that is waking on an executor, and takes back what no process wants any more.
//!
//! It follows the log and acts on what the leader says now, so a late or repeated hint does no harm; what a hint did
//! not bring about is mended by looking again. It appends nothing.

mod assignments;
mod on_step;

use bus::Nats;
use service::Runtime;

/// Works until the shutdown begins.
pub async fn run(nats: Nats, runtime: Runtime) {
    on_step::follow(nats, runtime).await;
}
