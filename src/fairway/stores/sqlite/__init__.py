"""The store on SQLite in WAL mode. The only package that imports `sqlite3`."""
