"""The JupyterLab of `make lab` and a headless Chromium, for tests and measurements.

Both listen on this machine only, live in a throw-away folder, and are ended by their process ids.
"""

import contextlib
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import nbformat

from mha_course.lab import command as lab

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
SWITCHES = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
]
# Asks the application itself, once the kernel is there: JupyterLab ignores an earlier command.
RUN_ALL = """async () => {
  const app = window.jupyterapp;
  await app.restored;
  while (!app.shell.currentWidget?.sessionContext) await new Promise(f => setTimeout(f, 100));
  const context = app.shell.currentWidget.sessionContext;
  await context.ready;
  while (!context.session?.kernel || context.kernelDisplayStatus !== 'idle')
    await new Promise(f => setTimeout(f, 100));
  await app.commands.execute('notebook:run-all-cells');
}"""
SWITCH = """async (path) => {
  window.jupyterapp.shell.currentWidget.dispose();
  await window.jupyterapp.commands.execute('docmanager:open', { path });
}"""
START = 600  # seconds that JupyterLab may take: a machine may be busy


def notebook(path: Path, cells: list[str]) -> Path:
    """Writes a notebook of code cells."""
    made = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in cells],
        metadata={
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
        },
    )
    nbformat.write(made, path)
    return path


class Lab:
    """A JupyterLab over `folder`; `open` shows a notebook of it in a new page."""

    def __init__(self, folder: Path, config: str = "") -> None:
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.token = secrets.token_hex(16)
        env = {k: v for k, v in lab.environment().items() if not k.lower().endswith("_proxy")}
        for name in ("CONFIG", "DATA", "RUNTIME"):
            env[f"JUPYTER_{name}_DIR"] = str(folder / name.lower())
        env["JUPYTERLAB_SETTINGS_DIR"] = str(folder / "settings")
        env["JUPYTERLAB_WORKSPACES_DIR"] = str(folder / "workspaces")
        env["IPYTHONDIR"] = str(folder / "ipython")
        env["JUPYTER_TOKEN"] = self.token
        env.setdefault("OMP_NUM_THREADS", "1")
        self.settings = folder / "settings/@jupyterlab/apputils-extension"
        self.settings.mkdir(parents=True)
        (self.settings / "notification.jupyterlab-settings").write_text(
            '{"fetchNews": "false", "checkForUpdates": false}'
        )
        options = lab.options(
            self.work / lab.MINE,
            [
                f"--ServerApp.port={self.port}",
                "--ServerApp.port_retries=0",
                f"--ServerApp.root_dir={self.work}",
                "--LabApp.extension_manager=readonly",
                "--LabApp.expose_app_in_browser=True",
                "--JupyterNotebookApp.expose_app_in_browser=True",
            ],
        )
        (folder / "config").mkdir()
        (folder / "config/jupyter_server_config.py").write_text(config)
        self.log = folder / "lab.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyterlab", *options, "--no-browser"],
                env=env,
                cwd=self.work,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._wait()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def _wait(self) -> None:
        end = time.monotonic() + START
        while True:
            try:
                status = f"{self.url}api/status?token={self.token}"
                urllib.request.urlopen(status, timeout=5).close()
                return
            except (urllib.error.URLError, OSError):
                if self.process.poll() is not None or time.monotonic() > end:
                    log = self.log.read_text()[-2000:]
                    raise RuntimeError(f"JupyterLab did not start: {log}") from None
                time.sleep(0.2)

    def dark(self, on: bool) -> None:
        """JupyterLab's theme for pages opened from now on."""
        theme = "JupyterLab Dark" if on else "JupyterLab Light"
        (self.settings / "themes.jupyterlab-settings").write_text(f'{{"theme": "{theme}"}}')

    def open(self, browser, name: str, *, run: bool = True, where: str = "lab/tree", **context):
        """The notebook `name` in a page of its own; with `run`, all its cells have been run.

        `where` is JupyterLab, or "notebooks": Notebook 7, which the same server shows.
        """
        viewport = context.pop("viewport", {"width": 1400, "height": 1100})
        page = browser.new_context(viewport=viewport, **context).new_page()
        page.set_default_timeout(1000 * START)
        page.goto(f"{self.url}{where}/{name}?token={self.token}&reset")
        page.wait_for_selector(".jp-Notebook .jp-Cell")
        if run:
            page.evaluate(RUN_ALL)
        return page

    def switch_to(self, page, name: str, *, run: bool = True) -> None:
        """Shows another notebook in JupyterLab's page, instead of the one there.

        A new page would take as long as all that a test does in it.
        """
        page.evaluate(SWITCH, name)
        page.wait_for_selector(".jp-Notebook .jp-Cell")
        if run:
            page.evaluate(RUN_ALL)

    def stop(self) -> None:
        """Ends the server, which ends its kernels."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(15)
        if self.process.poll() is None:
            self.process.kill()


@contextlib.contextmanager
def chromium() -> Iterator:
    """A headless browser that reaches nothing but this machine."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        try:
            yield browser
        finally:
            browser.close()
