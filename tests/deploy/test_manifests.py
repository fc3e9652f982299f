"""Kubernetes manifests, compose file and workflows: valid, and in step with the daemon's settings."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from daemon.settings import Settings

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
COMPOSE = ROOT / "deploy" / "compose" / "compose.yaml"
VERSIONS = ["1.30", kubernetes_validate.latest_version()]
NOT_KUBERNETES_OWN = {"Kustomization", "ScaledObject", "TriggerAuthentication"}

_TEXT = {"type": "string", "minLength": 1}
_COUNT = {"type": "integer", "minimum": 0}


def _strict(required: list[str], **properties: object) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


KEDA = {
    "TriggerAuthentication": _strict(
        ["secretTargetRef"],
        secretTargetRef={
            "type": "array",
            "items": _strict(["parameter", "name", "key"], parameter=_TEXT, name=_TEXT, key=_TEXT),
        },
    ),
    "ScaledObject": _strict(
        ["scaleTargetRef", "triggers"],
        scaleTargetRef=_strict(["name"], name=_TEXT, kind=_TEXT, apiVersion=_TEXT),
        pollingInterval=_COUNT,
        cooldownPeriod=_COUNT,
        minReplicaCount=_COUNT,
        maxReplicaCount=_COUNT,
        advanced=_strict(
            ["horizontalPodAutoscalerConfig"],
            horizontalPodAutoscalerConfig=_strict(["behavior"], behavior={"type": "object"}),
        ),
        triggers={
            "type": "array",
            "minItems": 1,
            "items": _strict(
                ["type", "metadata", "authenticationRef"],
                type={"const": "rabbitmq"},
                metadata=_strict(
                    ["protocol", "queueName", "mode", "value"],
                    protocol={"enum": ["amqp", "http", "auto"]},
                    queueName=_TEXT,
                    mode={"enum": ["QueueLength", "MessageRate"]},
                    value=_TEXT,
                ),
                authenticationRef=_strict(["name"], name=_TEXT),
            ),
        },
    ),
}
"""The part of KEDA's resources that is used (keda.sh/v1alpha1); every value of a trigger's metadata is a string."""


def resources() -> list[dict[str, Any]]:
    return [content for path in sorted(KUBERNETES.glob("*.yaml")) for content in yaml.safe_load_all(path.read_text())]


def resource(kind: str) -> dict[str, Any]:
    (found,) = [content for content in resources() if content["kind"] == kind]
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_the_manifests(version: str) -> None:
    """A misspelt field is dropped without a word by older clusters."""
    own = [content for content in resources() if content["kind"] not in NOT_KUBERNETES_OWN]
    assert {content["kind"] for content in own} == {"Deployment", "NetworkPolicy", "PodDisruptionBudget", "Secret"}
    for content in own:
        kubernetes_validate.validate(content, version, strict=True)


def test_keda_takes_its_own() -> None:
    """The scaler's settings and the autoscaler's behaviour within them."""
    for kind, schema in KEDA.items():
        content = resource(kind)
        assert content["apiVersion"] == "keda.sh/v1alpha1"
        jsonschema.validate(content["spec"], schema)
    scaled = resource("ScaledObject")["spec"]
    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "leveret"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "leveret"},
            "maxReplicas": scaled["maxReplicaCount"],
            "behavior": scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"],
        },
    }
    kubernetes_validate.validate(autoscaler, VERSIONS[-1], strict=True)


def test_the_manifests_name_each_other() -> None:
    """A selector or a name that misses does nothing, silently."""
    deployment = resource("Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert resource("PodDisruptionBudget")["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert resource("NetworkPolicy")["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    scaled = resource("ScaledObject")["spec"]
    assert scaled["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert scaled["triggers"][0]["authenticationRef"]["name"] == resource("TriggerAuthentication")["metadata"]["name"]
    assert scaled["triggers"][0]["metadata"]["queueName"] == Settings(_env_file=None).queue
    secret = resource("Secret")
    (key,) = secret["stringData"]
    (volume,) = [volume for volume in deployment["spec"]["template"]["spec"]["volumes"] if "secret" in volume]
    assert volume["secret"]["secretName"] == secret["metadata"]["name"]
    assert volume["secret"]["items"] == [{"key": key, "path": key}]
    reference = resource("TriggerAuthentication")["spec"]["secretTargetRef"][0]
    assert (reference["name"], reference["key"]) == (secret["metadata"]["name"], key)


def test_the_grace_covers_the_drain() -> None:
    """A grace below the drain kills a request that would have been answered or handed back."""
    pod = resource("Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    drain = float({item["name"]: item.get("value", "") for item in container["env"]}["LEVERET_DRAIN_SECONDS"])
    assert pod["terminationGracePeriodSeconds"] >= drain + 15
    daemon = yaml.safe_load(COMPOSE.read_text())["services"]["daemon"]
    assert (
        int(daemon["stop_grace_period"].removesuffix("s")) >= float(daemon["environment"]["LEVERET_DRAIN_SECONDS"]) + 15
    )


def test_every_variable_is_a_setting() -> None:
    """A variable that the daemon does not know is ignored."""
    known = {f"LEVERET_{name.upper().rstrip('_')}" for name in Settings.model_fields}
    (container,) = resource("Deployment")["spec"]["template"]["spec"]["containers"]
    daemon = yaml.safe_load(COMPOSE.read_text())["services"]["daemon"]
    assert {item["name"] for item in container["env"]} <= known
    assert set(daemon["environment"]) <= known
    assert set(daemon["secrets"]) == {"leveret_amqp_url"}


def test_the_container_has_no_rights_to_lose() -> None:
    """Unprivileged, a read-only tree, no token of the cluster, in both set-ups."""
    pod = resource("Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    compose = yaml.safe_load(COMPOSE.read_text())
    daemon = compose["services"]["daemon"]
    assert (daemon["read_only"], daemon["cap_drop"]) == (True, ["ALL"])
    assert [compose["networks"][name] for name in daemon["networks"]] == [{"internal": True}]


@pytest.mark.parametrize(
    ("schema", "paths"),
    [
        ("vendor.compose-spec", [COMPOSE]),
        ("vendor.github-workflows", sorted((ROOT / ".github" / "workflows").glob("*.yml"))),
        ("custom.github-workflows-require-timeout", sorted((ROOT / ".github" / "workflows").glob("*.yml"))),
    ],
)
def test_compose_and_workflows_are_valid(schema: str, paths: list[Path]) -> None:
    """By the published schemas, as the package carries them; the network is not asked."""
    assert paths
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_suite_runs_beside_the_current_rabbitmq() -> None:
    """`make test` in a job with the broker as a service; what is to run against that one is there, and only asks it."""
    job = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"]["test"]
    assert job["services"]["rabbitmq"]["image"].startswith("rabbitmq:4")
    assert "make test" in [step.get("run") for step in job["steps"]]
    (outside,) = [step for step in job["steps"] if "LEVERET_TEST_AMQP_URL" in step.get("env", {})]
    files = [word for word in outside["run"].split() if word.startswith("tests/")]
    assert len(files) > 1
    commanded = re.compile(r"\bbroker\.(?!url\b|port\b|running\b)\w+\(")
    assert [name for name in files if commanded.search((ROOT / name).read_text())] == []


def test_the_image_is_published_from_main_and_tags_only() -> None:
    """A pull request of a stranger must not publish."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "image.yml").read_text())
    job = workflow["jobs"]["image"]
    assert "pull_request" not in job["env"]["PUBLISH"]
    build = next(step for step in job["steps"] if str(step.get("uses", "")).startswith("docker/build-push-action"))
    assert build["with"]["push"] == "${{ env.PUBLISH == 'true' }}"
    assert (build["with"]["cache-from"], build["with"]["cache-to"]) == ("type=gha", "type=gha,mode=max")
