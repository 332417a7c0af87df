//! `resident keys add`.

use bus::{Outgoing, Port};
use contract::Subject;
use contract::buckets::Role;
use contract::messages::audit::{AuditEntry, Audited};
use contract::subjects::AuditOf;
use contract::topology::OPERATOR;
use domain::ids::{OrgId, UserId};
use secrecy::ExposeSecret;
use serde_json::json;
use service::config::Settings;

use super::{now, print};
use crate::broker;
use crate::cli::RoleArg;
use crate::data_dir;
use crate::dev::add_key;
use crate::failure::{Failure, say};
use crate::settings::{BrokerConfig, DataConfig};

pub(super) async fn add(
    settings: &Settings,
    org: Option<OrgId>,
    user: Option<UserId>,
    role: RoleArg,
    as_json: bool,
) -> Result<(), Failure> {
    let operator = broker::connect(settings, &broker_url(settings)?, OPERATOR).await?;
    let org = org.unwrap_or_else(|| OrgId::from_uuid(service::fresh::uuid()));
    let user = user.unwrap_or_else(|| UserId::from_uuid(service::fresh::uuid()));
    let role = match role {
        RoleArg::Member => Role::Member,
        RoleArg::Operator => Role::Operator,
        RoleArg::Admin => Role::Admin,
    };
    let secret = format!("res_{}", service::fresh::token()?.expose_secret());
    let key = add_key(&operator, org, user, role, &secret).await?;
    let audited = AuditEntry { at: now(), by: None, what: Audited::KeyAdded { key, user, role } };
    let entry = Outgoing::message(&Subject::Audit(org, AuditOf::Key), &audited);
    operator.publish(entry).await.map_err(Failure::Key)?;
    if as_json {
        return print(
            &json!({ "id": key, "org": org, "user": user, "role": role, "api_key": secret }).to_string(),
        );
    }
    say(&format!("{key} for {user} of {org}, role {role:?}. It is shown only now:"));
    print(&secret)
}

/// The broker of this installation.
pub(super) fn broker_url(settings: &Settings) -> Result<String, Failure> {
    Ok(match settings.section::<BrokerConfig>()?.url {
        Some(url) => url.as_str().trim_end_matches('/').to_owned(),
        // A running dev's broker has a port of its own.
        None => data_dir::installation(&settings.section::<DataConfig>()?.dir)
            .and_then(|known| known.nats_url)
            .ok_or(Failure::NoServer)?,
    })
}
