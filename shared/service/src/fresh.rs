//! What must be new each time: ids that have no cause to be derived from, and secrets.

use std::fmt::Write;

use rand::TryRngCore;
use rand::rngs::OsRng;
use secrecy::SecretString;
use uuid::Uuid;

/// 256 bits, so that guessing needs no other defence.
const TOKEN_BYTES: usize = 32;

#[derive(Debug, thiserror::Error)]
#[error("the operating system gave no random bytes for a secret; look at its random device, then try again")]
pub struct NoRandomness(#[source] rand::rand_core::OsError);

/// A UUIDv7: new, and in the order of time.
#[expect(clippy::disallowed_methods, reason = "this is the one place where ids are drawn")]
pub fn uuid() -> Uuid {
    Uuid::now_v7()
}

/// A secret of 32 bytes from the operating system, as 64 hexadecimal digits.
pub fn token() -> Result<SecretString, NoRandomness> {
    let mut bytes = [0; TOKEN_BYTES];
    OsRng.try_fill_bytes(&mut bytes).map_err(NoRandomness)?;
    let mut digits = String::with_capacity(2 * TOKEN_BYTES);
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(digits, "{byte:02x}");
    }
    Ok(digits.into())
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    #[test]
    fn ids_are_of_version_7_and_rise() {
        let (first, second) = (uuid(), uuid());
        assert_eq!(first.get_version_num(), 7);
        assert!(first < second);
    }

    #[test]
    fn tokens_differ_and_do_not_show_themselves() {
        let (first, second) = (token().unwrap(), token().unwrap());
        assert_eq!(first.expose_secret().len(), 64);
        assert!(first.expose_secret().bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_ne!(first.expose_secret(), second.expose_secret());
        assert!(!format!("{first:?}").contains(first.expose_secret()));
    }
}
