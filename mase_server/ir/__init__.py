"""The MASE IR: MaseGraph and its metadata."""
