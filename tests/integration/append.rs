//! Fifty instances append to one conversation while the broker is killed: every input ends in one step, in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bus::{AppendError, Appended, Log};
use contract::topology::{OPERATOR, STEERER};
use domain::Refusal;
use domain::process::Cause;
use tests::builders::{Life, key, message};
use tests::invariants::check_log;
use tests::{Broker, log, soon};

const APPENDERS: usize = 50;
const INPUTS: u64 = 60;
const KILLS: u64 = 3;

#[tokio::test(flavor = "multi_thread")]
async fn fifty_appenders_and_a_broker_that_is_killed() {
    let mut broker = Broker::start().await;
    let highest = Arc::new(AtomicU64::new(0));
    // All are connected before one begins, or the first would be done before the last comes.
    let begin = Arc::new(tokio::sync::Barrier::new(APPENDERS));
    let mut appenders = Vec::new();
    for _ in 0..APPENDERS {
        let log = Log::new(Arc::new(broker.connect(STEERER).await));
        let (highest, begin) = (highest.clone(), begin.clone());
        appenders.push(tokio::spawn(async move {
            begin.wait().await;
            let mut appended = 0;
            for seq in 1..=INPUTS {
                appended += u32::from(append(&log, message(seq)).await);
                highest.fetch_max(seq, Ordering::Relaxed);
            }
            appended
        }));
    }
    for kill in 1..=KILLS {
        let reached = kill * INPUTS / (KILLS + 1);
        soon("progress between two kills", async || match highest.load(Ordering::Relaxed) {
            seq if seq >= reached => Ok(()),
            seq => Err(seq),
        })
        .await;
        broker.restart().await;
    }
    let mut appended = 0;
    for appender in appenders {
        appended += appender.await.expect("an appender");
    }
    let steps = log::steps(&broker.connect(OPERATOR).await, key(1)).await;
    check_log(key(1), &steps).unwrap_or_else(|breach| panic!("{breach:?}"));
    assert_eq!(steps.len() as u64, INPUTS);
    // An append whose acknowledgement was lost is found in the log and counted by nobody.
    assert!(appended <= steps.len() as u32, "{appended} claims to have appended {} steps", steps.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_claims_of_one_epoch_at_once_make_one_hot_segment() {
    let broker = Broker::start().await;
    let logs: Vec<Log> = {
        let mut logs = Vec::new();
        for _ in 0..8 {
            logs.push(Log::new(Arc::new(broker.connect(STEERER).await)));
        }
        logs
    };
    for conversation in 1..=20 {
        let key = key(conversation);
        logs[0].append(key, message(conversation as u64), None, tests::now).await.expect("a start");
        let claims = logs.iter().enumerate().map(|(n, log)| {
            let life = Life::new(u16::try_from(n).expect("few"), 100 + n as u128);
            async move { log.append(key, life.claim(1), None, tests::now).await }
        });
        let claimed = futures_util::future::join_all(claims).await;
        let won = claimed.iter().filter(|claim| matches!(claim, Ok(Appended::Step { .. }))).count();
        let fenced = claimed
            .iter()
            .filter(|claim| matches!(claim, Err(AppendError::Refused(Refusal::Fenced { .. }))))
            .count();
        assert_eq!((won, fenced), (1, 7), "{claimed:?}");
    }
}

/// Whether this appender's own append was acknowledged.
async fn append(log: &Log, cause: Cause) -> bool {
    loop {
        match log.append(key(1), cause.clone(), None, tests::now).await {
            Ok(_) => return true,
            Err(AppendError::Refused(Refusal::AlreadyHandled { .. })) => return false,
            Err(AppendError::Refused(refusal)) => panic!("{refusal}"),
            // The broker is away; the loop of a role would be rung again.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}
