"""What the benchmarks share: rounds, tables, verdicts and logs to read."""
