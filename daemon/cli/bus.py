"""How commands get on the bus as a requester."""

import logging

from yarl import URL

from daemon.client import Client
from daemon.settings import Settings


async def connect(settings: Settings) -> Client:
    """Connect a client to the configured broker and queue, as the URL's user. Raises ClientError."""
    for library in ("aio_pika", "aiormq"):
        # What they log about a lost or refused connection is said again by the error that ends the command.
        logging.getLogger(library).addHandler(logging.NullHandler())
    url = settings.amqp_url.get_secret_value()
    # With another mechanism than a password the user's name is not the URL's, and the broker would refuse it.
    user_id = None if "auth" in URL(url).query else URL(url).user
    return await Client.connect(url, queue=settings.queue, user_id=user_id)
