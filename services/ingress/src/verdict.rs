//! What became of an input that can be refused: it is answered from the step that carries its number.

use std::time::Duration;

use api::Problem;
use bus::Port;
use contract::subjects::filter;
use contract::topology::PROCESS;
use domain::ids::RecordSeq;
use domain::process::{Cause, Fact, Step};

use crate::Ingress;
use crate::accept::Accepted;

/// The step takes a few milliseconds; a steerer that changes hands takes longer, and then 202 is the answer.
const WITHIN: Duration = Duration::from_secs(2);
const POLL_EVERY: Duration = Duration::from_millis(10);

impl Ingress {
    /// The input's step, if it comes in time. It is accepted whatever happens here.
    async fn step_of(&self, accepted: &Accepted) -> Option<Step> {
        let clock = &self.runtime.clock;
        let started = clock.monotonic();
        let (log, mut from) = (filter::log(accepted.key), accepted.behind + 1);
        while clock.monotonic().saturating_sub(started) < WITHIN {
            match self.nats.next(PROCESS, &log, from).await {
                Ok(Some(stored)) => {
                    from = stored.sequence + 1;
                    let step: Step = stored.decode().ok()?;
                    if takes(&step, accepted.input) {
                        return Some(step);
                    }
                    // Its own step was trimmed away.
                    if step.state.handled > accepted.input {
                        return None;
                    }
                }
                Ok(None) | Err(_) => clock.sleep(POLL_EVERY).await,
            }
        }
        None
    }

    /// Waits for the input's step and passes its refusal on.
    pub(crate) async fn verdict(&self, accepted: &Accepted) -> Result<Option<Step>, Problem> {
        let Some(step) = self.step_of(accepted).await else { return Ok(None) };
        match refusal(&step, accepted.input) {
            Some(problem) => Err(problem),
            None => Ok(Some(step)),
        }
    }
}

/// Whether the step carries the input's number.
fn takes(step: &Step, input: RecordSeq) -> bool {
    matches!(&step.cause, Cause::Input { seq, .. } if *seq == input)
}

fn refusal(step: &Step, input: RecordSeq) -> Option<Problem> {
    step.facts.iter().find_map(|fact| match fact {
        Fact::Refused { input: Some(refused), why } if *refused == input => {
            Some(Problem::Refused(why.clone()))
        }
        Fact::Dead { input: dead, error } if *dead == input => Some(cannot_be_taken(error)),
        _ => None,
    })
}

/// No program could take the input.
pub(crate) fn cannot_be_taken(error: &str) -> Problem {
    Problem::Internal {
        why: format!(
            "it was accepted and could not be carried out: {error}; an operator finds it among the dead letters"
        ),
    }
}
