"""Runs a command as a container of `docker/compose.yaml` would: on Linux, as root, with no engine.

A mount namespace of its own in which every file system is read-only but for `/tmp` (a tmpfs) and
the volumes; user and group 1000, no capability, and no way to get one (`no_new_privs`).
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

USER = 1000
PYTHON = Path(sys.base_prefix).resolve()
SET_UP = """
set -e
mount --make-rprivate /
for pair in $VOLUMES; do mkdir -p "${pair#*=}"; done
if [ -n "$HIDDEN" ]; then
    mkdir -p /run/kept && mount --bind "$PYTHON_HOME" /run/kept
    mount -t tmpfs -o mode=0755 tmpfs "$HIDDEN"
    mkdir -p "$PYTHON_HOME" && mount --move /run/kept "$PYTHON_HOME"
fi
for pair in $VOLUMES; do mount --bind "${pair%%=*}" "${pair#*=}"; done
for pair in $READABLE; do mount -o remount,ro,bind "$pair"; done
mount -o remount,ro,bind /
mount -t tmpfs -o mode=1777 tmpfs /tmp
cd /
exec setpriv --reuid=$USER_ID --regid=$USER_ID --clear-groups --inh-caps=-all \\
    --bounding-set=-all --no-new-privs -- "$@"
"""


def why_not() -> str:
    """What this machine lacks for it; empty if nothing."""
    if not sys.platform.startswith("linux") or os.geteuid():
        return "needs root on Linux, which makes namespaces"
    tools = ("unshare", "setpriv", "mount", "nsenter")
    missing = [name for name in tools if not shutil.which(name)]
    return f"needs {', '.join(missing)}" if missing else ""


def hidden() -> str:
    """The folder above Python that no other user may enter; empty if there is none."""
    return next((str(p) for p in PYTHON.parents if p.stat().st_mode & 0o005 != 0o005), "")


def closed(
    words: list[str],
    volumes: Mapping[str, Path],
    *,
    readable: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
) -> tuple[list[str], dict[str, str]]:
    """A command line and environment that run a command closed off.

    Args:
        words: the command.
        volumes: folders here by where the command sees them; `USER` must own what it may write.
        readable: those of them that it may only read.
        environment: more variables of the command.
    """
    told = {
        "VOLUMES": " ".join(f"{here}={there}" for there, here in volumes.items()),
        "READABLE": " ".join(readable),
        "HIDDEN": hidden(),
        "PYTHON_HOME": str(PYTHON),
        "USER_ID": str(USER),
    }
    command = ["unshare", "--mount", "sh", "-c", SET_UP, "sh"]
    own = {**os.environ, "HOME": "/nonexistent", **told, **(environment or {})}
    return [*command, *words], own


def give(folder: Path) -> None:
    """Let the command's user own a folder and all in it."""
    subprocess.run(["chown", "-R", f"{USER}:{USER}", str(folder)], check=True)
