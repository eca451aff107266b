"""The store on SQLite in WAL mode. The one place that imports `sqlite3`."""
