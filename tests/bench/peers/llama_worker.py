"""A plain aio-pika worker around llama-cpp-python, as one writes it in an afternoon: the peer for whole jobs.

Prefetch 1, the answer published to `reply_to`, then the ack. llama-cpp-python keeps the last prompt's keys and values
and computes only what is new behind a common beginning. Runs in that package's environment, with aio-pika beside it.
"""

import asyncio
import json
import sys
from typing import Any

import aio_pika
import llama_cpp


def grammar_of(request: dict[str, Any]) -> Any:
    """The grammar that a request's fields ask for, None where it asks for none."""
    if "structured_outputs" in request:
        labels = " | ".join(json.dumps(label) for label in request["structured_outputs"]["choice"])
        return llama_cpp.LlamaGrammar.from_string(f"root ::= {labels}", verbose=False)
    if "response_format" in request:
        schema = request["response_format"]["json_schema"]["schema"]
        return llama_cpp.LlamaGrammar.from_json_schema(json.dumps(schema), verbose=False)
    return None


def answer(model: Any, request: dict[str, Any]) -> str:
    """The text of one greedy answer."""
    completion = model.create_chat_completion(
        request["messages"], max_tokens=request["max_new_tokens"], temperature=0.0, grammar=grammar_of(request)
    )
    return str(completion["choices"][0]["message"]["content"])


async def serve(url: str, queue_name: str, path: str, threads: int) -> None:
    """Answer for ever."""
    model = llama_cpp.Llama(path, n_ctx=2048, n_threads=threads, n_threads_batch=threads, verbose=False)
    connection = await aio_pika.connect_robust(url)
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=1)
    queue = await channel.declare_queue(queue_name)
    print("ready", flush=True)
    async with queue.iterator() as messages:
        async for message in messages:
            text = await asyncio.to_thread(answer, model, json.loads(message.body))
            body = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
            reply = aio_pika.Message(body, correlation_id=message.correlation_id)
            await channel.default_exchange.publish(reply, message.reply_to or "")
            await message.ack()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
