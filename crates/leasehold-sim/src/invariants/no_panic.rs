//! Nothing in the core panics, whatever it is told.

pub(crate) const NAME: &str = "no_panic";

/// What a panic said.
pub(crate) fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
