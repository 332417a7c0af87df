//! Plays a plan: people speak, programs die, and then everything is calm until all is done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bus::{BusError, Outgoing, Port};
use contract::Subject;
use contract::buckets::{Access, Agent, AgentKey, Agents, PermissionMode, subject_of};
use contract::messages::event::EventEntry;
use contract::messages::record::{Answer, InputEntry, InputKind, Source};
use contract::subjects::{self, filter};
use contract::topology::{ASSIGN, PROCESS, TIMERS};
use domain::ids::ExecutorId;
use domain::process::{ConversationKey, EventKey, Harness, Mode, ParkReason, Phase, State, Step, StopScope};
use tests::broker::fleet;
use tests::builders::{agent, key, user};

use crate::executor::Life;
use crate::judge;
use crate::plan::{Happening, Plan, ROLES, Role, What};
use crate::wire::Line;
use crate::world::{Running, World};

/// How long everything may take once it is calm: a crash may rest for ten minutes.
const CALM_FOR: Duration = Duration::from_secs(45 * 60);
const LOOK_EVERY: Duration = Duration::from_secs(5);
const SPOKEN_TO_EVERY: u32 = 8;

/// How often what was not acknowledged is said again.
const SAID_AGAIN: u32 = 20;

pub(crate) struct Played {
    pub(crate) trace: u64,
    pub(crate) outcome: Result<(), String>,
}

/// Everything that may be killed and started again.
struct Stage {
    world: Arc<World>,
    person: Line,
    roles: BTreeMap<Role, Vec<Running>>,
    lives: BTreeMap<u16, Arc<Life>>,
    lives_begun: u128,
    /// What is to be undone, by when.
    later: Vec<(Duration, Undo)>,
    conversations: u16,
    said: u64,
}

#[derive(Clone, Copy)]
enum Undo {
    Start(Role),
    Reach(Role),
    StartExecutor(u16),
    ReachExecutor(u16),
    Broker,
}

/// Plays it in a time of its own. `compares` off takes the compare-and-set away.
pub(crate) fn play(plan: &Plan, compares: bool) -> Played {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let world = World::start(&fleet(plan.executors), plan.seed);
        world.model.store().compares = compares;
        let mut stage = Stage {
            person: world.model.connect(),
            world: Arc::clone(&world),
            roles: BTreeMap::new(),
            lives: BTreeMap::new(),
            lives_begun: 0,
            later: Vec::new(),
            conversations: plan.conversations,
            said: 0,
        };
        stage.begin(plan.executors).await;
        world.model.is_unkind(true);
        stage.perform(&plan.happenings).await;
        let outcome = match world.first_breach() {
            Some(breach) => Err(breach),
            None => stage.calm().await.and_then(|()| judge::all(&world)),
        };
        let trace = world.model.store().trace();
        Played { trace, outcome }
    })
}

impl Stage {
    async fn begin(&mut self, executors: u16) {
        let row = Agent {
            id: agent(),
            org: key(0).org,
            name: "a".into(),
            description: String::new(),
            instructions: String::new(),
            harness: Harness::ClaudeCode,
            model: None,
            permission_mode: PermissionMode::default(),
            gated_commands: Vec::new(),
            access: Access::default(),
            created_by: user(),
            created_at: self.world.now(),
            updated_at: self.world.now(),
            deleted_at: None,
        };
        let name = AgentKey { org: row.org, agent: row.id };
        let value = Outgoing::bare(&subject_of::<Agents>(name), serde_json::to_vec(&row).expect("a row"));
        self.person.publish(value).await.expect("an agent");
        for role in ROLES {
            self.start(role);
        }
        for executor in 0..executors {
            self.start_executor(executor);
        }
    }

    fn start(&mut self, role: Role) {
        let running = self.world.run(role);
        self.roles.entry(role).or_default().push(running);
    }

    fn start_executor(&mut self, executor: u16) {
        self.lives_begun += 1;
        let life = Life::start(&self.world, ExecutorId(executor), self.lives_begun);
        self.lives.insert(executor, life);
    }

