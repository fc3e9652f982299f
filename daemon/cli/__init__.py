"""The `leveret` command: one file a sub-command."""
