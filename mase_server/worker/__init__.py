"""The processes that run user code: boot by path, warm parent, trace child."""
