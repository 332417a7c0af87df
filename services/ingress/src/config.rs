//! The settings of ingress.

use std::time::Duration;

use service::config::{Key, Kind, Misread, Section, Values};

#[derive(Debug, Clone, Copy)]
pub struct IngressConfig {
    pub invoke_timeout: Duration,
}

impl Section for IngressConfig {
    const NAME: &'static str = "ingress";
    const KEYS: &'static [Key] = &[Key::new(
        "invoke_timeout",
        Kind::duration(Duration::from_secs(1), Duration::from_secs(3600)),
        "How long an invoke waits for the answer before it returns the conversation as it stands",
    )
    .default("10m")];

    fn read(values: &Values<'_>) -> Result<Self, Misread> {
        Ok(Self { invoke_timeout: values.get("invoke_timeout")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_read() {
        service::config::assert_reads_all_keys::<IngressConfig>();
    }
}
