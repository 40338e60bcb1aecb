//! What `leasehold doctor` looks at.

use leasehold_store::Finding;

use crate::records::Records;

/// Looks for the usual mistakes.
pub(crate) async fn examine(records: &Records) -> Vec<Finding> {
    match records.generation().await {
        Ok(generation) => vec![Finding::good(format!("it answers; its generation is {generation}"))],
        Err(error) => vec![Finding::bad(error.to_string(), "see docs/redis.md")],
    }
}
