//! A segment has reported. The report becomes a step if the segment still holds its conversation, and the step is its
//! answer. An executor speaks only for itself: the broker lets it publish under its own name alone.

use std::sync::Arc;
use std::time::Duration;

use bus::{AppendError, BusError, Delivery, Handled, Log, Port, last_event};
use contract::Subject;
use contract::messages::assign::Assignment;
use contract::messages::segment::SegmentReport;
use contract::subjects::filter;
use contract::topology::ASSIGN;
use domain::Refusal;
use domain::ids::ExecutorId;
use domain::process::{Cause, SegmentEvent};
use service::clock::Clock;
use service::telemetry::{continue_from, traceparent_of};
use tracing::Instrument;

/// How long a report waits when the broker could not be asked.
const BROKER_AWAY: Duration = Duration::from_millis(200);

pub(crate) struct Reports {
    pub(crate) port: Arc<dyn Port>,
    pub(crate) log: Log,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Reports {
    pub(crate) async fn on_report(&self, delivery: Delivery) -> Handled {
        let stored = &delivery.stored;
        let said = match stored.decode::<SegmentReport>() {
            Ok(said) => said,
            Err(error) => return Handled::Dead(error.to_string()),
        };
        let named = stored.subject.parse();
        let Ok(Subject::Segment(executor, process)) = named else {
            return Handled::Dead("this subject is no segment's".into());
        };
        if executor != said.report.executor || process != said.process {
            return Handled::Dead(format!(
                "{executor} reports for {}, {}",
                said.report.executor, said.process
            ));
        }
        let span = tracing::info_span!(
            "report",
            conversation = %said.key.conversation,
            process = %process,
            executor = %executor,
            epoch = said.report.epoch.0,
            report = said.report.n.0,
        );
        if let Some(traceparent) = &stored.envelope.traceparent {
            continue_from(&span, traceparent);
        }
        self.take(executor, said).instrument(span).await
    }

    async fn take(&self, executor: ExecutorId, said: SegmentReport) -> Handled {
        let claims = said.report.events.iter().any(|event| matches!(event, SegmentEvent::Claim { .. }));
        if claims {
            match self.is_assigned(executor, &said).await {
                Ok(true) => {}
                Ok(false) => {
                    tracing::info!("a claim without an assignment is left");
                    return Handled::Done;
                }
                Err(error) => return later(&error),
            }
        }
        let mut report = said.report;
        if let Some(SegmentEvent::Park { events, .. } | SegmentEvent::Crashed { events, .. }) =
            report.events.last_mut()
        {
            match last_event(self.port.as_ref()).await {
                Ok(last) => *events = Some(last),
                Err(error) => return later(&error),
            }
        }
        let traceparent = traceparent_of(&tracing::Span::current());
        let cause = Cause::Report(report);
        match self.log.append(said.key, cause, traceparent.as_deref(), || self.clock.now()).await {
            Ok(_) => Handled::Done,
            // The log shows the segment who holds the conversation; there is nothing to answer.
            Err(AppendError::Refused(
                refusal @ (Refusal::Fenced { .. }
                | Refusal::OtherVolume { .. }
                | Refusal::AlreadyHandled { .. }),
            )) => {
                tracing::info!(%refusal, "report left");
                Handled::Done
            }
            Err(AppendError::Refused(refusal)) => Handled::Failed(refusal.to_string()),
            Err(error) => later(&error),
        }
    }

    /// Only the executor that was asked to may claim.
    async fn is_assigned(&self, executor: ExecutorId, said: &SegmentReport) -> Result<bool, BusError> {
        let assigned = self.port.last(ASSIGN, &filter::assignments_to(executor, said.process)).await?;
        let assigned = assigned.and_then(|stored| stored.decode::<Assignment>().ok());
        if assigned.is_some_and(|assigned| assigned.epoch == said.report.epoch) {
            return Ok(true);
        }
        // A repeated claim whose first one has been answered finds its assignment purged.
        let known = self.log.cached(said.key).and_then(|head| head.state);
        Ok(known.is_some_and(|state| state.hot().is_some_and(|hot| hot.executor == executor)))
    }
}

fn later(error: &dyn std::error::Error) -> Handled {
    tracing::warn!(%error, "report waits");
    Handled::Later(BROKER_AWAY)
}
