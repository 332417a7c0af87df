//! `resident hooks add`.

use bus::Port;
use bus::kv;
use contract::buckets::{Hook, Hooks};
use contract::topology::OPERATOR;
use domain::ids::{HookId, OrgId};
use secrecy::ExposeSecret;
use serde_json::json;
use service::config::Settings;

use super::{keys, now, print};
use crate::broker;
use crate::data_dir;
use crate::failure::{Failure, say};
use crate::settings::DataConfig;

/// Secrets that are active at once: the one in use, and the one that replaces it.
const SECRETS_MAX: usize = 2;

pub(super) async fn add(
    settings: &Settings,
    org: Option<OrgId>,
    app: Option<String>,
    hook: Option<HookId>,
    as_json: bool,
) -> Result<(), Failure> {
    let operator = broker::connect(settings, &keys::broker_url(settings)?, OPERATOR).await?;
    let secret = service::fresh::token()?.expose_secret().to_owned();
    let hook = match hook {
        Some(id) => renewed(&operator, id, app, &secret).await?,
        None => {
            let of_dev =
                || data_dir::installation(&settings.section::<DataConfig>().ok()?.dir).map(|known| known.org);
            let org = org.or_else(of_dev).ok_or(Failure::NoOrg)?;
            let id = HookId::from_uuid(service::fresh::uuid());
            Hook { id, org, secrets: vec![secret.clone()], app, created_at: now() }
        }
    };
    kv::overwrite::<Hooks>(&operator, &hook.id, &hook).await.map_err(Failure::Key)?;
    let path = format!("/hooks/github/{}", hook.id);
    if as_json {
        let secrets = hook.secrets.len();
        return print(&json!({ "id": hook.id, "org": hook.org, "path": path, "secret": secret, "active_secrets": secrets }).to_string());
    }
    say(&format!(
        "Hook of {}. Set this path behind your address, the content type application/json, and this secret, which is shown only now:",
        hook.org
    ));
    print(&path)?;
    print(&secret)
}

/// The hook with a new secret, and the last one of those it had.
async fn renewed(port: &dyn Port, id: HookId, app: Option<String>, secret: &str) -> Result<Hook, Failure> {
    let known = kv::get::<Hooks>(port, &id).await.ok().and_then(|row| row.value);
    let mut hook = known.ok_or(Failure::NoHook(id))?;
    hook.secrets.push(secret.to_owned());
    let old = hook.secrets.len().saturating_sub(SECRETS_MAX);
    hook.secrets.drain(..old);
    hook.app = app.or(hook.app);
    Ok(hook)
}
