"""The settings: one frozen object, read once from the environment, `.env` and a secrets directory.

Names carry their unit. Precedence: environment, then `.env`, then the secrets directory, then the default.
"""

import os
import re
import secrets
import socket
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from yarl import URL

from daemon.errors import ConfigurationError
from daemon.models import default_models_dir
from schemas.names import REQUEST_QUEUE, prefix_of

_PREFIX = "LEVERET_"
_REPLY_TO_ALLOW = r"amq\.rabbitmq\.reply-to\..*|amq\.gen-.*|(?!amq\.).*"

_SOURCES = SettingsConfigDict(
    env_prefix=_PREFIX, env_file=".env", env_file_encoding="utf-8", env_ignore_empty=True, extra="ignore"
)

_AmqpName = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]+$")]


def _default_daemon_id() -> str:
    """Host name, process id and four random hex digits: unique among daemons, readable in logs."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"


class Settings(BaseSettings):
    """Everything an operator can set; every name takes the prefix `LEVERET_`."""

    model_config = SettingsConfigDict(**_SOURCES, frozen=True, validate_default=True, allow_inf_nan=False)

    amqp_url: SecretStr = Field(
        SecretStr("amqp://guest:guest@localhost:5672/"),
        description="Broker address; `amqps://` takes `cafile`, `certfile`, `keyfile` as query parameters.",
    )
    queue: _AmqpName = Field(REQUEST_QUEUE, description="Request queue; names all other queues by its prefix.")
    declare_: bool = Field(
        True,
        validation_alias=AliasChoices(f"{_PREFIX}DECLARE", "declare"),
        serialization_alias="declare",
        description="Declare the topology; `false` only checks that it exists.",
    )
    delivery_limit: int = Field(10, ge=1, le=1_000_000, description="Deliveries that may fail before dead-lettering.")
    queue_max_length: int = Field(1000, ge=1, description="Requests that may wait; beyond it publishers are refused.")
    max_body_bytes: int = Field(1_048_576, ge=1024, description="Largest request body, also after decompression.")
    reply_to_allow: str = Field(_REPLY_TO_ALLOW, description="Regular expression that a reply address must match.")
    require_user_id: bool = Field(False, description="Refuse requests without a `user_id` verified by the broker.")

    model: str = Field("Qwen/Qwen2.5-0.5B-Instruct", min_length=1, description="Hub id, `smollm2-135m` or directory.")
    models_dir: Path = Field(
        default_factory=default_models_dir,
        description="Where fetched models live; default: `.models` here, else the user's data directory.",
    )
    model_id: str | None = Field(None, min_length=1, description="Public model name; default: the Hub id it came from.")
    model_revision: str | None = Field(None, min_length=1, description="Hub revision that must be used.")
    fetch: bool = Field(False, description="Download a missing model at start.")
    weights: Literal["int8", "int4", "float32", "bfloat16"] | None = Field(
        None, description="Kind of weights; default: int8 where the model family is supported, else float32."
    )
    threads: int | None = Field(
        None,
        ge=1,
        le=1024,
        validation_alias=AliasChoices(
            f"{_PREFIX}THREADS", f"{_PREFIX}TORCH_NUM_THREADS", "TORCH_NUM_THREADS", "threads"
        ),
        description="Compute threads; default: the cgroup quota.",
    )
    context_tokens: int | None = Field(
        None, ge=16, description="Prompt plus answer; default: the model's, 8192 at most."
    )
    prompt_cache_bytes: int = Field(268_435_456, ge=0, description="Memory for cached prompt prefixes; 0 is off.")
    system_prompt: str | None = Field(
        None, description="Put first where a request has no system message; computed at the start."
    )

    max_seconds: float = Field(300.0, gt=0, le=86_400, description="Largest and default time budget of a request.")
    drain_seconds: float = Field(25.0, ge=0, le=86_400, description="Time the running request gets at shutdown.")
    chunk_seconds: float = Field(0.05, ge=0, le=60, description="Longest time that streamed tokens are held together.")

    daemon_id: str = Field(
        default_factory=_default_daemon_id,
        min_length=1,
        max_length=100,
        pattern=r"^[\x21-\x7e]+$",
        description="Name of this daemon in replies and logs; default: host name, process id, random digits.",
    )
    health_host: str = Field("127.0.0.1", min_length=1, description="Address of the HTTP port.")
    health_port: int = Field(8080, ge=0, le=65_535, description="HTTP port; 0 takes a free one and logs it.")
    log_level: Literal["debug", "info", "warning", "error", "critical"] = Field(
        "info", description="Least level that is logged."
    )
    log_format: Literal["auto", "json", "text"] = Field("auto", description="auto: text on a terminal, else JSON.")
    secrets_dir: Path | None = Field(None, description="Directory with one file a secret, named like the setting.")

    @field_validator("log_level", "log_format", mode="before")
    @classmethod
    def _lower(cls, value: Any) -> Any:  # noqa: ANN401 - whatever the environment holds
        return value.lower() if isinstance(value, str) else value

    @field_validator("queue")
    @classmethod
    def _not_reserved(cls, value: str) -> str:
        if value.startswith("amq."):
            raise ValueError("names that begin with 'amq.' belong to the broker; choose another")
        return value

    @field_validator("reply_to_allow")
    @classmethod
    def _compiles(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from error
        return value

    @field_validator("amqp_url")
    @classmethod
    def _is_amqp(cls, value: SecretStr) -> SecretStr:
        """The value never shows in the message: it holds a password."""
        try:
            url = URL(value.get_secret_value())
        except ValueError as error:
            raise ValueError("not a URL; expected amqp://user:password@host:port/vhost") from error
        if url.scheme not in {"amqp", "amqps"} or not url.host:
            raise ValueError("expected amqp:// or amqps:// with a host")
        return value

    @property
    def prefix(self) -> str:
        """What the names of all other queues and exchanges begin with: `chat` for `chat.requests`."""
        return prefix_of(self.queue)


class _SecretsPlace(BaseSettings):
    """The one setting that must be known before the others are read; `.env` may say it too."""

    model_config = _SOURCES

    secrets_dir: str | None = None


def _secrets_dir() -> str | None:
    """The configured secrets directory, else systemd's credentials, else none."""
    chosen = _SecretsPlace().secrets_dir or os.environ.get("CREDENTIALS_DIRECTORY")
    if chosen and not Path(chosen).is_dir():
        raise ConfigurationError(f"{_PREFIX}SECRETS_DIR: {chosen!r} is not a directory; create it or unset the setting")
    return chosen


def _one_line(error: ValidationError) -> str:
    """Name each bad setting with its value and what was expected; a secret's value is left out."""
    lines = []
    for item in error.errors():
        name = str(item["loc"][0]) if item["loc"] else "settings"
        name = name if name.isupper() else f"{_PREFIX}{name.upper().rstrip('_')}"
        value = "" if name == f"{_PREFIX}AMQP_URL" else f" (value {item['input']!r})"
        lines.append(f"{name}: {item['msg'].removeprefix('Value error, ')}{value}")
    return "; ".join(lines)


def load_settings() -> Settings:
    """Read the settings. Raises ConfigurationError naming every bad setting, its value and what was expected."""
    try:
        return Settings(_secrets_dir=_secrets_dir())
    except ValidationError as error:
        raise ConfigurationError(_one_line(error)) from error
