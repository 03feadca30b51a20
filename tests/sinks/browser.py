"""A headless Chromium through chromedriver, by the W3C's WebDriver over HTTP on the loopback; for tests of pages."""

import base64
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import requests

TIMEOUT_S: Final = 120
CHROMIUM: Final = shutil.which("chromium")
DRIVER: Final = shutil.which("chromedriver")
OPTIONS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
KEYS: Final = {"Enter": "\ue007", "Escape": "\ue00c", "Tab": "\ue004", "Left": "\ue012", "Up": "\ue013",
               "Right": "\ue014", "Down": "\ue015"}  # fmt: skip
_ELEMENT: Final = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """One window."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._http = requests.Session()
        self._http.trust_env = False  # no proxy

    def do(self, method: str, path: str, **values: Any) -> Any:
        """Send a command; return its value."""
        body = None if method == "GET" else values
        reply = self._http.request(method, f"{self._session}{path}", json=body, timeout=TIMEOUT_S)
        value = reply.json()["value"]
        assert reply.ok, value
        return value

    def open(self, page: Path) -> None:
        """Open a file; it has run when this returns."""
        self.do("POST", "/url", url=page.as_uri())

    def run(self, script: str, *arguments: Any) -> Any:
        """Run the body of a function and return what it returns."""
        return self.do("POST", "/execute/sync", script=script, args=list(arguments))

    def wait(self, script: str) -> None:
        """Run the body of a function again and again, until it returns something true."""
        until = time.monotonic() + TIMEOUT_S
        while not self.run(script):
            assert time.monotonic() < until, script

    def find(self, xpath: str) -> str:
        """Return the first element; it must be there."""
        return str(self.do("POST", "/element", using="xpath", value=xpath)[_ELEMENT])

    def text(self, xpath: str) -> str:
        """Return the text that is shown of an element."""
        return str(self.do("GET", f"/element/{self.find(xpath)}/text"))

    def click(self, xpath: str) -> None:
        """Click with the mouse into the middle of an element."""
        self.do("POST", f"/element/{self.find(xpath)}/click")

    def hover(self, xpath: str) -> None:
        """Move the mouse there."""
        move = {"type": "pointerMove", "duration": 0, "x": 0, "y": 0, "origin": {_ELEMENT: self.find(xpath)}}
        self.do("POST", "/actions", actions=[{"type": "pointer", "id": "mouse", "actions": [move]}])

    def type(self, text: str) -> None:
        """Type into what has the focus; a name of `KEYS` is that key."""
        keys = [KEYS[text]] if text in KEYS else list(text)
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.do("POST", "/actions", actions=[{"type": "key", "id": "keyboard", "actions": actions}])

    def theme(self, name: str) -> None:
        """Take on light or dark, as the user's desktop would say."""
        media = {"features": [{"name": "prefers-color-scheme", "value": name}]}
        self.do("POST", "/goog/cdp/execute", cmd="Emulation.setEmulatedMedia", params=media)

    def picture(self, path: Path) -> bytes:
        """Write a PNG of the window; return its bytes."""
        data = base64.b64decode(self.do("GET", "/screenshot"))
        path.write_bytes(data)
        return data

    def log(self) -> list[str]:
        """Return what the page complained about since the last call."""
        return [entry["message"] for entry in self.do("POST", "/se/log", type="browser")]


@contextmanager
def browser(folder: Path, width: int = 1280, height: int = 800) -> Iterator[Browser]:
    """Start a browser whose profile is in `folder`, an empty one; end it."""
    assert DRIVER and CHROMIUM
    environ = {**os.environ, "HOME": str(folder)}
    command = [DRIVER, "--port=0"]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environ)
    try:
        assert driver.stdout
        found = next(filter(None, (re.search(r"successfully on port (\d+)", line) for line in driver.stdout)))
        url = f"http://127.0.0.1:{found[1]}/session"
        arguments = [*OPTIONS, f"--user-data-dir={folder / 'profile'}", f"--window-size={width},{height}"]
        wanted = {
            "goog:chromeOptions": {"binary": CHROMIUM, "args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        with requests.Session() as http:
            http.trust_env = False
            body = {"capabilities": {"alwaysMatch": wanted}}
            session = http.post(url, json=body, timeout=TIMEOUT_S).json()["value"]["sessionId"]
        window = Browser(f"{url}/{session}")
        try:
            yield window
        finally:
            window.do("DELETE", "")
    finally:
        driver.terminate()
        driver.communicate(timeout=TIMEOUT_S)
