"""Boots systemd with some units, on Linux, as root: in namespaces of its own, over an overlay.

The root is this machine's, to which nothing is written: what is written goes to a tmpfs, but for
one folder, which is shared. `sysinit.target` is empty: no disk is mounted, no device looked for.
"""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import closed
from closed import USER

SYSTEMD = Path("/lib/systemd/systemd")
BOOT = """
set -e
mount --make-rprivate /
mkdir -p "$WORK/root" "$WORK/rw"
mount -t tmpfs tmpfs "$WORK/rw"
mkdir "$WORK/rw/upper" "$WORK/rw/work"
mount -t overlay -o "lowerdir=/,upperdir=$WORK/rw/upper,workdir=$WORK/rw/work" overlay "$WORK/root"
cd "$WORK/root"
mkdir -p ".$SHARED"
mount --bind "$WORK/shared" ".$SHARED"
cp "$WORK"/units/* etc/systemd/system/
echo "panas:x:$USER_ID:$USER_ID::/nonexistent:/usr/sbin/nologin" >> etc/passwd
echo "panas:x:$USER_ID:" >> etc/group
[ -z "$HIDDEN" ] || chmod o+rx ".$HIDDEN"
mount -t proc proc proc
mount --rbind /dev dev
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
exec chroot . env -i container=other "$SYSTEMD" --system --unit=asked.target --log-target=null
"""
EMPTY = "[Unit]\nDescription=Nothing\nDefaultDependencies=no\n"


def why_not() -> str:
    """What this machine lacks for it; empty if nothing."""
    if lacks := closed.why_not():
        return lacks
    if not SYSTEMD.is_file():
        return "needs systemd"
    systems = Path("/proc/filesystems").read_text().split()
    missing = [name for name in ("overlay", "cgroup2") if name not in systems]
    return f"needs a kernel with {', '.join(missing)}" if missing else ""


class Booted:
    """A systemd that runs."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def execute(self, *words: str) -> str:
        """What a command says there, as root."""
        own = self._process.pid
        first = Path(f"/proc/{own}/task/{own}/children").read_text().strip() or "0"
        command = ["nsenter", "--target", first, "--all", "--root", "--wd", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        return (done.stdout + done.stderr).strip()

    def systemctl(self, *words: str) -> str:
        """What `systemctl` says."""
        return self.execute("systemctl", *words)

    def as_user(self, line: str) -> str:
        """What a line of shell says, as the units' user."""
        user = [f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        return self.execute("setpriv", *user, "--", "sh", "-c", line)

    def status(self, unit: str) -> dict[str, str]:
        """What the kernel tells of a unit's first process."""
        pid = self.systemctl("show", "--property=MainPID", "--value", unit)
        lines = self.execute("cat", f"/proc/{pid}/status").splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def log_of(work: Path) -> str:
    """What was said before systemd took over."""
    return (work / "boot.log").read_text()


@contextmanager
def booted(work: Path, units: Mapping[str, str], shared: str) -> Iterator[Booted]:
    """A systemd that has these units, none of which is started, until the block ends.

    Args:
        work: an empty folder; its `shared` is the one that units write to, as `USER`.
        units: their texts by file name.
        shared: where units see that folder.
    """
    (work / "shared").mkdir(exist_ok=True)
    (work / "units").mkdir()
    targets = {"asked.target": EMPTY, "sysinit.target": EMPTY}
    for name, text in {**units, **targets}.items():
        (work / "units" / name).write_text(text)
    subprocess.run(["chown", "-R", f"{USER}:{USER}", str(work / "shared")], check=True)
    told = {
        "WORK": work,
        "SHARED": shared,
        "HIDDEN": closed.hidden(),
        "USER_ID": USER,
        "SYSTEMD": SYSTEMD,
    }
    apart = ["--pid", "--fork", "--mount", "--cgroup", "--ipc", "--uts", "--kill-child=KILL"]
    with (work / "boot.log").open("wb") as log:
        process = subprocess.Popen(
            ["unshare", *apart, "sh", "-c", BOOT],
            env={**os.environ, **{name: str(value) for name, value in told.items()}},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    system, until = Booted(process), time.monotonic() + 60
    try:
        while system.systemctl("is-active", "asked.target") not in ("active", "inactive"):
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"systemd did not start: {log_of(work)}")
            time.sleep(0.5)
        yield system
    finally:
        process.kill()
        process.wait(60)
