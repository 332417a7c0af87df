//! `resident dlq`: what no handler could take.

use bus::{DeadLetter, Nats};
use contract::topology::OPERATOR;
use serde_json::{Value, json};
use service::config::Settings;

use super::keys::broker_url;
use super::print;
use crate::broker;
use crate::cli::DlqCommand;
use crate::failure::{Failure, say};

pub(super) async fn run(settings: &Settings, command: &DlqCommand) -> Result<(), Failure> {
    let operator = broker::connect(settings, &broker_url(settings)?, OPERATOR).await?;
    match command {
        DlqCommand::Ls { json } => list(&operator, *json).await,
        DlqCommand::Show { letter, json } => show(&one(&operator, *letter).await?, *json),
        DlqCommand::Replay { letter } => {
            let found = one(&operator, *letter).await?;
            let subject = found.subject.clone();
            found.replay(&operator).await.map_err(Failure::DeadLetters)?;
            say(&format!("letter {letter} was sent again to {subject}"));
            Ok(())
        }
    }
}

async fn list(operator: &Nats, as_json: bool) -> Result<(), Failure> {
    let mut from = 1;
    while let Some(letter) = DeadLetter::next(operator, from).await.map_err(Failure::DeadLetters)? {
        from = letter.sequence + 1;
        print(&if as_json { told(&letter).to_string() } else { line(&letter) })?;
    }
    if from == 1 && !as_json {
        say("there are no dead letters");
    }
    Ok(())
}

async fn one(operator: &Nats, letter: u64) -> Result<DeadLetter, Failure> {
    let found = DeadLetter::at(operator, letter).await.map_err(Failure::DeadLetters)?;
    found.ok_or(Failure::NoDeadLetter(letter))
}

fn show(letter: &DeadLetter, as_json: bool) -> Result<(), Failure> {
    let body = String::from_utf8_lossy(&letter.envelope.body);
    if as_json {
        let mut told = told(letter);
        told["body"] = serde_json::from_str(&body).unwrap_or_else(|_| Value::String(body.into_owned()));
        return print(&told.to_string());
    }
    print(&line(letter))?;
    print(&body)
}

fn line(letter: &DeadLetter) -> String {
    let DeadLetter { sequence, at, subject, original_sequence, because, .. } = letter;
    format!("{sequence:6}  {at}  {subject} #{original_sequence}  {because}")
}

fn told(letter: &DeadLetter) -> Value {
    json!({
        "letter": letter.sequence,
        "at": letter.at,
        "subject": letter.subject,
        "sequence": letter.original_sequence,
        "because": letter.because,
        "kind": letter.envelope.kind,
        "traceparent": letter.envelope.traceparent,
    })
}
