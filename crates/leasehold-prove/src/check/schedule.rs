//! What is done to which node, and when: decided by a seed alone, so that it can be done again.

use std::time::Duration;

use leasehold_chaos::rng::Rng;

use super::fault::Fault;

/// One fault, from when to when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) fault: Fault,
    /// The place of the node; one above all for what is done to the store.
    pub(super) node: usize,
    pub(super) from: Duration,
    pub(super) until: Duration,
    /// Decides what a fault leaves open: how a cut treats connections, which way is lost, how late things are.
    pub(super) flavour: u64,
}

/// What the choices depend on.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) seed: u64,
    pub(super) nodes: usize,
    pub(super) faults: Vec<Fault>,
    pub(super) run_for: Duration,
    pub(super) ttl: Duration,
    /// No pause may be shorter, or the workers' beats would not show it.
    pub(super) shortest: Duration,
}

/// Makes a schedule: each node suffers one fault at a time, several nodes may suffer at once, half of the faults are
/// short enough to be survived, and every kind comes before any comes twice.
pub(super) fn schedule(frame: &Frame) -> Vec<Step> {
    let mut rng = Rng::of(frame.seed);
    let mut deck: Vec<Fault> = Vec::new();
    // The last place is the store itself.
    let mut free_at = vec![Duration::ZERO; frame.nodes + 1];
    let mut steps = Vec::new();
    let part = |rng: &mut Rng, low: u64, high: u64| frame.ttl * rng.between(low, high) as u32 / 100;
    let mut at = part(&mut rng, 10, 30);
    while !frame.faults.is_empty() {
        if deck.is_empty() {
            deck = frame.faults.clone();
            rng.shuffle(&mut deck);
        }
        let Some(fault) = deck.pop() else { break };
        let node = match fault {
            Fault::Lock => frame.nodes,
            _ => free_node(&mut rng, &free_at[..frame.nodes], at),
        };
        let length = match rng.roll(2) {
            0 => part(&mut rng, 10, 60),
            _ => part(&mut rng, 110, 180),
        };
        let flavour = rng.roll(1 << 32);
        let rest = part(&mut rng, 30, 80);
        let from = at.max(free_at[node]);
        let until = from + length.max(frame.shortest);
        if until >= frame.run_for {
            break;
        }
        steps.push(Step { fault, node, from, until, flavour });
        free_at[node] = until + rest;
        at = from + part(&mut rng, 15, 70);
    }
    steps.sort_by_key(|step| step.from);
    steps
}

/// One of those that suffer nothing at that moment, or the one that is free first.
fn free_node(rng: &mut Rng, free_at: &[Duration], at: Duration) -> usize {
    let free: Vec<usize> = (0..free_at.len()).filter(|node| free_at[*node] <= at).collect();
    match free.len() {
        0 => (0..free_at.len()).min_by_key(|node| free_at[*node]).unwrap_or(0),
        count => free[rng.roll(count as u64) as usize],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(seed: u64) -> Frame {
        Frame {
            seed,
            nodes: 3,
            faults: Fault::ALL.to_vec(),
            run_for: Duration::from_secs(60),
            ttl: Duration::from_secs(2),
            shortest: Duration::from_millis(100),
        }
    }

    #[test]
    fn the_seed_decides_everything() {
        assert_eq!(schedule(&frame(7)), schedule(&frame(7)));
        assert_ne!(schedule(&frame(7)), schedule(&frame(8)));
    }

    #[test]
    fn no_node_suffers_two_faults_at_once_and_all_end_in_time() {
        for seed in 0..200 {
            let steps = schedule(&frame(seed));
            assert!(steps.len() > 10, "seed {seed}");
            for (index, step) in steps.iter().enumerate() {
                assert!(step.from < step.until && step.until < Duration::from_secs(60), "{step:?}");
                assert!(
                    steps[index + 1..].iter().all(|later| later.node != step.node || later.from > step.until)
                );
            }
            for fault in Fault::ALL {
                assert!(steps.iter().any(|step| step.fault == fault), "seed {seed} has no {fault}");
            }
        }
    }

    #[test]
    fn without_time_or_faults_there_is_nothing_to_do() {
        assert!(schedule(&Frame { run_for: Duration::ZERO, ..frame(1) }).is_empty());
        assert!(schedule(&Frame { faults: Vec::new(), ..frame(1) }).is_empty());
    }
}
