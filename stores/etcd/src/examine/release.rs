use leasehold_store::Finding;

/// A release of etcd, and what is known to be wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Release {
    text: String,
    number: Option<(u32, u32, u32)>,
}

impl Release {
    pub(crate) fn parse(text: &str) -> Self {
        let mut parts = text.split(['.', '-', '+']).map(|part| part.parse().ok());
        let mut next = || parts.next().flatten();
        let number = (|| Some((next()?, next()?, next()?)))();
        Release { text: text.to_owned(), number }
    }

    pub(crate) fn finding(&self) -> Finding {
        let release = format!("etcd {}", self.text);
        match self.number {
            None => Finding::doubtful(format!("{release} is an unknown release"), "use 3.5.13 or newer"),
            Some((..3, _, _) | (3, ..4, _)) => Finding::bad(
                format!(
                    "{release} is too old: nested transactions and progress requests are missing or broken"
                ),
                "use 3.5.13 or newer",
            ),
            // https://github.com/etcd-io/etcd/issues/13766
            Some((3, 5, 0..=2)) => Finding::bad(
                format!("{release} can lose acknowledged writes when it is killed under load (etcd #13766)"),
                "upgrade before anything else: two nodes could be told that they hold the same shard",
            ),
            // https://github.com/etcd-io/etcd/issues/15247
            Some((3, 4, 0..=30) | (3, 5, 0..=12)) => Finding::doubtful(
                format!("{release} may drop leases that are alive (etcd #15247)"),
                "ownership does not use leases and stays safe; registered keys may disappear for a moment before \
                 they are registered again: use 3.4.31, 3.5.13 or newer",
            ),
            Some(_) => Finding::good(release),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_store::Grade;

    #[test]
    fn known_bugs_are_reported() {
        for (text, grade) in [
            ("3.3.27", Grade::Bad),
            ("3.4.23", Grade::Doubtful),
            ("3.4.31", Grade::Good),
            ("3.5.1", Grade::Bad),
            ("3.5.12", Grade::Doubtful),
            ("3.5.16", Grade::Good),
            ("3.6.0-rc.1", Grade::Good),
            ("4.0.0", Grade::Good),
            ("latest", Grade::Doubtful),
        ] {
            assert_eq!(Release::parse(text).finding().grade, grade, "{text}");
        }
    }
}
