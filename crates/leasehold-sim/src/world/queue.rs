//! What will happen, in order of time; at the same instant, in the order in which it was put there.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::world::clock::Instant;

/// Things that will happen.
///
/// The order is kept apart from the items, which are large and would be carried around with every comparison.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    order: BinaryHeap<Reverse<(Instant, u64, usize)>>,
    items: Vec<Option<T>>,
    free: Vec<usize>,
    sequence: u64,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Queue {
            order: BinaryHeap::with_capacity(256),
            items: Vec::with_capacity(256),
            free: Vec::new(),
            sequence: 0,
        }
    }

    pub(crate) fn put(&mut self, at: Instant, what: T) {
        self.sequence += 1;
        let index = self.free.pop().unwrap_or_else(|| {
            self.items.push(None);
            self.items.len() - 1
        });
        self.items[index] = Some(what);
        self.order.push(Reverse((at, self.sequence, index)));
    }

    pub(crate) fn take(&mut self) -> Option<(Instant, T)> {
        let Reverse((at, _, index)) = self.order.pop()?;
        self.free.push(index);
        self.items[index].take().map(|what| (at, what))
    }
}

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
