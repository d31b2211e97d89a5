"""A headless Chromium over its debugging pipe, with the standard library alone: open a file, ask the page, take a picture."""
from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")


def find() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page. Whatever it writes to the console as an error, throws, or asks of the network is in `problems`."""

    def __init__(self, program: str, timeout_s: float = 60.0) -> None:
        self.timeout_s, self.problems, self._waiting, self._next_id = timeout_s, [], b"", 0
        self._profile = tempfile.TemporaryDirectory(prefix="kvdiv-chromium-", ignore_cleanup_errors=True)
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
                 "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-dev-shm-usage",
                 f"--user-data-dir={self._profile.name}", "about:blank"]
        # Chromium reads commands from file 3 and answers on file 4.
        command = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
        self._process = subprocess.Popen(["bash", "-c", command, "bash", str(to_browser), str(from_browser), program, *flags],
                                         pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        target = next(t for t in self._call("Target.getTargets", {})["targetInfos"] if t["type"] == "page")
        self._session: str | None = self._call("Target.attachToTarget", {"targetId": target["targetId"], "flatten": True})["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    _session = None

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.terminate()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)
        self._profile.cleanup()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._call(method, params)

    def _call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._next_id += 1
        message: dict[str, Any] = {"id": self._next_id, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") != self._next_id:
                continue
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            return answer["result"]

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + self.timeout_s
        while b"\0" not in self._waiting:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                raise TimeoutError(f"Chromium has not answered for {self.timeout_s:.0f} s")
            piece = os.read(self._read, 1 << 20)
            if not piece:
                raise RuntimeError("Chromium has ended")
            self._waiting += piece
        line, self._waiting = self._waiting.split(b"\0", 1)
        message = json.loads(line)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append("exception: " + details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.problems.append("console: " + " ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append("log: " + params["entry"]["text"])
        elif method == "Network.requestWillBeSent" and not params["request"]["url"].startswith(("file:", "data:", "about:")):
            self.problems.append("network: " + params["request"]["url"])

    def set_view(self, width: int, height: int = 900, dark: bool = False, media: str = "", scale: float = 1.0) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False)
        self.call("Emulation.setEmulatedMedia", media=media,
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def on_new_page(self, script: str) -> None:
        self.call("Page.addScriptToEvaluateOnNewDocument", source=script)

    def open(self, file: Path) -> None:
        self.call("Page.navigate", url=file.resolve().as_uri())
        self.wait_for("document.readyState === 'complete'")
        self.settle()

    def settle(self) -> None:
        """Until what was laid out is drawn."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def wait_for(self, condition: str) -> None:
        end = time.monotonic() + self.timeout_s
        while not self.evaluate(condition):
            if time.monotonic() > end:
                raise TimeoutError(condition)
            time.sleep(0.02)

    def evaluate(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def picture(self, clip: dict[str, float] | None = None) -> bytes:
        params: dict[str, Any] = {"format": "png", "captureBeyondViewport": True}
        if clip:
            params["clip"] = {**clip, "scale": 1}
        return base64.b64decode(self.call("Page.captureScreenshot", **params)["data"])
