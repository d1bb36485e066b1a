"""A site with a node in this process, and what its owner hears."""

from pathlib import Path

import pytest
from node_sites import Hub, hub_of, owned_site

from dprbft.engines.node.daemon import Node, Served


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return owned_site(tmp_path / "north")


@pytest.fixture
def told() -> list[Served]:
    return []


@pytest.fixture
def node(site: Path, told: list[Served]) -> Node:
    return Node({"north": site}, tell=told.append)


@pytest.fixture
def hub(tmp_path: Path, site: Path) -> Hub:
    return hub_of(tmp_path, [site])
