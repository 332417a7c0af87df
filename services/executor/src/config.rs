//! The executor's settings, and where its models are.

use std::path::PathBuf;
use std::time::Duration;

use domain::ids::{ExecutorId, OrgId};
use secrecy::SecretString;
use service::config::{Key, Kind, Misread, Section, Url, Values};

/// Nobody looks at a page for less; tests do not wait for people.
const MOMENT: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Executors of one installation are numbered from 0.
const ORDINAL_MAX: i64 = 9_999;

/// More harnesses than this do not fit one machine.
const SLOTS_MAX: i64 = 1_024;

#[derive(Debug, Clone)]
pub struct ExecutorConfig {
    pub id: ExecutorId,
    pub slots: u16,
    pub orgs: Vec<OrgId>,
    pub park_after: Duration,
    pub park_watched_after: Duration,
    pub segment_cap: Duration,
    pub volume: PathBuf,
    pub claude_code: PathBuf,
    pub bwrap: PathBuf,
    pub shim: Option<PathBuf>,
}

/// Where Anthropic's models are.
#[derive(Debug, Clone)]
pub struct AnthropicConfig {
    pub api_key: Option<SecretString>,
    pub base_url: Url,
}

impl Section for ExecutorConfig {
    const NAME: &'static str = "executor";
    const KEYS: &'static [Key] = &[
        Key::new(
            "ordinal",
            Kind::integer(0, ORDINAL_MAX, "ordinals"),
            "Which executor of the installation this is; its volume and its user on the broker go with it",
        )
        .default("0"),
        Key::new("slots", Kind::integer(1, SLOTS_MAX, "segments"), "How many segments are hot at once")
            .default("4"),
        Key::new(
            "orgs",
            Kind::Checked {
                allowed: "ids of organizations, separated by commas",
                example: "org_0000000000000000000000000000000a",
                check: |text| parse_orgs(text).is_some(),
            },
            "The organizations it serves, as it was provisioned; every one where none is named",
        )
        .optional(),
        Key::new(
            "park_after",
            Kind::duration(MOMENT, DAY),
            "How long an idle segment that nobody watches is kept before it parks",
        )
        .default("2m"),
        Key::new(
            "park_watched_after",
            Kind::duration(SECOND, DAY),
            "How long an idle segment is kept before it parks, whoever watches",
        )
        .default("30m"),
        Key::new(
            "segment_cap",
            Kind::duration(SECOND, DAY),
            "How long a segment is hot before it parks at its next boundary and resumes behind those that wait",
        )
        .default("2h"),
        Key::new("volume", Kind::Path, "The directory that holds the agents' files").default(".data/volume"),
        Key::new(
            "claude_code",
            Kind::Path,
            "Claude Code's program; a bare name is looked for in PATH and in .tools/bin",
        )
        .default("claude"),
        Key::new(
            "bwrap",
            Kind::Path,
            "bubblewrap's program; a bare name is looked for in PATH and in .tools/bin",
        )
        .default("bwrap"),
        Key::new("shim", Kind::Path, "The program resident-shim; beside this program where not named")
            .optional(),
    ];

    fn read(values: &Values<'_>) -> Result<Self, Misread> {
        let orgs: Option<String> = values.get("orgs")?;
        Ok(Self {
            id: ExecutorId(values.get("ordinal")?),
            slots: values.get("slots")?,
            orgs: orgs.and_then(|orgs| parse_orgs(&orgs)).unwrap_or_default(),
            park_after: values.get("park_after")?,
            park_watched_after: values.get("park_watched_after")?,
            segment_cap: values.get("segment_cap")?,
            volume: values.get("volume")?,
            claude_code: values.get("claude_code")?,
            bwrap: values.get("bwrap")?,
            shim: values.get("shim")?,
        })
    }
}

impl Section for AnthropicConfig {
    const NAME: &'static str = "providers.anthropic";
    const KEYS: &'static [Key] = &[
        Key::new("api_key", Kind::Secret, "The key for Anthropic's API; it never enters a sandbox")
            .aliases(&["ANTHROPIC_API_KEY"])
            .optional(),
        Key::new("base_url", Kind::url(&["http", "https"]), "Where Anthropic's API is, or a gateway to it")
            .default("https://api.anthropic.com"),
    ];

    fn read(values: &Values<'_>) -> Result<Self, Misread> {
        Ok(Self { api_key: values.get("api_key")?, base_url: values.get("base_url")? })
    }
}

fn parse_orgs(text: &str) -> Option<Vec<OrgId>> {
    text.split(',').map(|org| org.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use domain::policy;
    use service::config::{Catalogue, Sources, assert_reads_all_keys};

    use super::*;

    #[test]
    fn every_key_is_declared_and_read() {
        assert_reads_all_keys::<ExecutorConfig>();
        assert_reads_all_keys::<AnthropicConfig>();
    }

    #[test]
    fn the_defaults_are_the_product_s() {
        let settings = Catalogue::default().needs::<ExecutorConfig>().read(&Sources::default()).unwrap();
        let config = settings.section::<ExecutorConfig>().unwrap();
        assert_eq!(config.park_after, policy::PARK_AFTER_ABSENCE);
        assert_eq!(config.park_watched_after, policy::PARK_WATCHED_AFTER);
        assert_eq!(config.segment_cap, policy::SEGMENT_CAP);
        assert!(config.orgs.is_empty());
    }
}
