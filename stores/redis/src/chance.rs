use leasehold_store::{StoreError, StoreErrorKind};

/// 80 bits of the system's randomness, in hexadecimal.
#[allow(clippy::disallowed_methods, reason = "the one place where this crate takes the system's randomness")]
pub(crate) fn id() -> Result<String, StoreError> {
    let mut bytes = [0u8; 10];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(10) => Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        _ => Err(StoreError::new(
            StoreErrorKind::Unreachable,
            "the system gave no randomness; nothing was sent; it is tried again",
        )),
    }
}
