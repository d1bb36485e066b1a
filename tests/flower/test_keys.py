"""Flower reads the keys that `dprbft.secure_sum.identity` makes."""

from pathlib import Path

import pytest

from dprbft.secure_sum.identity import new_key, public_of, ssh_public

pytestmark = pytest.mark.flower


def test_flower_reads_a_node_key_and_registers_its_public_half(tmp_path: Path):
    from flwr.cli.supernode.register import try_load_public_key
    from flwr.supernode.cli.flower_supernode import (
        _parse_args_run_supernode,
        _try_setup_client_authentication,
    )

    key = new_key()
    private, public = tmp_path / "node.key", tmp_path / "node.pub"
    private.write_bytes(key)
    public.write_bytes(ssh_public(public_of(key)))
    given = ["--auth-supernode-private-key", str(private)]
    keys = _try_setup_client_authentication(_parse_args_run_supernode().parse_args(given))
    assert keys is not None
    assert try_load_public_key(public) == public_of(key)
