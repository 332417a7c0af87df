//! Counters and gauges in Prometheus' text format. Names and labels are fixed in the program, so their number is too:
//! no id ever becomes a label.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The metrics of one program. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Metrics(Arc<Mutex<BTreeMap<&'static str, Family>>>);

pub type Labels = &'static [(&'static str, &'static str)];

/// A number that only rises. Its name ends in `_total`.
#[derive(Debug, Clone)]
pub struct Counter(Arc<AtomicI64>);

/// A number that holds now.
#[derive(Debug, Clone)]
pub struct Gauge(Arc<AtomicI64>);

/// All series of one name.
#[derive(Debug)]
struct Family {
    kind: &'static str,
    help: &'static str,
    series: BTreeMap<Labels, Arc<AtomicI64>>,
}

// === impl Metrics ===

impl Metrics {
    /// The same name and labels are the same counter.
    pub fn counter(&self, name: &'static str, help: &'static str, labels: Labels) -> Counter {
        Counter(self.series("counter", name, help, labels))
    }

    /// The same name and labels are the same gauge.
    pub fn gauge(&self, name: &'static str, help: &'static str, labels: Labels) -> Gauge {
        Gauge(self.series("gauge", name, help, labels))
    }

    /// What `/metrics` answers.
    pub fn render(&self) -> String {
        let families = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut page = String::new();
        for (name, family) in families.iter() {
            // Writing to a string does not fail.
            let _ = writeln!(page, "# HELP {name} {}\n# TYPE {name} {}", family.help, family.kind);
            for (labels, value) in &family.series {
                let labels: Vec<String> =
                    labels.iter().map(|(key, value)| format!("{key}={value:?}")).collect();
                let braces =
                    if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
                let _ = writeln!(page, "{name}{braces} {}", value.load(Ordering::Relaxed));
            }
        }
        page
    }

    fn series(
        &self,
        kind: &'static str,
        name: &'static str,
        help: &'static str,
        labels: Labels,
    ) -> Arc<AtomicI64> {
        let mut families = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let family = families.entry(name).or_insert_with(|| Family { kind, help, series: BTreeMap::new() });
        Arc::clone(family.series.entry(labels).or_default())
    }
}

// === impl Counter ===

impl Counter {
    pub fn add(&self, count: u32) {
        self.0.fetch_add(count.into(), Ordering::Relaxed);
    }
}

// === impl Gauge ===

impl Gauge {
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_holds_every_series_with_its_family() {
        let metrics = Metrics::default();
        let steers = |outcome| metrics.counter("resident_steers_total", "Steers by outcome", outcome);
        steers(&[("outcome", "applied")]).add(2);
        steers(&[("outcome", "applied")]).add(1);
        steers(&[("outcome", "refused")]).add(1);
        metrics.gauge("resident_hot_segments", "Segments that are hot", &[]).set(4);
        assert_eq!(
            metrics.render(),
            "# HELP resident_hot_segments Segments that are hot\n\
             # TYPE resident_hot_segments gauge\n\
             resident_hot_segments 4\n\
             # HELP resident_steers_total Steers by outcome\n\
             # TYPE resident_steers_total counter\n\
             resident_steers_total{outcome=\"applied\"} 3\n\
             resident_steers_total{outcome=\"refused\"} 1\n"
        );
    }
}
