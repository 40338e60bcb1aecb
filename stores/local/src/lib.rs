//! Leasehold on one machine.
