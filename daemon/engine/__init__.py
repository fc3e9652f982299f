"""The generation engine: prompt in, text out. It knows nothing of asyncio, AMQP or settings."""
