"""The settings: where they come from, and the one line that says what is wrong."""

from pathlib import Path

import pytest

from daemon.errors import ConfigurationError
from daemon.settings import load_settings


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No `.env` of the developer and no variable of the shell may decide a test."""
    monkeypatch.chdir(tmp_path)
    for name in ("LEVERET_AMQP_URL", "LEVERET_MODELS_DIR", "TORCH_NUM_THREADS", "CREDENTIALS_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("queue", "prefix"),
    [("chat.requests", "chat"), ("a.b.requests", "a.b"), ("tickets", "tickets"), (".requests", ".requests")],
)
def test_one_name_gives_the_prefix_of_all(queue: str, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two models in one vhost must not meet."""
    monkeypatch.setenv("LEVERET_QUEUE", queue)
    assert load_settings().prefix == prefix


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("QUEUE_MAX_LENGTH", "0", "greater than or equal to 1 (value '0')"),
        ("WEIGHTS", "int3", "'int8', 'int4', 'float32' or 'bfloat16' (value 'int3')"),
        ("REPLY_TO_ALLOW", "(", "not a regular expression"),
        ("MAX_SECONDS", "nan", "finite number (value 'nan')"),
        ("QUEUE", "amq.chat", "belong to the broker"),
        ("THREADS", "zero", "valid integer"),
        ("HEALTH_PORT", "65536", "65535"),
        ("SECRETS_DIR", "/does/not/exist", "is not a directory"),
    ],
)
def test_a_bad_value_is_named_with_what_was_expected(
    name: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator reads one line, not a traceback."""
    monkeypatch.setenv(f"LEVERET_{name}", value)
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    assert f"LEVERET_{name}" in str(caught.value)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bad_broker_address_is_refused_without_showing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address holds a password."""
    monkeypatch.setenv("LEVERET_AMQP_URL", "http://user:hunter2@host/")
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    assert "hunter2" not in str(caught.value)
    assert "amqp://" in str(caught.value)


def test_environment_wins_over_env_file_wins_over_secrets(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One order, so that an operator can predict what is in force."""
    secrets = elsewhere / "secrets"
    secrets.mkdir()
    (secrets / "leveret_queue").write_text("secret.requests\n")
    (secrets / "leveret_amqp_url").write_text("amqp://u:p@secret-host/\n")
    monkeypatch.setenv("LEVERET_SECRETS_DIR", str(secrets))
    assert load_settings().queue == "secret.requests"
    assert "secret-host" in load_settings().amqp_url.get_secret_value()
    (elsewhere / ".env").write_text("LEVERET_QUEUE=file.requests\n")
    assert load_settings().queue == "file.requests"
    monkeypatch.setenv("LEVERET_QUEUE", "env.requests")
    assert load_settings().queue == "env.requests"


def test_the_secrets_directory_may_be_named_in_the_env_file(elsewhere: Path) -> None:
    """It was shown by `leveret config` and then not read."""
    (elsewhere / "leveret_amqp_url").write_text("amqp://u:p@secret-host/")
    (elsewhere / ".env").write_text(f"LEVERET_SECRETS_DIR={elsewhere}\n")
    assert "secret-host" in load_settings().amqp_url.get_secret_value()


def test_systemd_credentials_are_a_secrets_directory(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`LoadCredential=` puts files there; the unit sets nothing else."""
    (elsewhere / "leveret_amqp_url").write_text("amqp://u:p@credential-host/")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(elsewhere))
    assert "credential-host" in load_settings().amqp_url.get_secret_value()


def test_the_thread_count_has_two_names_and_an_empty_value_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """TORCH_NUM_THREADS is what the article's users set; compose files pass empty variables."""
    monkeypatch.setenv("TORCH_NUM_THREADS", "3")
    assert load_settings().threads == 3
    monkeypatch.setenv("LEVERET_THREADS", "2")
    assert load_settings().threads == 2
    monkeypatch.setenv("LEVERET_THREADS", "")
    monkeypatch.delenv("TORCH_NUM_THREADS")
    assert load_settings().threads is None


def test_a_secret_does_not_show_in_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A settings object may land in a log."""
    monkeypatch.setenv("LEVERET_AMQP_URL", "amqp://user:hunter2@host/")
    assert "hunter2" not in repr(load_settings())
