//! One suite for the modelled broker and for the real one: what is asked of both is answered alike.

mod asked;
mod timed;

use std::sync::Arc;

use bus::Bus;
use contract::topology::OPERATOR;
use rand::SeedableRng;
use rand::rngs::StdRng;
use service::clock::{Clock, RealClock};
use tests::broker::Broker;

use crate::clock::SimClock;
use crate::wire::Model;
use asked::Asked;

/// What is asked in one run: each of the kinds some dozens of times.
const ASKED: usize = 800;

/// A broker with the fleet's streams and nothing in them, and the clock it goes by.
struct Side {
    bus: Bus,
    clock: Arc<dyn Clock>,
}

async fn real(broker: &Broker) -> Side {
    Side { bus: broker.connect(OPERATOR).await.into(), clock: Arc::new(RealClock::start()) }
}

fn modelled(broker: &Broker) -> (Arc<Model>, Side) {
    let clock: Arc<dyn Clock> = Arc::new(SimClock::start());
    let model = Model::start(broker.fleet(), Arc::clone(&clock), 1);
    let side = Side { bus: Bus::new(model.connect()), clock };
    (model, side)
}

#[tokio::test]
async fn whatever_is_asked_is_answered_as_by_the_real_broker() {
    let broker = Broker::start().await;
    let real = real(&broker).await;
    let (model, modelled) = modelled(&broker);
    let mut rng = StdRng::seed_from_u64(1);
    let mut done = Vec::new();
    for _ in 0..ASKED {
        let asked = Asked::drawn(&mut rng, &model.store());
        let (is, ought) = (asked.of(&modelled.bus).await, asked.of(&real.bus).await);
        done.push(asked);
        assert_eq!(is, ought, "after {:#?}", &done[done.len().saturating_sub(12)..]);
    }
}

#[tokio::test]
async fn time_passes_as_at_the_real_broker() {
    let broker = Broker::start().await;
    let real = real(&broker).await;
    let (_, modelled) = modelled(&broker);
    tokio::join!(timed::all(&real), timed::all(&modelled));
}

#[tokio::test]
async fn what_was_read_is_read_on_after_a_restart_as_at_the_real_broker() {
    let mut broker = Broker::start().await;
    let real = real(&broker).await;
    let (model, modelled) = modelled(&broker);
    tokio::join!(
        timed::read_on(&real, async || broker.restart().await),
        timed::read_on(&modelled, async || model.restart())
    );
}
