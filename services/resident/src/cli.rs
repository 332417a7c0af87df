//! What can be written on the command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use domain::ids::{AgentId, ExecutorId, HookId, OrgId, UserId};

pub(crate) const ROLES: &str = "ingress, steerer, registry, waker, scheduler, executor and console";

/// The open-source home for coding agents that stay at work.
#[derive(Debug, Parser)]
#[command(name = "resident", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// A TOML file with settings; every setting can also be written as RESIDENT__SECTION__KEY in the environment.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Where this installation keeps its data.
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs everything on this machine, with a broker of its own.
    Dev(DevArgs),
    /// Runs one role or several against a running broker.
    Serve(ServeArgs),
    /// Makes the broker's configuration and keys, or its streams.
    #[command(subcommand)]
    Broker(BrokerCommand),
    /// API keys.
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Where sources outside send their events.
    #[command(subcommand)]
    Hooks(HooksCommand),
    /// Messages that no handler could take: lists, shows and sends them again.
    #[command(subcommand)]
    Dlq(DlqCommand),
    /// Lets an executor take no more work, and waits until nothing runs there. What ran goes on when it is back.
    Drain(DrainArgs),
    /// Lists the processes of the organization.
    Ps(PsArgs),
    /// Gives an agent a task and shows what happens.
    Run(RunArgs),
    /// Shows what happens in a conversation. Ctrl-C ends the watching, not the task.
    Attach(AttachArgs),
    /// Waits until the last process of a conversation has ended or needs somebody. Exits with 0 where it is completed.
    Wait(WaitArgs),
    /// Prints what has happened in a conversation.
    Logs(LogsArgs),
    /// Says something to a conversation.
    Send(SendArgs),
    /// Answers the open question of a conversation.
    Answer(AnswerArgs),
    /// Says in a sentence what a process does, and what wakes it.
    Explain(ProcessArgs),
    /// Lists the steps of a process.
    History(ProcessArgs),
    /// Starts everything in a temporary directory and plays a small job.
    Demo,
    /// Prints the page of all settings.
    Settings,
}

#[derive(Debug, Args)]
pub(crate) struct Listen {
    /// The address the HTTP API listens on; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,

    /// The broker to use; without it `dev` starts its own.
    #[arg(long, value_name = "URL")]
    pub(crate) nats_url: Option<String>,

    /// Print one line of JSON when ready, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    #[command(flatten)]
    pub(crate) listen: Listen,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The roles: ingress, steerer, registry, waker, scheduler, executor, console.
    #[arg(required = true)]
    pub(crate) roles: Vec<String>,

    #[command(flatten)]
    pub(crate) listen: Listen,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BrokerCommand {
    /// Writes nats.conf and the keys of the broker's users into the data directory.
    Config {
        /// The address nats-server will listen on.
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4222")]
        listen: String,
    },
    /// Makes the streams and consumers on the running broker, or brings them up to date.
    Provision {
        #[arg(long, value_name = "URL", default_value = "nats://127.0.0.1:4222")]
        nats_url: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    pub(crate) conversation: String,

    /// Print each event as a line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    pub(crate) conversation: String,

    /// Give up after so many seconds.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<u64>,

    /// Print the conversation's record as a line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    pub(crate) conversation: String,

    /// Go on with what happens.
    #[arg(short, long)]
    pub(crate) follow: bool,

    /// Print each event as a line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AnswerArgs {
    pub(crate) conversation: String,

    /// One answer per question of the card, in its order.
    #[arg(required = true)]
    pub(crate) answers: Vec<String>,

    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ProcessArgs {
    /// The process's id, as `resident ps` shows it.
    pub(crate) process: String,

    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HooksCommand {
    /// Makes a hook and prints its path and secret. With --hook, adds a new secret to it beside the last one.
    Add {
        /// What sends the events.
        source: SourceArg,

        /// Whose events they are; a running dev's organization where not named.
        #[arg(long)]
        org: Option<OrgId>,

        /// The login of your own GitHub App, as name[bot]: what it does wakes nobody.
        #[arg(long, value_name = "LOGIN")]
        app: Option<String>,

        /// A hook that there is: it takes the new secret and its last one, so that both work while you change it over.
        #[arg(long)]
        hook: Option<HookId>,

        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    /// `exe_0`, as `resident ps` shows it.
    pub(crate) executor: ExecutorId,

    /// Lets it take work again.
    #[arg(long)]
    pub(crate) undo: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DlqCommand {
    /// Lists them, the oldest first.
    Ls {
        #[arg(long)]
        json: bool,
    },
    /// Shows one with the whole message.
    Show {
        /// Its number, as `resident dlq ls` shows it.
        letter: u64,

        #[arg(long)]
        json: bool,
    },
    /// Sends one again to where it was read, once what was wrong is mended, and forgets it.
    Replay {
        /// Its number, as `resident dlq ls` shows it.
        letter: u64,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum SourceArg {
    Github,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Makes a key and prints it; it is stored hashed and cannot be shown again.
    Add {
        /// The organization; a new one where it is not named.
        #[arg(long)]
        org: Option<OrgId>,
        /// The person, or the program that acts for one; a new one where it is not named.
        #[arg(long)]
        user: Option<UserId>,
        #[arg(long, value_enum, default_value_t = RoleArg::Member)]
        role: RoleArg,
        #[arg(long, value_name = "URL")]
        nats_url: Option<String>,
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum RoleArg {
    /// Uses agents and makes their own.
    Member,
    /// Also sees every process of the organization.
    Operator,
    /// Also changes what belongs to others.
    Admin,
}

#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// What the agent is to do.
    pub(crate) text: String,
    /// The agent; the first of the organization where it is not named.
    #[arg(long)]
    pub(crate) agent: Option<AgentId>,
    /// Print every event as a line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// The conversation.
    pub(crate) conversation: String,
    pub(crate) text: String,
    /// How the message meets a running turn.
    #[arg(long, value_parser = ["auto", "queue", "steer", "interrupt"], default_value = "auto")]
    pub(crate) mode: String,
    #[arg(long)]
    pub(crate) json: bool,
}
