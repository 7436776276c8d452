"""Thirty learners at once on one machine (`make classroom-load`): what fails, memory, waiting.

A real JupyterHub on 127.0.0.1 with the configuration of `notebooks/TEACHING.md`. Only the
authenticator (anybody, any password) and the spawner (local processes) are for demonstration:
never give such a hub to a class. Each learner has a server, opens notebooks 01, 03 and 06 one
after the other, runs every cell in a kernel of their own, and moves the explorer's slider: once
straight away, when the kernel is asked for the picture, and twice when the browser has the states
of all pictures. Then the kernel is shut down, as TEACHING.md tells learners to do. They do
everything at the same moment, which is harder than a class is.
"""

import argparse
import asyncio
import json
import os
import re
import secrets
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from jupyter_server.services.kernels.connection.base import deserialize_binary_message
from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

import from_npm
from notebooks import WIDGET_VIEW

ROOT = Path(__file__).resolve().parents[1]
LOG = from_npm.BUILD / "hub.log"
PROXY = "configurable-http-proxy@5.3.0"
PATIENCE = 600  # seconds that a learner waits for anything


@dataclass(frozen=True)
class Visit:
    """A notebook, and which slider of its explorer goes where."""

    notebook: str
    slider: str
    trait: str
    places: tuple[int, int, int]


VISITS = (
    Visit("01_scaled_dot_product_attention", "d_k", "index", (1, 3, 5)),
    Visit("03_splitting_into_heads", "T", "value", (2, 5, 4)),
    Visit("06_multi_head_attention", "d_k", "value", (31, 16, 8)),
)


@dataclass
class Findings:
    """What one run of the class was like; seconds, and bytes of PSS for each learner."""

    server: list[float] = field(default_factory=list)
    first_picture: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    whole: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    moves: list[float] = field(default_factory=list)
    states: list[float] = field(default_factory=list)  # after the last cell, till all have come
    near: int = 0  # moves that the kernel had sent beforehand: it draws nothing for them
    memory: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    hub_memory: int = 0
    failures: list[str] = field(default_factory=list)


# --- the hub ----------------------------------------------------------------------------------


