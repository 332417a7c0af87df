//! The numbers of a program, in Prometheus' text format. Whoever counts uses the `metrics` macros; names and labels are
//! fixed in the program, so their number is too: no id ever becomes a label. docs/operations.md lists them.

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// What `/metrics` answers with. Clones share the numbers.
#[derive(Clone)]
pub struct Metrics(PrometheusHandle);

// === impl Metrics ===

impl Metrics {
    /// Makes this the place where the whole program counts. A second one in the same program, as tests make it, counts
    /// nothing.
    pub fn install() -> Self {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::debug!("the program counts elsewhere already");
        }
        Self(handle)
    }

    pub(crate) fn render(&self) -> String {
        self.0.render()
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
