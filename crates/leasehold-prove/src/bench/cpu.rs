use std::time::Duration;

/// How much processor time a process has used, if it is there.
pub(super) fn used_by(pid: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program may hold anything, but it ends with the last parenthesis.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(Duration::from_secs(1) * u32::try_from(ticks).ok()? / rustix::param::clock_ticks_per_second() as u32)
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_process_has_used_some_and_no_process_none() {
        assert!(super::used_by(std::process::id()).is_some());
        assert!(super::used_by(u32::MAX).is_none());
    }
}