def configuration(folder: Path, port: int, token: str, threads: int) -> str:
    """TEACHING.md's own example, then what makes it a demonstration."""
    text = (ROOT / "notebooks/TEACHING.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)
    [example] = [block for block in blocks if "c.JupyterHub" in block]
    proxy = from_npm.fetch(PROXY) / ".bin/configurable-http-proxy"
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    return f"""{example}
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = {str(folder / "{username}")!r}
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{free_port()}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{free_port()}"
c.ConfigurableHTTPProxy.command = [{str(proxy)!r}]
c.JupyterHub.db_url = "sqlite:///{folder / "hub.sqlite"}"
c.JupyterHub.cookie_secret_file = {str(folder / "cookie_secret")!r}
c.ConfigurableHTTPProxy.pid_file = {str(folder / "proxy.pid")!r}
c.Spawner.environment.update({{"OMP_NUM_THREADS": "{threads}"}})
c.Spawner.cmd = {[sys.executable, "-m", "jupyterhub.singleuser"]!r}
c.Spawner.args.extend({["--allow-root"] if root else []!r})
c.JupyterHub.services.append({{"name": "class", "api_token": {token!r}}})
c.JupyterHub.load_roles.append({{
    "name": "class",
    "services": ["class"],
    "scopes": ["admin:users", "admin:servers", "access:servers"],
}})
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@asynccontextmanager
async def hub(threads: int) -> AsyncIterator["Hub"]:
    """A hub that answers; on leaving, it and everything it started is gone."""
    # A short path: the kernels' sockets lie below it (see `transport` in TEACHING.md).
    with tempfile.TemporaryDirectory(prefix="hub-", dir="/tmp") as name:
        folder, port, token = Path(name), free_port(), secrets.token_hex(16)
        (folder / "config.py").write_text(configuration(folder, port, token, threads), "utf-8")
        with LOG.open("wb") as log:
            process = psutil.Popen(
                [sys.executable, "-m", "jupyterhub", "-f", "config.py"],
                cwd=folder, stdout=log, stderr=log,
            )  # fmt: skip
        process.nice(10)  # this script plays the browsers, which are machines of their own
        running = Hub(f"http://127.0.0.1:{port}", token, folder, process)
        try:
            await running.answers()
            yield running
        finally:
            if process.poll() is None:
                stop(process)


def stop(process: psutil.Popen) -> None:
    """Asks the hub to end, and with it the proxy, the servers and the kernels."""
    family = [process, *process.children(recursive=True)]
    process.terminate()
    _, left = psutil.wait_procs(family, timeout=60)
    for straggler in left:
        straggler.kill()
    print(f"The hub has ended; {len(left)} of {len(family)} processes had to be killed.")


@dataclass(frozen=True)
class Hub:
    url: str
    token: str
    folder: Path
    process: psutil.Popen

    async def call(self, path: str, method: str = "GET", body: Any = None) -> Any:
        request = HTTPRequest(
            self.url + path, method, self.headers, json.dumps(body or {}),
            allow_nonstandard_methods=True, request_timeout=PATIENCE, connect_timeout=PATIENCE,
        )  # fmt: skip
        response = await AsyncHTTPClient().fetch(request)
        return json.loads(response.body) if response.body else None

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"token {self.token}", "Content-Type": "application/json"}

    async def answers(self) -> None:
        for _ in range(120):
            if self.process.poll() is not None:
                break
            try:
                await self.call("/hub/api/")
                return
            except (OSError, HTTPClientError):
                await asyncio.sleep(0.5)
        raise SystemExit(f"JupyterHub did not start:\n{LOG.read_text()}")

    def home(self, learner: str) -> Path:
        return self.folder / learner

    def memory(self) -> dict[str, int]:
        """PSS of each learner's server and kernels, and of the rest under "hub".

        Memory that several processes share counts by its share.
        """
        total: dict[str, int] = defaultdict(int)
        for process in [self.process, *self.process.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                whose = process.environ().get("JUPYTERHUB_USER", "hub")
                total[whose] += process.memory_full_info().pss
        return total


# --- a learner --------------------------------------------------------------------------------


class Kernel:
    """A learner's kernel, spoken to as JupyterLab does: over a websocket, through the proxy."""

    def __init__(self, connection: WebSocketClientConnection) -> None:
        self.connection = connection
        self.models: dict[str, dict[str, Any]] = {}  # widgets, by comm id
        self.full: set[str] = set()  # pictures of which all states have come

    async def ask(
        self, kind: str, content: dict[str, Any], seen: Callable[[dict], None] = lambda _: None
    ) -> dict[str, Any] | None:
        """Sends a message and hands over all that comes back, until the kernel is idle again."""
        message = {
            "header": {
                "msg_id": uuid.uuid4().hex, "msg_type": kind, "version": "5.3",
                "username": "", "session": "class", "date": "",
            },
            "parent_header": {}, "metadata": {}, "content": content,
            "channel": "shell", "buffers": [],
        }  # fmt: skip
        await self.connection.write_message(json.dumps(message))
        answer = None
        awaited = {"idle", "reply"} if kind == "execute_request" else {"idle"}
        while awaited:
            got = await self.next()
            if got["parent_header"].get("msg_id") != message["header"]["msg_id"]:
                continue
            seen(got)
            if got["msg_type"] == "execute_reply":
                answer = got["content"]
                awaited.discard("reply")
            if got["msg_type"] == "status" and got["content"]["execution_state"] == "idle":
                awaited.discard("idle")
        return answer

    async def next(self) -> dict[str, Any]:
        """The next message, whatever it answers."""
        raw = await asyncio.wait_for(self.connection.read_message(), PATIENCE)
        if raw is None:
            raise ConnectionError("the kernel hung up")
        got = deserialize_binary_message(raw) if isinstance(raw, bytes) else json.loads(raw)
        if got["msg_type"] == "comm_open":
            self.models[got["content"]["comm_id"]] = got["content"]["data"].get("state", {})
        if brings(got, "stored"):
            self.full.add(got["content"]["comm_id"])
        return got

    async def sends_all(self) -> None:
        """Waits until every picture has its states: from then on the browser moves it alone."""
        while not {i for i, state in self.models.items() if "deck" in state} <= self.full:
            await self.next()

    def slider(self, name: str) -> str:
        """The comm id of the newest control of this name."""
        named = [i for i, state in self.models.items() if state.get("description") == name]
        if not named:
            raise LookupError(f"no slider {name}")
        return named[-1]


def is_picture(message: dict[str, Any]) -> bool:
    data = message["content"].get("data") or {}
    explorer = WIDGET_VIEW in data and "text/html" not in data  # no still picture stands beside it
    return message["msg_type"] in ("display_data", "execute_result") and (
        explorer or "<img" in data.get("text/html", "") or "image/png" in data
    )


def brings(message: dict[str, Any], trait: str) -> bool:
    """Whether it sends a widget's trait, as JSON or as bytes beside it."""
    data = message["content"].get("data") or {}
    sent = trait in data.get("state", {}) or [trait] in data.get("buffer_paths", [])
    return message["msg_type"] == "comm_msg" and sent


async def visit(hub: Hub, learner: str, what: Visit, found: Findings) -> str:
    """Opens a notebook, runs every cell, moves its slider; returns the session, still running."""
    server = f"/user/{learner}/api"
    path = f"{what.notebook}.ipynb"
    start = time.perf_counter()
    notebook = (await hub.call(f"{server}/contents/{path}?content=1"))["content"]
    session = await hub.call(
        f"{server}/sessions", "POST",
        {"path": path, "name": path, "type": "notebook", "kernel": {"name": "python3"}},
    )  # fmt: skip
    url = f"{hub.url.replace('http', 'ws', 1)}{server}/kernels/{session['kernel']['id']}/channels"
    asking = HTTPRequest(
        url, headers=hub.headers, connect_timeout=PATIENCE, request_timeout=PATIENCE
    )
    connection = await websocket_connect(asking, max_message_size=2**28)
    kernel, pictures = Kernel(connection), []

    def seen(message: dict[str, Any]) -> None:
        if is_picture(message):
            pictures.append(time.perf_counter() - start)

    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] != "code":
            continue
        code = {"code": cell["source"], "silent": False, "store_history": True,
                "user_expressions": {}, "allow_stdin": False, "stop_on_error": True}  # fmt: skip
        reply = await kernel.ask("execute_request", code, seen)
        meant = "raises-exception" in cell["metadata"].get("tags", [])
        if reply["status"] != "ok" and not meant:
            found.failures.append(f"{learner}, {path}, cell {number}: {reply['evalue']}")
    found.first_picture[what.notebook].append(pictures[0])
    found.whole[what.notebook].append(time.perf_counter() - start)

    slider, ready = kernel.slider(what.slider), time.perf_counter()
    for number, place in enumerate(what.places):
        if number == 1:  # the first move comes before the states, the others after them
            await kernel.sends_all()
            found.states.append(time.perf_counter() - ready)
        scenes: list[float] = []
        moved = time.perf_counter()

        def drawn(message: dict[str, Any], scenes=scenes, moved=moved) -> None:
            if brings(message, "scene"):
                scenes.append(time.perf_counter() - moved)

        update = {"method": "update", "state": {what.trait: place}, "buffer_paths": []}
        await kernel.ask("comm_msg", {"comm_id": slider, "data": update}, drawn)
        found.moves.extend(scenes[:1])
        found.near += not scenes
    connection.close()
    return f"{server}/sessions/{session['id']}"


