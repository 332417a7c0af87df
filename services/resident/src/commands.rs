//! The commands, one file each.

mod answer;
mod broker;
mod demo;
mod dev;
mod dlq;
mod drain;
mod explain;
mod hooks;
mod keys;
mod logs;
mod ps;
mod run;
mod send;
mod serve;
mod show;

use std::io::{Write, stdout};
use std::process::ExitCode;

use domain::Timestamp;
use service::clock::{Clock, RealClock};

use crate::cli::{BrokerCommand, Cli, Command, HooksCommand, KeysCommand, SourceArg};
use crate::failure::Failure;
use crate::settings::{self, Flags};

pub(crate) async fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let flags = Flags { config: cli.config, data_dir: cli.data_dir, ..Flags::default() };
    match cli.command {
        Command::Dev(args) => {
            let flags = Flags { listen: args.listen.listen, nats_url: args.listen.nats_url, ..flags };
            dev::run(&settings::read(&flags)?, args.listen.json).await?;
        }
        Command::Serve(args) => {
            let flags = Flags { listen: args.listen.listen, nats_url: args.listen.nats_url, ..flags };
            serve::run(&settings::read(&flags)?, &args.roles, args.listen.json).await?;
        }
        Command::Broker(BrokerCommand::Config { listen }) => {
            broker::config(&settings::read(&flags)?, &listen)?;
        }
        Command::Broker(BrokerCommand::Provision { nats_url }) => {
            let flags = Flags { nats_url: Some(nats_url), ..flags };
            broker::provision(&settings::read(&flags)?).await?;
        }
        Command::Keys(KeysCommand::Add { org, user, role, nats_url, json }) => {
            let flags = Flags { nats_url, ..flags };
            keys::add(&settings::read(&flags)?, org, user, role, json).await?;
        }
        Command::Hooks(HooksCommand::Add { source: SourceArg::Github, org, app, hook, json }) => {
            hooks::add(&settings::read(&flags)?, org, app, hook, json).await?;
        }
        Command::Dlq(command) => dlq::run(&settings::read(&flags)?, &command).await?,
        Command::Drain(args) => drain::run(&settings::read(&flags)?, &args).await?,
        Command::Answer(args) => answer::run(&settings::read(&flags)?, &args).await?,
        Command::Explain(args) => explain::explain(&settings::read(&flags)?, &args).await?,
        Command::History(args) => explain::history(&settings::read(&flags)?, &args).await?,
        Command::Ps(args) => ps::run(&settings::read(&flags)?, args.json).await?,
        Command::Run(args) => return run::run(&settings::read(&flags)?, &args).await,
        Command::Attach(args) => return run::attach(&settings::read(&flags)?, &args).await,
        Command::Wait(args) => return run::wait(&settings::read(&flags)?, &args).await,
        Command::Logs(args) => logs::run(&settings::read(&flags)?, &args).await?,
        Command::Send(args) => send::run(&settings::read(&flags)?, &args).await?,
        Command::Demo => return demo::run().await,
        Command::Settings => print(&settings::catalogue().markdown())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The time at the command line.
pub(crate) fn now() -> Timestamp {
    RealClock::start().now()
}

/// A line of data; talk goes to stderr.
pub(crate) fn print(line: &str) -> Result<(), Failure> {
    let mut out = stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(Failure::Output)
}
