"""What a calibration promises and what comes true: docs/benchmarks/{calibration,abstention,acceptance}.md."""
