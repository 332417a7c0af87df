//! Where the events stand.

use contract::subjects::filter;
use contract::topology::EVENTS;
use domain::ids::EventSeq;

use crate::port::{BusError, Port};

/// The last event that was stored, from the leader; 0 where there is none. What comes from here on is new to a process
/// that starts or parks now.
pub async fn last_event(port: &dyn Port) -> Result<EventSeq, BusError> {
    let last = port.last(EVENTS, &filter::all_events()).await?;
    Ok(EventSeq(last.map_or(0, |stored| stored.sequence)))
}
