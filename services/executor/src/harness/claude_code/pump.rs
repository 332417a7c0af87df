//! The tasks round one running harness: lines in, frames out, the beat, and the last words.

use std::collections::VecDeque;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::process::ChildStdout;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval};

use super::{Answered, Codec, Outgoing, Shared, refuse};
use crate::harness::{Exited, HarnessEvent, What};
use crate::lines::{Line, Lines};
use crate::shim::control::{Order, Report};
use crate::spawn::{Exit, Inside};

/// Five beats fit into the shim's patience: one lost to a stall freezes nothing.
const BEAT_EVERY: Duration = Duration::from_secs(4);
/// The last words of a harness that died.
const STDERR_LINES_MAX: usize = 50;

/// Reads the harness to its end. Its sender of frames is weak, so that it does not keep the writer alive.
struct Reader {
    codec: Codec,
    shared: Arc<Shared>,
    frames: mpsc::WeakSender<Outgoing>,
    events: mpsc::Sender<HarnessEvent>,
}

pub(super) fn start(
    inside: Inside,
    codec: Codec,
    outgoing: mpsc::Receiver<Outgoing>,
    frames: &mpsc::Sender<Outgoing>,
    events: mpsc::Sender<HarnessEvent>,
    over: watch::Sender<bool>,
) -> Arc<Shared> {
    let Inside { stdin, stdout, stderr, control, exit } = inside;
    let shared = Arc::new(Shared::new(control));
    tokio::spawn(write(stdin, outgoing, Arc::clone(&shared)));
    let reader = Reader { codec, shared: Arc::clone(&shared), frames: frames.downgrade(), events };
    tokio::spawn(run(reader, stdout, stderr, exit, over));
    shared
}

async fn run(
    mut reader: Reader,
    stdout: Lines<ChildStdout>,
    stderr: Lines<impl AsyncRead + Unpin + Send + 'static>,
    exit: Exit,
    over: watch::Sender<bool>,
) {
    let tail = tokio::spawn(keep_tail(stderr));
    let beat = tokio::spawn(beat(Arc::clone(&reader.shared)));
    let reports = tokio::spawn(pass_reports(Arc::clone(&reader.shared), reader.events.clone()));
    reader.read(stdout).await;
    let status = exit.wait().await;
    beat.abort();
    reports.abort();
    reader.shared.waiting().take();
    over.send_replace(true);
    let exited = Exited {
        code: status.as_ref().ok().and_then(std::process::ExitStatus::code),
        signal: status.as_ref().ok().and_then(ExitStatusExt::signal),
        stderr_tail: tail.await.unwrap_or_default(),
    };
    reader.say(HarnessEvent::main(What::Exited(exited))).await;
}

// === impl Reader ===

impl Reader {
    async fn read(&mut self, mut stdout: Lines<ChildStdout>) {
        loop {
            match stdout.next().await {
                Ok(Some(Line { text, dropped: 0 })) => {
                    for event in self.codec.push(&text) {
                        self.take(event).await;
                    }
                }
                Ok(Some(Line { text, dropped })) => {
                    let bytes = text.len() + dropped;
                    self.say(HarnessEvent::notice(format!("a line of {bytes} bytes was dropped"))).await;
                }
                Ok(None) => return,
                Err(error) => {
                    self.say(HarnessEvent::notice(format!("reading the harness failed: {error}"))).await;
                    return self.shared.control.kill();
                }
            }
        }
    }

    async fn take(&self, event: HarnessEvent) {
        match &event.what {
            What::ControlAnswer { request_id, ok, body } => {
                let asker = self.shared.waiting().as_mut().and_then(|waiting| waiting.remove(request_id));
                if let Some(asker) = asker {
                    // An asker that gave up is told nothing.
                    let _gave_up = asker.send(Answered { ok: *ok, body: body.clone() });
                }
            }
            What::ControlAsked { request_id, .. } => {
                let (written, _) = oneshot::channel();
                let frame = refuse(request_id, "nobody answers this here; go on without it");
                if let Some(frames) = self.frames.upgrade() {
                    // A full queue means that the harness does not read; then it does not wait for this either.
                    let _full = frames.try_send(Outgoing { frame, written });
                }
            }
            _ => {}
        }
        self.say(event).await;
    }

    /// A segment that no longer listens wants no harness.
    async fn say(&self, event: HarnessEvent) {
        if self.events.send(event).await.is_err() {
            self.shared.control.kill();
        }
    }
}

/// Writes frames whole, one after the other. When nobody can send any more, nobody wants the harness either.
async fn write(mut stdin: pipe::Sender, mut outgoing: mpsc::Receiver<Outgoing>, shared: Arc<Shared>) {
    while let Some(Outgoing { frame, written }) = outgoing.recv().await {
        if stdin.write_all(frame.as_bytes()).await.is_err() {
            // The harness has closed its input: it ends, and the reader says so. Later senders find the queue closed.
            return;
        }
        // Written, whether or not anyone still waits to hear it.
        let _not_waiting = written.send(());
    }
    shared.control.kill();
}

async fn beat(shared: Arc<Shared>) {
    let mut tick = interval(BEAT_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if shared.control.order(Order::Beat).await.is_err() {
            return;
        }
    }
}

async fn pass_reports(shared: Arc<Shared>, events: mpsc::Sender<HarnessEvent>) {
    while let Ok(Some(report)) = shared.control.report().await {
        shared.frozen.send_replace(report == Report::Frozen);
        if report == Report::Frozen && events.send(HarnessEvent::main(What::Frozen)).await.is_err() {
            return;
        }
    }
}

async fn keep_tail(mut stderr: Lines<impl AsyncRead + Unpin>) -> Vec<String> {
    let mut tail = VecDeque::new();
    while let Ok(Some(line)) = stderr.next().await {
        if tail.len() == STDERR_LINES_MAX {
            tail.pop_front();
        }
        tail.push_back(line.text);
    }
    tail.into()
}
