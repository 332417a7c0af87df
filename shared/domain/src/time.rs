//! Points in time as the project writes them down: milliseconds since the epoch, RFC 3339 in text.
//! There is no `now()` here; whoever decides is told the time.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A point in time, exact to the millisecond. Finer parts are cut off when one is made, so that what is stored,
/// sent and compared is the same value everywhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(jiff::Timestamp);

/// The text or number is no point in time that can be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a time; write it as RFC 3339 with a zone, for example 2026-12-01T09:00:00Z")]
pub struct InvalidTimestamp(pub String);

// === impl Timestamp ===

impl Timestamp {
    pub const EPOCH: Self = Self(jiff::Timestamp::UNIX_EPOCH);

    pub fn from_millis(millis: i64) -> Result<Self, InvalidTimestamp> {
        jiff::Timestamp::from_millisecond(millis).map(Self).map_err(|_| InvalidTimestamp(millis.to_string()))
    }

    pub fn as_millis(self) -> i64 {
        self.0.as_millisecond()
    }

    /// The time that lies `duration` later; the last representable one where that is out of range.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        self.0.checked_add(duration).map_or(Self(jiff::Timestamp::MAX), Self::truncated)
    }

    /// How long ago `earlier` was; zero where it lies ahead.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(
            u64::try_from(self.as_millis().saturating_sub(earlier.as_millis())).unwrap_or(0),
        )
    }

    fn truncated(at: jiff::Timestamp) -> Self {
        Self(jiff::Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at))
    }
}

impl From<jiff::Timestamp> for Timestamp {
    fn from(at: jiff::Timestamp) -> Self {
        Self::truncated(at)
    }
}

impl FromStr for Timestamp {
    type Err = InvalidTimestamp;

    fn from_str(text: &str) -> Result<Self, InvalidTimestamp> {
        text.parse().map(Self::truncated).map_err(|_| InvalidTimestamp(text.to_owned()))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.0)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_value_are_the_same_to_the_millisecond() {
        let at: Timestamp = "2026-12-01T09:00:00.1239Z".parse().unwrap();
        assert_eq!(at.to_string(), "2026-12-01T09:00:00.123Z");
        assert_eq!(serde_json::from_str::<Timestamp>(&serde_json::to_string(&at).unwrap()).unwrap(), at);
    }

    #[test]
    fn a_time_without_a_zone_is_refused() {
        assert!("2026-12-01T09:00:00".parse::<Timestamp>().is_err());
    }

    #[test]
    fn arithmetic_stays_in_range() {
        let end = Timestamp::EPOCH.plus(Duration::MAX);
        assert_eq!(Timestamp::EPOCH.since(end), Duration::ZERO);
        assert_eq!(
            Timestamp::EPOCH.plus(Duration::from_secs(2)).since(Timestamp::EPOCH),
            Duration::from_secs(2)
        );
    }
}
