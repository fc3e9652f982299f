"""Leveret: a small language model behind a RabbitMQ queue, on a plain CPU."""

__version__ = "0.1.0"
