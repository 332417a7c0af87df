//! Who may use an endpoint: whoever shows the segment's token, as long as the segment may act.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;

use crate::model_proxy::API_KEY;

const BEARER: &[u8] = b"Bearer ";

/// The token of one segment. Once the flag is down it admits no request more, on an open connection neither.
#[derive(Debug, Clone)]
pub struct Credential {
    token: SecretString,
    alive: Arc<AtomicBool>,
}

// === impl Credential ===

impl Credential {
    /// `alive` is false while the segment may not act: frozen, parked, ended.
    pub fn new(token: SecretString, alive: Arc<AtomicBool>) -> Self {
        Self { token, alive }
    }

    /// Shown in either of the two headers that clients of providers use.
    pub(super) fn admits(&self, headers: &HeaderMap) -> bool {
        let bearer = headers.get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
        let api_key = headers.get(API_KEY).map(HeaderValue::as_bytes);
        let token = self.token.expose_secret().as_bytes();
        let is_it = |shown: &[u8]| bool::from(shown.ct_eq(token));
        self.alive.load(Ordering::Acquire) && (bearer.is_some_and(is_it) || api_key.is_some_and(is_it))
    }

    /// Nothing behind the door needs it, and what has it could hand it on or write it down.
    pub(super) fn take_from(headers: &mut HeaderMap) {
        headers.remove(AUTHORIZATION);
        headers.remove(API_KEY);
    }
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(BEARER.len())?;
    scheme.eq_ignore_ascii_case(BEARER).then_some(token)
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    fn shown(name: HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn only_the_token_of_a_living_segment_admits() {
        let alive = Arc::new(AtomicBool::new(true));
        let credential = Credential::new("the-token".to_owned().into(), Arc::clone(&alive));
        let good = [
            shown(AUTHORIZATION, "Bearer the-token"),
            shown(AUTHORIZATION, "bearer the-token"),
            shown(API_KEY, "the-token"),
        ];
        let bad = [
            HeaderMap::new(),
            shown(AUTHORIZATION, "the-token"),
            shown(AUTHORIZATION, "Basic the-token"),
            shown(AUTHORIZATION, "Bearer"),
            shown(AUTHORIZATION, "Bearer the-toke"),
            shown(AUTHORIZATION, "Bearer the-token2"),
            shown(API_KEY, ""),
            shown(API_KEY, "Bearer the-token"),
        ];
        for headers in &good {
            assert!(credential.admits(headers), "{headers:?}");
        }
        for headers in &bad {
            assert!(!credential.admits(headers), "{headers:?}");
        }
        alive.store(false, Ordering::Release);
        for headers in &good {
            assert!(!credential.admits(headers), "after its end: {headers:?}");
        }
        assert!(!format!("{credential:?}").contains("the-token"));
    }
}