    async fn perform(&mut self, happenings: &[Happening]) {
        for happening in happenings {
            self.pass_to(Duration::from_millis(happening.at)).await;
            self.happens(happening.what);
        }
        let longest = self.later.iter().map(|(at, _)| *at).max().unwrap_or_default();
        self.pass_to(longest).await;
    }

    /// Time passes, and what was to be undone meanwhile is.
    async fn pass_to(&mut self, until: Duration) {
        loop {
            self.later.sort_by_key(|(at, _)| *at);
            let due = self.later.first().copied().filter(|(at, _)| *at <= until);
            let now = self.world.monotonic();
            let Some((at, undo)) = due else {
                tokio::time::sleep(until.saturating_sub(now)).await;
                return;
            };
            self.later.remove(0);
            tokio::time::sleep(at.saturating_sub(now)).await;
            self.undo(undo);
        }
    }

    fn after(&mut self, millis: u64, undo: Undo) {
        self.later.push((self.world.monotonic() + Duration::from_millis(millis), undo));
    }

    fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Start(role) => self.start(role),
            Undo::Reach(role) => {
                self.roles.get(&role).into_iter().flatten().for_each(|running| running.line.is_cut(false));
            }
            Undo::StartExecutor(executor) => self.start_executor(executor),
            Undo::ReachExecutor(executor) => {
                if let Some(life) = self.lives.get(&executor) {
                    life.line.is_cut(false);
                }
            }
            Undo::Broker => self.world.model.stands_still(false),
        }
    }

    fn happens(&mut self, what: What) {
        match what {
            What::Say { conversation, mode } => {
                let mode = [Mode::Auto, Mode::Steer, Mode::Queue, Mode::Interrupt][usize::from(mode) % 4];
                self.say(conversation, mode);
            }
            What::SayTwice { conversation } => {
                self.say(conversation, Mode::Auto);
                self.say(conversation, Mode::Auto);
            }
            What::Stop { conversation, process } => {
                let scope = if process { StopScope::Process } else { StopScope::Turn };
                self.tell(conversation, InputKind::Stop { scope });
            }
            What::Archive { conversation } => self.tell(conversation, InputKind::Archive),
            What::Answer { conversation } => {
                self.answer(conversation);
                self.answer(conversation);
            }
            What::Retry { conversation } => self.tell(conversation, InputKind::Retry),
            What::Fail { conversation } => {
                self.tell(conversation, InputKind::Fail { why: "given up".into() });
            }
            What::Event { number } => self.event(number),
            What::CrashHarness { conversation } => {
                self.world.crash(conversation_key(conversation).conversation);
            }
            What::KillRole { role, away } => {
                let running = self.roles.remove(&role).unwrap_or_default();
                for running in running {
                    running.dies();
                    self.after(away, Undo::Start(role));
                }
            }
            What::Another { role } => self.start(role),
            What::CutRole { role, lasting } => {
                self.roles.get(&role).into_iter().flatten().for_each(|running| running.line.is_cut(true));
                self.after(lasting, Undo::Reach(role));
            }
            What::KillExecutor { executor, away } => {
                if let Some(life) = self.lives.remove(&executor) {
                    life.dies();
                    self.after(away, Undo::StartExecutor(executor));
                }
            }
            What::StopExecutor { executor, lasting } => {
                if let Some(life) = self.lives.get(&executor).cloned() {
                    tokio::spawn(async move { life.stands_still(Duration::from_millis(lasting)).await });
                }
            }
            What::CutExecutor { executor, lasting } => {
                if let Some(life) = self.lives.get(&executor) {
                    life.line.is_cut(true);
                    self.after(lasting, Undo::ReachExecutor(executor));
                }
            }
            What::StopBroker { lasting } => {
                self.world.model.stands_still(true);
                self.after(lasting, Undo::Broker);
            }
            What::RestartBroker => self.world.model.restart(),
            What::DeleteAssignments => self.world.model.store().purge(ASSIGN, ">", 0),
            What::DeleteTimers => self.world.model.store().purge(TIMERS, ">", 0),
            What::DeleteLeases => self.world.model.store().purge("KV_executors", ">", 0),
        }
    }

    fn say(&mut self, conversation: u16, mode: Mode) {
        self.said += 1;
        let text = format!("message {}", self.said);
        self.tell(conversation, InputKind::Message { text, files: Vec::new(), mode });
    }

    /// Says it until it is acknowledged, under one name.
    fn tell(&mut self, conversation: u16, what: InputKind) {
        self.said += 1;
        let name = format!("said-{}", self.said);
        let entry = InputEntry {
            at: self.world.now(),
            agent: agent(),
            from: user(),
            author: None,
            source: Source::Api,
            idempotency_key: Some(name.clone()),
            what,
        };
        let message =
            Outgoing::message(&Subject::RecordIn(conversation_key(conversation)), &entry).with_id(name);
        self.publish(message);
    }

    fn publish(&self, message: Outgoing) {
        let person = self.person.clone();
        tokio::spawn(async move {
            for _ in 0..SAID_AGAIN {
                match person.publish(message.clone()).await {
                    Err(BusError::Unknown | BusError::Unavailable(_)) => {}
                    Ok(_) | Err(_) => return,
                }
            }
        });
    }

    fn answer(&mut self, conversation: u16) {
        let card = self.state(conversation).and_then(|state| state.cards.first().cloned());
        let Some(card) = card else { return };
        let one = |question: &domain::process::OpenQuestion| Answer {
            question: question.id,
            text: "which?".into(),
            answer: vec!["this".into()],
        };
        let answers = card.questions.iter().map(one).collect();
        self.tell(conversation, InputKind::Answer { card: card.id, answers });
    }

    fn event(&mut self, number: u64) {
        self.said += 1;
        let key = EventKey::Github { repo: "acme/site".into(), number };
        let subject = subjects::event(conversation_key(0).org, &key);
        let entry = EventEntry {
            at: self.world.now(),
            key,
            kind: "issue_comment.created".into(),
            own: false,
            summary: "a comment".into(),
            url: None,
            author: None,
            association: None,
            text: None,
        };
        self.publish(Outgoing::message(&subject, &entry).with_id(format!("delivery-{}", self.said)));
    }

    fn state(&self, conversation: u16) -> Option<State> {
        let last = self.world.model.store().last(PROCESS, &filter::log(conversation_key(conversation)))?;
        Some(last.decode::<Step>().expect("a step").state)
    }

    /// Nothing fails any more. People help until everything has come to its end.
    async fn calm(&mut self) -> Result<(), String> {
        self.world.calms();
        let began = self.world.monotonic();
        let mut looks = 0;
        loop {
            if let Some(breach) = self.world.first_breach() {
                return Err(breach);
            }
            let ended = self.roles.iter().find(|(_, running)| running.iter().any(Running::has_ended));
            if let Some((role, _)) = ended {
                return Err(format!("{role:?} has ended by itself"));
            }
            let open: Vec<_> = (0..self.conversations).filter(|number| self.is_open(*number)).collect();
            let unrested =
                if open.is_empty() { judge::unrest(&self.world) } else { Some(format!("{open:?} are open")) };
            let Some(unrested) = unrested else { return Ok(()) };
            if self.world.monotonic() - began > CALM_FOR {
                let stand: Vec<_> = open.iter().map(|number| self.state(*number)).collect();
                return Err(format!("{unrested} {CALM_FOR:?} after the last fault: {stand:#?}"));
            }
            for number in open {
                self.help(number, looks % SPOKEN_TO_EVERY == 0);
            }
            looks += 1;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn is_open(&self, conversation: u16) -> bool {
        self.state(conversation)
            .is_some_and(|state| !matches!(state.phase, Phase::Ended { .. } | Phase::Absent))
    }

    fn help(&mut self, conversation: u16, speak: bool) {
        let Some(state) = self.state(conversation) else { return };
        if !speak {
            return;
        }
        if !state.cards.is_empty() {
            return self.answer(conversation);
        }
        match &state.phase {
            Phase::Parked { reason: ParkReason::NeedsAttention { .. }, .. } => {
                self.tell(conversation, InputKind::Retry);
            }
            Phase::Parked { reason: ParkReason::Absent | ParkReason::Question, .. } => {
                self.say(conversation, Mode::Auto);
            }
            _ => {}
        }
    }
}

fn conversation_key(number: u16) -> ConversationKey {
    key(100 + u128::from(number))
}
