"""What services report: routes, loads, access rules, batching."""
