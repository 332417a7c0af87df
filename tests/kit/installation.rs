//! A whole installation for one test, as compose would run it: a broker, every role as a process of its own, the real
//! Claude Code in its sandbox, and a scripted model in place of the paid one. Gone with the test.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use bus::kv;
use contract::buckets::{Key, Keys, Role, SecretHash};
use contract::topology::OPERATOR;
use domain::ids::{KeyId, OrgId, UserId};
use domain::process::{ConversationKey, Step};
use scripted_model::{Script, ScriptedModel};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::api::Api;
use crate::broker::{Broker, fleet, tools};
use crate::invariants::{check_all, check_log};

/// Every role starts within this, on a machine that is busy with other tests.
const READY_WITHIN: Duration = Duration::from_secs(60);

const ROLES: [&str; 6] = ["steerer", "registry", "waker", "scheduler", "ingress", "console"];

/// The program of an installation whose roles are together, with the first executor.
pub const ALL_ROLES: &str = "all";

/// What differs between installations.
#[derive(Debug)]
pub struct Options {
    pub script: Script,
    pub executors: u16,
    pub slots: u16,
    pub park_after: Duration,
    /// Every role in one program, [`ALL_ROLES`].
    pub together: bool,
    /// A program in place of Claude Code.
    pub harness: Option<PathBuf>,
    pub settings: Vec<(String, String)>,
}

#[derive(Debug)]
pub struct Installation {
    pub broker: Broker,
    pub model: ScriptedModel,
    pub org: OrgId,
    options: Options,
    programs: BTreeMap<String, Program>,
    dir: TempDir,
}

/// A role that runs as a process.
#[derive(Debug)]
struct Program {
    child: Child,
    url: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            script: Script::new(),
            executors: 1,
            slots: 4,
            park_after: Duration::from_secs(120),
            together: false,
            harness: None,
            settings: Vec::new(),
        }
    }
}

/// Where cargo has put the project's programs.
pub fn program(name: &str) -> PathBuf {
    // The test itself lies in target/<profile>/deps.
    let exe = std::env::current_exe().expect("this program");
    let path = exe.ancestors().nth(2).expect("target").join(name);
    assert!(path.exists(), "{} is missing; run `make build`", path.display());
    path
}

// === impl Installation ===

impl Installation {
    pub async fn start(script: impl Into<Script>) -> Self {
        Self::with(Options { script: script.into(), ..Options::default() }).await
    }

    pub async fn with(mut options: Options) -> Self {
        let broker = Broker::for_fleet(fleet(options.executors)).await;
        let script = std::mem::take(&mut options.script);
        let model = ScriptedModel::start_local(script).await.expect("the scripted model");
        let mut installation = Self {
            broker,
            model,
            org: OrgId::from_uuid(crate::fresh()),
            options,
            programs: BTreeMap::new(),
            dir: tempfile::tempdir().expect("a temporary directory"),
        };
        if installation.options.together {
            installation.start_program(ALL_ROLES).await;
            return installation;
        }
        for role in ROLES {
            installation.start_program(role).await;
        }
        for ordinal in 0..installation.options.executors {
            installation.start_program(&executor_name(ordinal)).await;
        }
        installation
    }

    /// The API as the owner of a fresh key of the installation's organization.
    pub async fn api(&self, role: Role) -> Api {
        self.api_of(self.org, role).await
    }

    pub async fn api_of(&self, org: OrgId, role: Role) -> Api {
        let secret = format!("res_test_{}", crate::fresh().simple());
        let key = Key {
            id: KeyId::from_uuid(crate::fresh()),
            org,
            user: UserId::from_uuid(crate::fresh()),
            role,
            created_at: crate::now(),
        };
        let operator = self.broker.connect(OPERATOR).await;
        kv::overwrite::<Keys>(&operator, &SecretHash::of(&secret), &key).await.expect("a key");
        Api::new(self.url("console"), self.url("ingress"), &secret)
    }

