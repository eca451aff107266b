"""The HTTP API: routes over `app.application`."""
