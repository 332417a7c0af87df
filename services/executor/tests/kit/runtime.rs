//! The runtime as a harness sees it through the socket: the real endpoint, with a scripted model for a provider, and
//! a segment that writes down what its agent calls and answers as a test wants.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use domain::Timestamp;
use domain::ids::{MessageId, QuestionId};
use domain::segment::Ask;
use executor::endpoint::{Credential, Endpoint};
use executor::model_proxy::{ModelCall, ModelProxy, Provider};
use executor::tools::{Asked, Calls, NewQuestion, Tools, Unavailable};
use executor::volume::LockedDir;
use scripted_model::{Script, ScriptedModel};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::door::patience;

/// The credential of the segments here; the endpoint admits no other.
pub(crate) const TOKEN: &str = "the-segment-token";
/// The provider's; the scripted model admits no other.
pub(crate) const PROVIDER_KEY: &str = "the-provider-key";

pub(crate) struct Runtime {
    pub(crate) model: ScriptedModel,
    pub(crate) segment: Arc<Segment>,
    /// What was told of model calls, by all segments together.
    pub(crate) model_calls: Arc<Mutex<Vec<ModelCall>>>,
}

/// Stands where the segment's task will be.
pub(crate) struct Segment {
    /// Each note, with the harness's id of the call.
    pub(crate) told: Mutex<Vec<(String, Option<String>)>>,
    /// What was asked of the log.
    pub(crate) asked: Mutex<Vec<Ask>>,
    pub(crate) questions: Mutex<Vec<NewQuestion>>,
    /// What the next calls that ask are answered; after these they succeed.
    pub(crate) answers: Mutex<VecDeque<Asked>>,
    /// Why notes are not taken now.
    pub(crate) closed: Mutex<Option<String>>,
    /// Calls wait while this is true.
    pub(crate) held: watch::Sender<bool>,
}

impl Segment {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            told: Mutex::default(),
            asked: Mutex::default(),
            questions: Mutex::default(),
            answers: Mutex::default(),
            closed: Mutex::default(),
            held: watch::Sender::new(false),
        })
    }

    pub(crate) fn answer(&self, answers: impl IntoIterator<Item = Asked>) {
        self.answers.lock().unwrap().extend(answers);
    }

    pub(crate) fn told(&self) -> Vec<String> {
        self.told.lock().unwrap().iter().map(|(text, _)| text.clone()).collect()
    }

    pub(crate) fn summaries(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        let summary = |ask: &Ask| match ask {
            Ask::Finish { summary } => Some(summary.clone()),
            _ => None,
        };
        asked.iter().filter_map(summary).collect()
    }

    fn next_answer(&self, questions: Vec<QuestionId>) -> Asked {
        let done = || Asked::Done { running: Vec::new(), questions };
        self.answers.lock().unwrap().pop_front().unwrap_or_else(done)
    }

    async fn released(&self) {
        self.held.subscribe().wait_for(|held| !held).await.unwrap();
    }
}

#[async_trait]
impl Calls for Segment {
    fn now(&self) -> Timestamp {
        Timestamp::EPOCH
    }

    async fn ask(&self, ask: Ask) -> Asked {
        self.released().await;
        self.asked.lock().unwrap().push(ask);
        self.next_answer(Vec::new())
    }

    async fn question(&self, questions: Vec<NewQuestion>, _call_id: Option<String>) -> Asked {
        self.released().await;
        let ids = (0..questions.len()).map(|place| QuestionId::of(MessageId::UNKNOWN, place)).collect();
        self.questions.lock().unwrap().extend(questions);
        self.next_answer(ids)
    }

    async fn tell(&self, text: String, call_id: Option<String>) -> Result<(), Unavailable> {
        self.released().await;
        if let Some(why) = self.closed.lock().unwrap().clone() {
            return Err(Unavailable(why));
        }
        self.told.lock().unwrap().push((text, call_id));
        Ok(())
    }
}

impl Runtime {
    pub(crate) async fn start(script: Script) -> Self {
        let model = ScriptedModel::start_local(script).await.unwrap();
        model.require_bearer(PROVIDER_KEY);
        Self { model, segment: Segment::new(), model_calls: Arc::default() }
    }

    /// Serves one sandbox's socket, until the test is over.
    pub(crate) fn serve(&self, dir: &LockedDir) {
        let provider = Provider {
            base_url: self.model.url().parse().unwrap(),
            api_key: Some(PROVIDER_KEY.to_owned().into()),
        };
        let client = service::http::client().unwrap();
        let (model, mut calls) = ModelProxy::new(client, provider, patience()).unwrap();
        let credential = Credential::new(TOKEN.to_owned().into(), Arc::new(AtomicBool::new(true)));
        let tools = Tools::new(self.segment.clone());
        let endpoint = Endpoint { credential, model, tools };
        tokio::spawn(endpoint.serve(dir.listen().unwrap(), CancellationToken::new()));
        let model_calls = Arc::clone(&self.model_calls);
        tokio::spawn(async move {
            while let Some(call) = calls.recv().await {
                model_calls.lock().unwrap().push(call);
            }
        });
    }
}