    pub fn url(&self, role: &str) -> &str {
        &self.program_of(role).url
    }

    /// What the program of a role holds in memory, in bytes.
    pub fn resident_memory(&self, role: &str) -> u64 {
        let pid = self.program_of(role).child.id().expect("a pid");
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
        let kilobytes = line.trim().strip_suffix(" kB").and_then(|number| number.parse::<u64>().ok());
        kilobytes.expect("a number") * 1024
    }

    fn program_of(&self, role: &str) -> &Program {
        self.programs.get(role).or_else(|| self.programs.get(ALL_ROLES)).expect("a running role")
    }

    /// The volume of an executor.
    pub fn volume(&self, ordinal: u16) -> PathBuf {
        let name = if self.options.together { ALL_ROLES.to_owned() } else { executor_name(ordinal) };
        self.dir.path().join(name).join("volume")
    }

    /// The working tree of a conversation, on the first volume.
    pub fn tree(&self, agent: &str, conversation: &str) -> PathBuf {
        self.volume(0).join("agents").join(agent).join("conversations").join(conversation).join("tree")
    }

    /// Every step of the conversation of a record, checked against the invariants.
    pub async fn steps(&self, record: &Value) -> Vec<Step> {
        let key = ConversationKey {
            org: serde_json::from_value(record["organization_id"].clone()).expect("an id"),
            conversation: serde_json::from_value(record["id"].clone()).expect("an id"),
        };
        let steps = crate::log::steps(&self.broker.connect(OPERATOR).await, key).await;
        check_log(key, &steps).unwrap_or_else(|breach| panic!("{breach:?} in {steps:#?}"));
        steps
    }

    /// Every step of every conversation, in the order of the log, checked against the invariants.
    pub async fn log(&self) -> Vec<Step> {
        let steps = crate::log::all(&self.broker.connect(OPERATOR).await).await;
        check_all(&steps, usize::from(self.options.slots)).unwrap_or_else(|breach| panic!("{breach:?}"));
        steps
    }

    pub fn log_of(&self, role: &str) -> String {
        std::fs::read_to_string(self.log_path(role)).unwrap_or_default()
    }

    /// Kills a role's process without warning.
    pub async fn kill(&mut self, role: &str) {
        let mut program = self.programs.remove(role).expect("a running role");
        program.child.kill().await.expect("killed");
    }

    /// Sends a role's process a signal by its name (`STOP`, `CONT`).
    pub async fn signal(&self, role: &str, name: &str) {
        let pid = self.program_of(role).child.id().expect("a pid").to_string();
        crate::signal(name, &pid).await;
    }

    /// Asks a role's process to stop and waits for its end.
    pub async fn stop(&mut self, role: &str) {
        self.signal(role, "TERM").await;
        let mut program = self.programs.remove(role).expect("a running role");
        let ended = tokio::time::timeout(READY_WITHIN, program.child.wait()).await;
        ended
            .unwrap_or_else(|_| panic!("{role} does not stop; its log:\n{}", self.log_of(role)))
            .expect("ended");
    }

    pub async fn start_program(&mut self, role: &str) {
        let mut command = Command::new(program("resident"));
        let names = match role {
            ALL_ROLES => [ROLES.as_slice(), &["executor"]].concat(),
            role => vec![role.split('-').next().expect("a name")],
        };
        command
            .arg("serve")
            .args(names)
            .args(["--json", "--listen", "127.0.0.1:0"])
            .env_clear()
            .envs(self.environment(role))
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(
                std::fs::File::options().create(true).append(true).open(self.log_path(role)).expect("a log"),
            )
            .kill_on_drop(true);
        let mut child = command.spawn().expect("resident");
        let out = child.stdout.take().expect("stdout");
        let line = tokio::time::timeout(READY_WITHIN, BufReader::new(out).lines().next_line()).await;
        let Ok(Ok(Some(line))) = line else {
            panic!("{role} is not ready; its log:\n{}", self.log_of(role));
        };
        let ready: Value = serde_json::from_str(&line).expect("a line of JSON");
        let url = ready["url"].as_str().expect("a url").to_owned();
        self.programs.insert(role.to_owned(), Program { child, url });
    }

