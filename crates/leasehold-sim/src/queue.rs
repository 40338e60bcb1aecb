//! What will happen, in order of time; at the same instant, in the order in which it was put there.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::clock::Instant;

/// Things that will happen.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    heap: BinaryHeap<Due<T>>,
    put: u64,
}

#[derive(Debug)]
struct Due<T> {
    at: Instant,
    number: u64,
    what: T,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Queue { heap: BinaryHeap::with_capacity(256), put: 0 }
    }

    pub(crate) fn put(&mut self, at: Instant, what: T) {
        self.put += 1;
        self.heap.push(Due { at, number: self.put, what });
    }

    pub(crate) fn take(&mut self) -> Option<(Instant, T)> {
        self.heap.pop().map(|due| (due.at, due.what))
    }
}

impl<T> Ord for Due<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<T> PartialOrd for Due<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Due<T> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<T> Eq for Due<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_time_then_by_turn() {
        let mut queue = Queue::new();
        for (at, what) in [(5, 'c'), (1, 'a'), (5, 'd'), (3, 'b')] {
            queue.put(at, what);
        }
        let order: String = std::iter::from_fn(|| queue.take()).map(|(_, what)| what).collect();
        assert_eq!(order, "abcd");
    }
}
