//! Rows of a bucket, for lists.

use api::Problem;
use bus::Nats;
use contract::buckets::Bucket;

use crate::{in_time, row_problem};

/// Every row whose key matches `filter`.
pub async fn rows<B: Bucket>(nats: &Nats, filter: &str) -> Result<Vec<B::Value>, Problem> {
    in_time(nats.rows::<B>(filter)).await?.map_err(|error| row_problem(&error))
}
