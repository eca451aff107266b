"""Output of tasks: their logs, and metrics from printed lines, reports and event files."""
