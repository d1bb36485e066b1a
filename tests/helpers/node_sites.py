"""Sites with a node each on this machine, and a hub that asks them over their sockets."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from elsewhere import SMALL

from dprbft.config.files import build_config
from dprbft.config.schema import RunConfig
from dprbft.engines.frames import Answer, Request, new_nonce, sha256
from dprbft.engines.node import listen
from dprbft.engines.node.call import SOCKET, ask
from dprbft.engines.node.daemon import Node
from dprbft.engines.node.public import FILES
from dprbft.messages import Code, Hello, Reply, Verb
from dprbft.run.directory import prepare
from dprbft.run.view import RunView
from dprbft.site.data import declared
from dprbft.site.directory import SiteSettings, write_site

SIDE, CLASSES = 8, 4


def pictures(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of four classes, which differ in brightness and in where they are bright."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % CLASSES
    x = rng.normal(60, 20, (n, SIDE, SIDE))
    x[np.arange(n), 2 * y] += 120
    return np.clip(x, 0, 255).astype(np.uint8), y


def write_pictures(path: Path, n: int, seed: int) -> Path:
    """A data set in a file."""
    x, y = pictures(n, seed)
    np.savez(path, images=x, labels=y)
    return path


def owned_site(folder: Path, n: int = 120, seed: int = 1, **given: Any) -> Path:
    """A site as `panas site init` makes it; `given` goes into its site.toml."""
    folder.mkdir(parents=True)
    data = write_pictures(folder / "data.npz", n, seed)
    settings = SiteSettings(
        **({"name": folder.name, "data": str(data), "epsilon": 6.0, "delta": 1e-4} | given)
    )
    facts, _ = declared(folder, settings)
    write_site(folder, settings, facts=facts)
    return folder


def hub_config(root: Path, folders: list[Path], **privacy: Any) -> RunConfig:
    """Settings of a small run of method joined, with public samples of the hub."""
    public = root / "hub-public.npz"
    if not public.exists():
        write_pictures(public, 60, 99)
    settings = {
        "data": {"public_data": str(public)},
        "federation": {"sites": [str(f) for f in folders], "clients": len(folders)},
        "privacy": {"epsilon": 4.0, "delta": 1e-4, **privacy},
    }
    return build_config(SMALL, settings)


@dataclass
class Hub:
    """An engine that asks nodes, and keeps every byte that they answer."""

    run: Path
    config: RunConfig
    sockets: Mapping[str, Path]
    answered: list[bytes] = field(default_factory=list)
    elsewhere: bool = True  # on another machine than the sites, as far as they know

    @property
    def view(self) -> RunView:
        return RunView(self.run, self.config)

    def request(self, verb: str, content: bytes = b"", site: int = 0, **changes: Any) -> Request:
        """A request as the hub makes it."""
        files: dict[str, bytes] = {}
        if verb in (Verb.HELLO, Verb.LEAVE):
            hello = Hello.from_bytes(content or self.view.hello(site))
            named = [name for name in FILES if getattr(hello, name)]
            if verb is Verb.HELLO or verb == "hello":
                files = {name: Path(getattr(hello, name)).read_bytes() for name in named}
            content = self._elsewhere(hello, named).to_bytes()
        paths = self.view.sites[site]
        request = Request(paths.run, paths.name, site, verb, new_nonce(), content, files)
        return replace(request, **changes)

    def _elsewhere(self, hello: Hello, named: list[str]) -> Hello:
        """The hello of a hub on another machine: sites by name, and files by what they are."""
        record = json.loads(hello.config)
        names = [paths.name for paths in self.view.sites]
        record["federation"] |= {"sites": [], "remote": names} if self.elsewhere else {}
        config = RunConfig.model_validate(record).model_dump_json()
        digest = sha256(Path(hello.map).read_bytes()) if hello.map else ""
        return replace(hello, config=config, map=digest, **{name: name for name in named})

    def call(self, verb: Verb, messages: Mapping[int, bytes]) -> Iterator[tuple[int, Reply]]:
        """As `Engine.call`."""
        for site, content in messages.items():
            request = self.request(verb, content, site)
            frame = ask(self.sockets[request.site], request.to_bytes(), 60)
            self.answered.append(frame)
            answer = Answer.from_bytes(frame)
            assert (answer.nonce, answer.site) == (request.nonce, request.site)
            yield site, Reply(Code(answer.code), answer.content)


def hub_of(root: Path, folders: list[Path], **privacy: Any) -> Hub:
    """A hub's new run of these sites, of which nothing has been asked yet."""
    config, run = hub_config(root, folders, **privacy), root / "trial-1"
    prepare(run, config, resume=False)
    return Hub(run, config, {f.name: f / SOCKET for f in folders})


def code_of(node: Node, request: Request | bytes) -> Code | None:
    """What a node answers; None if it does not."""
    frame = request if isinstance(request, bytes) else request.to_bytes()
    answer = node.answer(frame)
    return None if answer is None else Code(Answer.from_bytes(answer).code)


@contextmanager
def serving(node: Node, path: Path) -> Iterator[None]:
    """A node at its socket, in threads of this process; it ends with the process."""
    ready = threading.Event()
    threading.Thread(target=listen.run_node, args=(node, path, ready.set), daemon=True).start()
    assert ready.wait(10)
    yield


def everything(folder: Path) -> dict[str, bytes]:
    """All files below a folder with their content, but locks and the node's log."""
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and not p.name.endswith(".lock") and not p.name.startswith("node.log")
    }
