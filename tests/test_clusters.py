"""Compose, Kubernetes and systemd files: linted, without a secret, and as closed as they can be."""

import shutil
import subprocess
from pathlib import Path
from string import Template
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
DOCKER = ROOT / "docker"
UNITS = ROOT / "dprbft" / "engines" / "deploy" / "templates"
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text())
HUB = {record["kind"]: record for record in yaml.safe_load_all((DOCKER / "hub.yaml").read_text())}


@pytest.mark.parametrize("name", ["hub", "north", "south"])
def test_a_service_of_compose_is_closed_and_has_the_volumes_of_its_image(name: str):
    service = COMPOSE["services"][name]
    assert (service["user"], service["read_only"]) == ("1000:1000", True)
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["tmpfs"] == ["/tmp"]
    assert "environment" not in service
    assert "ports" not in service, "the sites of the demonstration are on the same network"
    inside = {volume.split(":")[1] for volume in service["volumes"]}
    assert inside == ({"/hub"} if name == "hub" else {"/site", "/data", "/state"})
    assert service["image"] == f"panas-{service['build']['target']}"
    assert (DOCKER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()


def closed(container: dict[str, Any]) -> bool:
    """Whether a container has no privilege, and no file of its image that it may write."""
    wanted = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}
    return container["securityContext"] == wanted | {"capabilities": {"drop": ["ALL"]}}


def test_the_hub_in_kubernetes_is_closed_and_keeps_its_folder():
    pod = HUB["StatefulSet"]["spec"]["template"]["spec"]
    about = pod["securityContext"]
    assert about["runAsNonRoot"] is True
    assert about["runAsUser"] == about["fsGroup"] == 1000
    assert about["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert HUB["StatefulSet"]["spec"]["replicas"] == 1
    containers = [*pod["initContainers"], *pod["containers"]]
    assert all(map(closed, containers))
    assert all("memory" in container["resources"]["limits"] for container in containers)
    volumes = {volume["name"] for volume in pod["volumes"]}
    mounted = {mount["name"] for container in containers for mount in container["volumeMounts"]}
    assert mounted == volumes
    (claim,) = (v["persistentVolumeClaim"] for v in pod["volumes"] if "persistentVolumeClaim" in v)
    assert claim["claimName"] == HUB["PersistentVolumeClaim"]["metadata"]["name"]
    labels = HUB["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert HUB["Service"]["spec"]["selector"] == labels
    assert set(HUB) == {"Service", "PersistentVolumeClaim", "StatefulSet"}, "no secret"


MOST = {"hub": 2.0, "site": 2.5}
"""Exposure that systemd computes of a unit, from 0 to 10; a site's may reach a GPU."""


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
@pytest.mark.parametrize("kind", ["hub", "site"])
def test_systemd_finds_no_fault_in_a_unit_and_little_exposure(kind: str, tmp_path: Path):
    text = Template((UNITS / f"{kind}.service").read_text()).substitute(site="north")
    unit = tmp_path / f"panas-{kind}.service"
    # The program and its user are not on this machine.
    folder = {"hub": "hub", "site": "north"}[kind]
    text = text.replace(f"ExecStart=/srv/panas/{folder}/start.sh", "ExecStart=/bin/true")
    unit.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    faults = [line for line in done.stderr.splitlines() if unit.name in line]
    assert faults == [], done.stderr
    most = f"--threshold={round(10 * MOST[kind])}"
    words = ["systemd-analyze", "security", "--offline=yes", most, unit]
    assert subprocess.run(words, capture_output=True).returncode == 0
    unit.write_text(text.replace("SystemCallFilter=@system-service\n", ""))
    assert subprocess.run(words, capture_output=True).returncode != 0, "the threshold is loose"
