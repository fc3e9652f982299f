"""What `leveret --help` teaches, and the examples at the end of each command's help; tests parse every one."""

COMMANDS = {
    "run": "Serve requests until SIGTERM or SIGINT.",
    "chat": "Send a request, or hold a conversation; answers stream in.",
    "eval": "Measure the answers on labelled cases of your own.",
    "bench": "Measure speed and memory of the model on this machine.",
    "dead": "List the parked requests; send one back, or drop it.",
    "doctor": "Check all that a daemon needs; say what to do where it lacks.",
    "config": "Print the effective settings, secrets masked.",
    "fetch": "Bring a model into the models directory.",
    "schema": "Print the AsyncAPI 3 document of the messages.",
}
"""Every command with its line in the help; `daemon.cli.<command>` holds it, as a Typer named `app`."""

EXAMPLES = {
    "run": ("leveret run", "LEVERET_MODEL=smollm2-135m LEVERET_QUEUE=small.requests leveret run"),
    "chat": (
        'leveret chat "What is the capital of France?"',
        "leveret chat --file mail.txt --choice billing,delivery,technical",
    ),
    "eval": ("leveret eval mine.jsonl --html mine.html", "leveret eval --compare before.jsonl after.jsonl"),
    "bench": ("leveret bench", "leveret bench --model smollm2-135m --weights int8 --plot speed.png"),
    "dead": ("leveret dead", "leveret dead requeue 1f0c9a --reply-to answers"),
    "doctor": ("leveret doctor", "LEVERET_MODEL=smollm2-135m leveret doctor --json"),
    "config": ("leveret config", "LEVERET_QUEUE=small.requests leveret config --json"),
    "fetch": ("leveret fetch smollm2-135m", "leveret fetch Qwen/Qwen2.5-0.5B-Instruct --revision main"),
    "schema": ("leveret schema",),
}

KEEP_LINES = "\b\n"
"""Before a paragraph: its lines stay as they are."""

TEACHING = f"""Run a small language model behind a RabbitMQ queue, on a plain CPU.

Other services send it chat requests as messages and get the answers as messages. With a broker on this machine, try in
this order, the last one in a second terminal:

{KEEP_LINES}  leveret fetch smollm2-135m
  LEVERET_MODEL=smollm2-135m leveret run
  leveret chat "What is the capital of France?"
"""

SETTINGS_AND_STATUSES = """Settings come from variables LEVERET_..., then from a file .env here, then from the
directory LEVERET_SECRETS_DIR; LEVERET_AMQP_URL says where the broker is. `leveret config` prints all of them, and
`leveret doctor` what is missing.

Exit statuses: 0 done, 1 not done, 2 usage, 3 no broker or no answer in time, 78 a setting, the model or the broker's
set-up is unusable.
"""


def examples(command: str) -> str:
    """The end of a command's help."""
    return "\n  ".join((f"{KEEP_LINES}Examples:", *EXAMPLES[command]))
