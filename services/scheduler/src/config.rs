//! The settings of the scheduler.

use std::time::Duration;

use service::config::{Key, Kind, Misread, Section, Values};

const SECOND: Duration = Duration::from_secs(1);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

#[derive(Debug, Clone, Copy)]
pub struct SchedulerConfig {
    pub nudge_after: Duration,
    pub self_finish_after: Duration,
    pub last_wake: Duration,
}

impl Section for SchedulerConfig {
    const NAME: &'static str = "scheduler";
    const KEYS: &'static [Key] = &[
        Key::new(
            "nudge_after",
            Kind::duration(SECOND, YEAR),
            "How long a process is idle before its person is asked once whether it is still needed",
        )
        .default("7d"),
        Key::new(
            "self_finish_after",
            Kind::duration(SECOND, YEAR),
            "How long a process is idle before it finishes itself",
        )
        .default("30d"),
        Key::new(
            "last_wake",
            Kind::duration(SECOND, YEAR),
            "How long a process that finishes itself may take over its summary",
        )
        .default("10m"),
    ];

    fn read(values: &Values<'_>) -> Result<Self, Misread> {
        Ok(Self {
            nudge_after: values.get("nudge_after")?,
            self_finish_after: values.get("self_finish_after")?,
            last_wake: values.get("last_wake")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use domain::policy;
    use service::config::{Catalogue, Sources, assert_reads_all_keys};

    use super::*;

    #[test]
    fn every_key_is_read_and_the_defaults_are_the_product_s() {
        assert_reads_all_keys::<SchedulerConfig>();
        let settings = Catalogue::default().needs::<SchedulerConfig>().read(&Sources::default()).unwrap();
        let config = settings.section::<SchedulerConfig>().unwrap();
        assert_eq!(config.nudge_after, policy::NUDGE_AFTER);
        assert_eq!(config.self_finish_after, policy::SELF_FINISH_AFTER);
        assert_eq!(config.last_wake, policy::LAST_WAKE);
    }
}
