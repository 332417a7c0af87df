//! A crate's own clippy.toml replaces the root's instead of adding to it. So one that exists repeats all of the root's.

use toml::Value;

use crate::tree::{files_named, none, toml};

const ROOT: &str = "clippy.toml";

#[test]
fn a_crate_s_own_bans_repeat_the_root_s() {
    let root = toml(ROOT);
    let mut offenders = Vec::new();
    for own in files_named(ROOT).filter(|path| *path != ROOT) {
        let table = toml(own);
        for (key, wanted) in &root {
            let missing = match (wanted, table.get(key)) {
                (Value::Array(wanted), Some(Value::Array(there))) => {
                    wanted.iter().filter(|ban| !there.contains(ban)).map(ToString::to_string).collect()
                }
                (wanted, Some(there)) if wanted == there => Vec::new(),
                (wanted, _) => vec![format!("{key} = {wanted}")],
            };
            offenders.extend(missing.into_iter().map(|missing| format!("{own}: {missing}")));
        }
    }
    none(&offenders, "repeat what the root's clippy.toml says, word for word");
}
