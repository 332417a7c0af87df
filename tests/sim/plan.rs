//! What happens in one run: drawn from a seed, written down, and played again from there. Of a run that fails, the list
//! is made as short as it can be and still fail.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

/// The roles that run in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Role {
    Steerer,
    Registry,
    Waker,
    Scheduler,
}

pub(crate) const ROLES: [Role; 4] = [Role::Steerer, Role::Registry, Role::Waker, Role::Scheduler];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) conversations: u16,
    pub(crate) executors: u16,
    pub(crate) happenings: Vec<Happening>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Happening {
    /// Milliseconds from the beginning.
    pub(crate) at: u64,
    pub(crate) what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum What {
    /// A message; `mode` is one of the four.
    Say {
        conversation: u16,
        mode: u8,
    },
    /// Two messages at one instant.
    SayTwice {
        conversation: u16,
    },
    Stop {
        conversation: u16,
        process: bool,
    },
    Archive {
        conversation: u16,
    },
    /// The first open card is answered, by two people at once.
    Answer {
        conversation: u16,
    },
    Retry {
        conversation: u16,
    },
    Fail {
        conversation: u16,
    },
    /// Something happens to a pull request.
    Event {
        number: u64,
    },
    CrashHarness {
        conversation: u16,
    },
    KillRole {
        role: Role,
        away: u64,
    },
    /// A second instance.
    Another {
        role: Role,
    },
    CutRole {
        role: Role,
        lasting: u64,
    },
    KillExecutor {
        executor: u16,
        away: u64,
    },
    StopExecutor {
        executor: u16,
        lasting: u64,
    },
    CutExecutor {
        executor: u16,
        lasting: u64,
    },
    StopBroker {
        lasting: u64,
    },
    RestartBroker,
    /// Somebody deletes everything of a kind by hand.
    DeleteAssignments,
    DeleteTimers,
    DeleteLeases,
}

impl Plan {
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed ^ 0x5eed);
        let conversations = rng.random_range(1..5);
        let executors = rng.random_range(1..4);
        let length = rng.random_range(30_000..400_000);
        let count = rng.random_range(8..90);
        let mut happenings: Vec<_> = (0..count)
            .map(|_| {
                let at = rng.random_range(0..length);
                Happening { at, what: what(&mut rng, conversations, executors) }
            })
            .collect();
        happenings.sort_by_key(|happening| happening.at);
        Self { seed, conversations, executors, happenings }
    }

    /// As short as it can be made within `tries` runs, where `fails` says of each whether it fails.
    pub(crate) fn shrunk(self, tries: usize, mut fails: impl FnMut(&Self) -> bool) -> Self {
        let (mut best, mut left) = (self, tries);
        let mut chunk = best.happenings.len().div_ceil(2).max(1);
        loop {
            let (mut start, mut shorter) = (0, false);
            while start < best.happenings.len() && left > 0 {
                let mut less = best.clone();
                less.happenings.drain(start..(start + chunk).min(best.happenings.len()));
                left -= 1;
                if fails(&less) {
                    (best, shorter) = (less, true);
                } else {
                    start += chunk;
                }
            }
            if left == 0 || (chunk == 1 && !shorter) {
                return best;
            }
            chunk = (chunk / 2).max(1);
        }
    }
}

fn what(rng: &mut StdRng, conversations: u16, executors: u16) -> What {
    let conversation = rng.random_range(0..conversations);
    let executor = rng.random_range(0..executors);
    let role = ROLES[rng.random_range(0..ROLES.len())];
    let lasting = match rng.random_range(0..4) {
        0 => rng.random_range(20_000..60_000),
        _ => rng.random_range(100..15_000),
    };
    match rng.random_range(0..100) {
        0..32 => What::Say { conversation, mode: rng.random_range(0..4) },
        32..36 => What::SayTwice { conversation },
        36..41 => What::Stop { conversation, process: false },
        41..44 => What::Stop { conversation, process: true },
        44..45 => What::Archive { conversation },
        45..54 => What::Answer { conversation },
        54..56 => What::Retry { conversation },
        56..57 => What::Fail { conversation },
        57..65 => What::Event { number: rng.random_range(1..4) },
        65..69 => What::CrashHarness { conversation },
        69..75 => What::KillRole { role, away: lasting },
        75..77 => What::Another { role },
        77..81 => What::CutRole { role, lasting },
        81..85 => What::KillExecutor { executor, away: lasting },
        85..88 => What::StopExecutor { executor, lasting },
        88..92 => What::CutExecutor { executor, lasting },
        92..94 => What::StopBroker { lasting },
        94..97 => What::RestartBroker,
        97..98 => What::DeleteAssignments,
        98..99 => What::DeleteTimers,
        _ => What::DeleteLeases,
    }
}

#[test]
fn what_fails_is_made_short_and_fails_still() {
    let is = |wanted: fn(&What) -> bool| move |happening: &Happening| wanted(&happening.what);
    let (killed, restarted) =
        (is(|what| matches!(what, What::KillRole { .. })), is(|what| matches!(what, What::RestartBroker)));
    let fails = |plan: &Plan| {
        let first = plan.happenings.iter().position(killed);
        first.is_some_and(|first| plan.happenings[first..].iter().any(restarted))
    };
    let plan = (1..).map(Plan::of).find(fails).expect("one of them fails");
    let shrunk = plan.clone().shrunk(500, fails);
    assert!(fails(&shrunk));
    assert_eq!(shrunk.happenings.len(), 2, "of {plan:?}");
}

#[test]
fn a_plan_is_read_as_it_was_written() {
    let plan = Plan::of(7);
    let written = serde_json::to_string(&plan).expect("it is written");
    assert_eq!(serde_json::from_str::<Plan>(&written).expect("it is read"), plan);
}
