"""The language server: one file per request."""
