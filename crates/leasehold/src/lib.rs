//! Leasehold.
