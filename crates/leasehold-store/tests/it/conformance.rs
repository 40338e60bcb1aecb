use leasehold_store::conformance::{self, MemoryFixture, PROPERTIES};

#[tokio::test(start_paused = true)]
async fn the_memory_store_keeps_the_contract() {
    let report = conformance::all(&MemoryFixture::default()).await;
    println!("{report}");
    report.assert_good();
    let skipped: Vec<_> = report.skipped.iter().map(|(name, _)| *name).collect();
    assert_eq!(skipped, ["acknowledged_writes_survive_a_restart"], "a memory server cannot be restarted");
    assert_eq!(report.passed.len() + skipped.len(), PROPERTIES.len());
}
