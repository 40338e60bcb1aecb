//! Which members there are, which of them answer, and what they run.

use std::collections::BTreeSet;

use futures::future::join_all;
use leasehold_store::{Finding, StoreError};

use super::release::Release;
use crate::connection::{Connection, Method};
use crate::dial;
use crate::options::Options;
use crate::proto::{
    AlarmRequest, AlarmResponse, MemberListRequest, MemberListResponse, ResponseHeader, StatusResponse,
};

/// What each of the named members said.
pub(crate) struct Members {
    answers: Vec<Result<(Connection, StatusResponse), StoreError>>,
    /// All members that etcd knows of, if it said so.
    known: Option<MemberListResponse>,
    alarms: Result<AlarmResponse, String>,
}

impl Members {
    pub(crate) async fn ask(options: &Options) -> Self {
        let answers = join_all((0..options.hosts.len()).map(|member| dial::one(options, member))).await;
        let leading = |status: &StatusResponse| status.leader != 0;
        let connection = answers
            .iter()
            .flatten()
            .find(|(_, status)| leading(status))
            .map(|(connection, _)| connection.clone());
        let (known, alarms) = match connection {
            None => (None, Err("no reachable member has a leader".to_owned())),
            Some(connection) => {
                let known = connection.ask(Method::MEMBER_LIST, MemberListRequest {}).await.ok();
                let alarms = connection.ask(Method::ALARM, AlarmRequest {}).await;
                (known, alarms.map_err(|status| status.message().to_owned()))
            }
        };
        Members { answers, known, alarms }
    }

    pub(crate) fn any_answered(&self) -> bool {
        self.statuses().next().is_some()
    }

    /// What the members that answered said of themselves.
    pub(crate) fn statuses(&self) -> impl Iterator<Item = &StatusResponse> {
        self.answered().map(|(_, status)| status)
    }

    /// The same, with which of the named ones they are.
    pub(crate) fn answered(&self) -> impl Iterator<Item = (usize, &StatusResponse)> {
        let numbered = self.answers.iter().enumerate();
        numbered.filter_map(|(member, answer)| answer.as_ref().ok().map(|(_, status)| (member, status)))
    }

    pub(crate) fn findings(&self, options: &Options) -> Vec<Finding> {
        let mut findings = vec![self.reach()];
        for (name, answer) in options.names().iter().zip(&self.answers) {
            match answer {
                Err(error) => findings.push(Finding::doubtful(
                    error.to_string(),
                    "start this member, fix the network, or remove it from the address",
                )),
                Ok((_, status)) if status.leader == 0 => findings.push(Finding::bad(
                    format!("{name} has no leader"),
                    "more than half of the members must run and reach each other",
                )),
                Ok((_, status)) if status.is_learner => findings.push(Finding::doubtful(
                    format!("{name} is a learner, which does not serve clients"),
                    "promote it, or remove it from the address",
                )),
                Ok(_) => {}
            }
        }
        findings.extend(self.unlisted(options));
        findings.extend(self.releases());
        findings.extend(self.alarms());
        findings
    }

    fn reach(&self) -> Finding {
        let (asked, answered) = (self.answers.len(), self.statuses().count());
        let known = self.known.as_ref().map(|known| known.members.iter().filter(|m| !m.is_learner).count());
        let clusters: BTreeSet<u64> = self.headers().map(|header| header.cluster_id).collect();
        if clusters.len() > 1 {
            let ids: Vec<String> = clusters.iter().map(|id| format!("{id:016x}")).collect();
            return Finding::bad(
                format!("the address names members of several clusters: {}", ids.join(", ")),
                "name the members of one cluster only",
            );
        }
        let of = known.map_or(String::new(), |known| format!("; the cluster has {known} voting members"));
        let what = format!("{answered} of {asked} named members answer{of}");
        match (answered, known) {
            (0, _) => Finding::bad(what, "start etcd, or correct the address"),
            (_, Some(2)) => Finding::doubtful(what, "two members tolerate no failure: use three, or one"),
            (_, Some(known)) if known % 2 == 0 => Finding::doubtful(
                what,
                "an even number of members tolerates no more failures than one member fewer",
            ),
            (_, Some(1)) => Finding::doubtful(
                what,
                "one member is enough for tests; if it is down for longer than the ttl, all nodes detach",
            ),
            _ => Finding::good(what),
        }
    }

    /// Members that are not in the address, and so are not used when the others are down.
    fn unlisted(&self, options: &Options) -> Option<Finding> {
        let known = self.known.as_ref()?.members.len();
        (known > options.hosts.len()).then(|| {
            Finding::doubtful(
                format!("the address names {} of {known} members", options.hosts.len()),
                "name all of them: a member that is not in the address is not used when the others are down",
            )
        })
    }

    fn releases(&self) -> Vec<Finding> {
        let releases: BTreeSet<&str> = self.statuses().map(|status| status.version.as_str()).collect();
        let mut findings = Vec::new();
        if releases.len() > 1 {
            let all: Vec<&str> = releases.iter().copied().collect();
            findings.push(Finding::doubtful(
                format!("the members run different releases: {}", all.join(", ")),
                "finish the upgrade",
            ));
        }
        findings.extend(releases.into_iter().map(|release| Release::parse(release).finding()));
        findings
    }

    fn alarms(&self) -> Vec<Finding> {
        let alarms = match &self.alarms {
            Ok(answer) => &answer.alarms,
            Err(why) if self.any_answered() => {
                return vec![Finding::doubtful(
                    format!("etcd did not report its alarms: {why}"),
                    "run `etcdctl alarm list`",
                )];
            }
            Err(_) => return Vec::new(),
        };
        let kinds: BTreeSet<i32> = alarms.iter().map(|alarm| alarm.alarm).collect();
        if kinds.is_empty() {
            return vec![Finding::good("no alarm is active")];
        }
        let told = kinds.into_iter().map(|kind| match kind {
            1 => Finding::bad(
                "the alarm NOSPACE is active: the quota is used up, and etcd refuses writes",
                "compact, run `etcdctl defrag`, then `etcdctl alarm disarm`; then enable auto-compaction or raise the quota",
            ),
            2 => Finding::bad(
                "the alarm CORRUPT is active: the data of the members differs",
                "replace the corrupt member before anything else",
            ),
            other => Finding::bad(format!("the alarm {other} is active"), "run `etcdctl alarm list`"),
        });
        told.collect()
    }

    fn headers(&self) -> impl Iterator<Item = &ResponseHeader> {
        self.statuses().filter_map(|status| status.header.as_ref())
    }
}