    /// A command of an operator of this installation.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(program("resident"));
        command
            .args(args)
            .env_clear()
            .envs(self.environment("operator"))
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// The sandboxes that the first executor has running. Each is a bubblewrap that the executor started, and a child of
    /// the same name until that becomes the shim.
    pub fn sandboxes(&self) -> usize {
        let volume = self.volume(0);
        let volume = volume.to_string_lossy();
        let all: Vec<(u32, u32)> = std::fs::read_dir("/proc")
            .expect("/proc")
            .flatten()
            .filter_map(|entry| {
                let command = std::fs::read(entry.path().join("cmdline")).ok()?;
                let is_bwrap = command.split(|byte| *byte == 0).next()?.ends_with(b"bwrap");
                (is_bwrap && String::from_utf8_lossy(&command).contains(&*volume)).then_some(())?;
                let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
                let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
                Some((entry.file_name().to_str()?.parse().ok()?, parent.trim().parse().ok()?))
            })
            .collect();
        all.iter().filter(|(_, parent)| all.iter().all(|(pid, _)| pid != parent)).count()
    }

    #[expect(clippy::disallowed_methods, reason = "a program gets the PATH of the test that starts it")]
    fn environment(&self, role: &str) -> Vec<(String, String)> {
        let own = self.dir.path().join(role);
        std::fs::create_dir_all(&own).expect("a directory");
        let path = std::env::var("PATH").unwrap_or_default();
        let ordinal = role.strip_prefix("executor-").unwrap_or("0");
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let harness = self.options.harness.clone().unwrap_or_else(|| tools().join("claude"));
        let mut all = vec![
            ("PATH".into(), format!("{}:{path}", tools().display())),
            ("RESIDENT__DATA__DIR".into(), text(&own)),
            ("RESIDENT__BROKER__URL".into(), self.broker.url()),
            ("RESIDENT__BROKER__CREDENTIALS".into(), text(self.broker.dir())),
            ("RESIDENT__BROKER__EXECUTORS".into(), self.options.executors.to_string()),
            ("RESIDENT__TELEMETRY__FORMAT".into(), "json".into()),
            ("RESIDENT__SERVER__GRACE".into(), "20s".into()),
            ("RESIDENT__EXECUTOR__ORDINAL".into(), ordinal.into()),
            ("RESIDENT__EXECUTOR__VOLUME".into(), text(&own.join("volume"))),
            ("RESIDENT__EXECUTOR__SLOTS".into(), self.options.slots.to_string()),
            ("RESIDENT__EXECUTOR__PARK_AFTER".into(), format!("{}ms", self.options.park_after.as_millis())),
            ("RESIDENT__EXECUTOR__CLAUDE_CODE".into(), text(&harness)),
            ("RESIDENT__PROVIDERS__ANTHROPIC__BASE_URL".into(), self.model.url()),
        ];
        all.extend(self.options.settings.iter().cloned());
        all
    }

    fn log_path(&self, role: &str) -> PathBuf {
        self.dir.path().join(format!("{role}.log"))
    }
}

/// The process of an executor.
pub fn executor_name(ordinal: u16) -> String {
    format!("executor-{ordinal}")
}

impl Drop for Installation {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let kept =
                std::mem::replace(&mut self.dir, tempfile::tempdir().expect("a temporary directory")).keep();
            print_kept(&kept);
        }
    }
}

#[expect(clippy::print_stderr, reason = "whoever looks into a failed test needs to know where")]
fn print_kept(dir: &Path) {
    eprintln!("the installation's logs are kept in {}", dir.display());
}
