"""The clock, users and disk of this machine, and the crash points of the fault tests."""
