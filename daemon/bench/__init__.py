"""Measures the engine on this machine: speed, time to the first token, start-up, memory."""
