"""The shell face. It starts in milliseconds: nothing heavy is imported before a verb needs it."""
