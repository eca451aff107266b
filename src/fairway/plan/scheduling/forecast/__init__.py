"""When a waiting run will start, from the durations of earlier runs."""