async def learn(hub: Hub, learner: str, meet: asyncio.Barrier, found: Findings) -> None:
    """One learner's lesson. Everybody waits for the last before the memory is measured."""
    home = hub.home(learner)
    home.mkdir(parents=True)
    for what in VISITS:
        shutil.copy(ROOT / f"notebooks/{what.notebook}.ipynb", home)
    try:
        await hub.call(f"/hub/api/users/{learner}", "POST")
        start = time.perf_counter()
        await hub.call(f"/hub/api/users/{learner}/server", "POST")
        while not (await hub.call(f"/hub/api/users/{learner}"))["servers"].get("", {}).get("ready"):
            if time.perf_counter() - start > PATIENCE:
                raise TimeoutError("the server did not start")
            await asyncio.sleep(2)
        found.server.append(time.perf_counter() - start)
    except Exception as error:
        found.failures.append(f"{learner}, server: {error!r}")
    for what in VISITS:
        await meet.wait()
        session = None
        try:
            session = await visit(hub, learner, what, found)
        except Exception as error:
            found.failures.append(f"{learner}, {what.notebook}: {error!r}")
        if await meet.wait() == 0:
            memory = hub.memory()
            found.hub_memory = max(found.hub_memory, memory.pop("hub"))
            found.memory[what.notebook] = list(memory.values())
            print(f"{what.notebook}: all have run it.", flush=True)
        await meet.wait()
        if session:
            await hub.call(session, "DELETE")


