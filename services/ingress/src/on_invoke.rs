//! A message with its answer: waited for, told as it comes, or asked for later.

use api::{
    Begin, Caller, ConversationRecord, Events, Ids, InvokeBody, JsonBody, MessageInput, Next, Opening,
    Params, Problem, ResumeParams, Settled, Source, Until, Waiting, stream,
};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use contract::buckets::Agent;
use domain::ids::{AgentId, MessageId, RecordSeq};
use domain::process::{ConversationKey, Mode};
use reads::{head, standing, thread, watch};

use crate::Ingress;
use crate::accept::{Accepted, Place};
use crate::verdict::cannot_be_taken;

/// `POST /v1/agents/{agent_id}/invoke` and `…/conversations/invoke`
pub(crate) async fn invoke(
    State(ingress): State<Ingress>,
    caller: Caller,
    Ids(agent): Ids<AgentId>,
    JsonBody(body): JsonBody<InvokeBody>,
) -> Result<Json<ConversationRecord>, Problem> {
    let (agent, accepted) = ingress.said(&caller, agent, body).await?;
    ingress.answered(&accepted).await?;
    ingress.record(&agent, &accepted).await.map(Json)
}

/// `POST /v1/agents/{agent_id}/invoke/async`
pub(crate) async fn invoke_async(
    State(ingress): State<Ingress>,
    caller: Caller,
    Ids(agent): Ids<AgentId>,
    JsonBody(body): JsonBody<InvokeBody>,
) -> Result<(StatusCode, Json<ConversationRecord>), Problem> {
    let (agent, accepted) = ingress.said(&caller, agent, body).await?;
    let record = ingress.record(&agent, &accepted).await?;
    Ok((StatusCode::ACCEPTED, Json(record)))
}

/// `POST /v1/agents/{agent_id}/invoke/stream` and `…/conversations/invoke/stream`
pub(crate) async fn invoke_stream(
    State(ingress): State<Ingress>,
    caller: Caller,
    Ids(agent): Ids<AgentId>,
    Params(params): Params<ResumeParams>,
    headers: HeaderMap,
    JsonBody(body): JsonBody<InvokeBody>,
) -> Result<Response, Problem> {
    let seen = params.last_seen(&headers)?;
    let input = body.input.clone();
    let (agent, accepted) = ingress.said(&caller, agent, body).await?;
    ingress.told(&agent, &accepted, input, seen).await
}

// === impl Ingress ===

impl Ingress {
    async fn said(
        &self,
        caller: &Caller,
        agent: AgentId,
        body: InvokeBody,
    ) -> Result<(Agent, Accepted), Problem> {
        let (id, mode) = (body.id.clone(), body.mode);
        let saying = body.saying()?;
        let agent = self.access.agent(caller, agent).await?;
        let place = match id {
            Some(id) => {
                let conversation = id.parse().map_err(|_| Problem::not_found("conversation"))?;
                Place::existing(self.access.conversation(&agent, conversation).await?)
            }
            None => Place::opened(&agent, saying.idempotency_key.as_deref()),
        };
        let accepted = self.accept(caller, &agent, place, saying).await?;
        if mode == Mode::Steer {
            self.verdict(&accepted).await?;
        }
        Ok((agent, accepted))
    }

    /// Returns once the message is answered, or will not be, or the client has waited long enough.
    async fn answered(&self, accepted: &Accepted) -> Result<(), Problem> {
        let settled = tokio::select! {
            settled = self.settled(accepted.key, accepted.input) => settled,
            () = self.runtime.clock.sleep(self.config.invoke_timeout) => return Ok(()),
            () = self.runtime.shutdown.draining() => return Ok(()),
        };
        match settled {
            Settled::Refused(why) => Err(Problem::Refused(why)),
            Settled::Dead(error) => Err(cannot_be_taken(&error)),
            Settled::TurnEnded
            | Settled::Asked
            | Settled::Ended
            | Settled::Parked
            | Settled::Duplicate(_) => Ok(()),
        }
    }

    async fn settled(&self, key: ConversationKey, mut input: RecordSeq) -> Settled {
        loop {
            match self.settled_once(key, input).await {
                // What comes of it comes of the message that was first.
                Some(Settled::Duplicate(of)) => input = of,
                Some(settled) => return settled,
                // Too slow for a moment: the record is read again from the message on.
                None => {}
            }
        }
    }

    async fn settled_once(&self, key: ConversationKey, input: RecordSeq) -> Option<Settled> {
        let mut watch = watch(&self.fanout, &self.nats, key, input.0 - 1).await;
        let mut waiting = Waiting::new(input);
        loop {
            match watch.next().await {
                Next::Entry(entry) => {
                    let settled = waiting.push(&entry).into_iter().next();
                    if settled.is_some() {
                        return settled;
                    }
                }
                Next::Delta(_) | Next::CaughtUp => {}
                Next::Closed => return None,
            }
        }
    }

    async fn record(&self, agent: &Agent, accepted: &Accepted) -> Result<ConversationRecord, Problem> {
        let key = accepted.key;
        let read = async {
            let last = head(&self.nats, key).await?.state;
            let handled = last.as_ref().map_or(RecordSeq(0), |state| state.handled);
            let thread = thread(&self.nats, key, handled, None).await?;
            Ok(ConversationRecord::new(key, agent, last, thread))
        };
        read.await.map_err(|_: Problem| unread(accepted))
    }

    /// The stream of the message's answer. `seen` is the last event that the client has of it.
    async fn told(
        &self,
        agent: &Agent,
        accepted: &Accepted,
        input: MessageInput,
        seen: Option<u64>,
    ) -> Result<Response, Problem> {
        let (key, before) = (accepted.key, accepted.input.0 - 1);
        let state = standing(&self.nats, key, agent).await.map_err(|_| unread(accepted))?;
        let process = state.map(|state| state.public());
        let task =
            process.as_ref().map(|process| ConversationRecord::of_start(key.org, process, Some(input)));
        let opening = Opening {
            events: Events::new(
                key,
                Begin::After(seen.unwrap_or(0).max(before)),
                process.map(|process| process.id),
            ),
            task: task.filter(|_| seen.is_none()),
            until: Until::Over(Waiting::new(accepted.input)),
        };
        Ok(stream(opening, watch(&self.fanout, &self.nats, key, before).await, &self.runtime))
    }
}

fn unread(accepted: &Accepted) -> Problem {
    let conversation = accepted.key.conversation;
    Problem::AnswerUnread { conversation, message: MessageId::of_input(conversation, accepted.input) }
}
