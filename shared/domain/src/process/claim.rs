//! A claim: the executor that was asked to takes the waking process. The first claim of an epoch makes it hot; a
//! second one finds no waking process.

use super::{Change, Fact, Hot, Phase, Report, Stage, State};
use crate::Refusal;
use crate::ids::Renewal;
use crate::time::Timestamp;

pub(super) fn step(
    mut state: State,
    report: &Report,
    renewal: Renewal,
    now: Timestamp,
) -> Result<Change, Refusal> {
    if let Some(volume) = state.volume.filter(|volume| *volume != report.executor) {
        return Err(Refusal::OtherVolume { volume });
    }
    let resumes = match state.phase {
        Phase::Waking { trigger, .. } => trigger.resumes(),
        _ => false,
    };
    state.volume = Some(report.executor);
    state.phase = Phase::Hot(Hot {
        executor: report.executor,
        incarnation: report.incarnation,
        renewal,
        since: now,
        stage: Stage::Starting,
        resumes,
        interrupt: None,
        running: Vec::new(),
    });
    Ok(Change { facts: vec![Fact::Claimed { executor: report.executor, epoch: state.epoch }], state })
}