async def lesson(learners: int, threads: int) -> Findings:
    found = Findings()
    async with hub(threads) as running:
        meet = asyncio.Barrier(learners)
        names = [f"learner{i + 1:02d}" for i in range(learners)]
        await asyncio.gather(*(learn(running, name, meet, found) for name in names))
    return found


# --- what it was like -------------------------------------------------------------------------


def spread(values: list[float], digits: int = 1) -> str:
    """Half of all learners waited no longer than the first, nineteen of twenty than the second."""
    if len(values) < 2:
        return "–"
    cuts = statistics.quantiles(values, n=20, method="inclusive")
    return f"{cuts[9]:.{digits}f} / {cuts[18]:.{digits}f}"


def report(found: Findings, learners: int, threads: int) -> None:
    print(f"\n{learners} learners, {threads} thread{'s' * (threads > 1)} each, p50 / p95\n")
    print(f"- sign in to a server that is ready: {spread(found.server)} s")
    asked = spread([1000 * s for s in found.moves], 0)
    print(f"- slider to picture, while the kernel is asked: {asked} ms ({len(found.moves)} moves)")
    print(f"- from the last cell until the browser has all states: {spread(found.states)} s")
    print(f"- moves that it then drew by itself: {found.near}")
    print(f"- memory of the hub and its proxy: {found.hub_memory / 2**20:.0f} MiB")
    print("\n| notebook | first picture, s | all cells, s | MiB a learner (PSS), median / most |")
    print("|---|---|---|---|")
    for name in (what.notebook for what in VISITS):
        memory = [pss / 2**20 for pss in found.memory[name]]
        size = f"{statistics.median(memory):.0f} / {max(memory):.0f}" if memory else "–"
        pictures, whole = spread(found.first_picture[name]), spread(found.whole[name])
        print(f"| {name[:2]} | {pictures} | {whole} | {size} |")
    print(f"\nFailures: {len(found.failures)} (what the hub said is in {LOG.relative_to(ROOT)})")
    for failure in found.failures:
        print(f"- {failure}")


def torch_default() -> int:
    code = "import torch; print(torch.get_num_threads())"
    alone = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    return int(subprocess.check_output([sys.executable, "-c", code], env=alone))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--learners", type=int, default=30)
    args = parser.parse_args()
    AsyncHTTPClient.configure(None, max_clients=10 * args.learners)
    print(f"{psutil.cpu_count()} CPUs, {psutil.virtual_memory().total / 2**30:.0f} GiB of memory")
    failures = 0
    for threads in sorted({1, torch_default()}):
        found = asyncio.run(lesson(args.learners, threads))
        report(found, args.learners, threads)
        failures += len(found.failures)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
