use leasehold_core::name::NAME_BYTES_MAX;
use leasehold_core::store::{StoreError, StoreErrorKind};

/// Refuses a name that no store takes for a namespace. A store may refuse more.
pub fn check_namespace(namespace: &str) -> Result<(), StoreError> {
    let wrong = if namespace.is_empty() {
        "is empty"
    } else if namespace.len() > NAME_BYTES_MAX {
        "is too long"
    } else if namespace.chars().any(char::is_control) {
        "has a control character"
    } else {
        return Ok(());
    };
    Err(StoreError::new(
        StoreErrorKind::Refused,
        format!(
            "the namespace {namespace:?} {wrong}: use 1 to {NAME_BYTES_MAX} bytes without control characters"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_every_store_can_carry_are_taken() {
        for good in ["shop", "näme'space/%", &"x".repeat(NAME_BYTES_MAX)] {
            assert_eq!(check_namespace(good), Ok(()), "{good}");
        }
        for wrong in ["", "a\nb", &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert_eq!(check_namespace(wrong).unwrap_err().kind, StoreErrorKind::Refused, "{wrong}");
        }
    }
}
