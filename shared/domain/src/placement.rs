//! Which executor a waking process goes to: the one that has its agent's files, else the one with the most room.

use crate::ids::{ExecutorId, OrgId};

/// An executor as its lease shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub id: ExecutorId,
    /// Slots that are neither taken nor promised.
    pub free: i64,
    /// It makes no further claim.
    pub draining: bool,
    /// It can run no segment; a process placed there parks and says why.
    pub unable: bool,
    /// The organizations it serves; none named means every one.
    pub orgs: Vec<OrgId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    On(ExecutorId),
    /// No executor can take it now; a changed lease may change that.
    Waits(WhyWaits),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyWaits {
    /// The files are on a volume whose executor is away or drains.
    VolumeAway(ExecutorId),
    NoExecutor,
}

/// Places a process. `volume` is where its agent's files are; it waits there for a slot, however full that executor is.
pub fn place(org: OrgId, volume: Option<ExecutorId>, candidates: &[Candidate]) -> Placement {
    if let Some(volume) = volume {
        let there = candidates.iter().find(|candidate| candidate.id == volume && !candidate.draining);
        return there.map_or(Placement::Waits(WhyWaits::VolumeAway(volume)), |there| Placement::On(there.id));
    }
    candidates
        .iter()
        .filter(|candidate| !candidate.draining && candidate.serves(org))
        // One that can run nothing is better than none: the process parks there with the reason and the cure.
        .max_by_key(|candidate| (!candidate.unable, candidate.free, std::cmp::Reverse(candidate.id)))
        .map_or(Placement::Waits(WhyWaits::NoExecutor), |best| Placement::On(best.id))
}

impl Candidate {
    fn serves(&self, org: OrgId) -> bool {
        self.orgs.is_empty() || self.orgs.contains(&org)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const ORG: OrgId = OrgId::from_uuid(Uuid::from_u128(1));

    fn candidate(id: u16, free: i64) -> Candidate {
        Candidate { id: ExecutorId(id), free, draining: false, unable: false, orgs: Vec::new() }
    }

    #[test]
    fn a_new_agent_goes_where_the_most_room_is() {
        let all = [candidate(0, 1), candidate(1, 3), candidate(2, 3)];
        assert_eq!(place(ORG, None, &all), Placement::On(ExecutorId(1)));
    }

    #[test]
    fn an_agent_goes_where_its_files_are_however_full_that_is() {
        let all = [candidate(0, -2), candidate(1, 3)];
        assert_eq!(place(ORG, Some(ExecutorId(0)), &all), Placement::On(ExecutorId(0)));
        let away = Placement::Waits(WhyWaits::VolumeAway(ExecutorId(7)));
        assert_eq!(place(ORG, Some(ExecutorId(7)), &all), away);
    }

    #[test]
    fn an_executor_that_drains_serves_others_or_can_run_nothing_comes_last_or_never() {
        let other = OrgId::from_uuid(Uuid::from_u128(2));
        let draining = Candidate { draining: true, ..candidate(0, 9) };
        let foreign = Candidate { orgs: vec![other], ..candidate(1, 9) };
        let unable = Candidate { unable: true, ..candidate(2, 9) };
        let all = [draining, foreign, unable.clone(), candidate(3, 0)];
        assert_eq!(place(ORG, None, &all), Placement::On(ExecutorId(3)));
        assert_eq!(place(ORG, None, &[unable]), Placement::On(ExecutorId(2)));
        assert_eq!(place(ORG, None, &all[..2]), Placement::Waits(WhyWaits::NoExecutor));
    }
}
