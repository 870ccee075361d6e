"""Links: toxiproxy proxies, the only path between nodes.

`toxiproxy-python` keeps its server address in class state, so one process drives one topology at
a time.
"""

from __future__ import annotations

import time
from typing import Any

import requests
from prometheus_client.parser import text_string_to_metric_families
from toxiproxy import Toxiproxy
from toxiproxy.api import APIConsumer

from lab.errors import LabError

CONTROL_PORT = 8474
SENT = "toxiproxy_proxy_sent_bytes_total"
DIRECTIONS = {"upstream": "up", "downstream": "down"}


class Links:
    """The proxies of one topology's toxiproxy, driven over its published control port."""

    def __init__(self, host: str, port: int) -> None:
        self._server = Toxiproxy()
        self._server.update_api_consumer(host, port)

    def wait_up(self, seconds: float) -> None:
        """Wait until the control API answers. Raises `LabError` after `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                APIConsumer.get("/version", timeout=2)
            except requests.RequestException as error:
                if time.monotonic() > deadline:
                    raise LabError(f"toxiproxy does not answer: {error}") from None
                time.sleep(0.01)
            else:
                return

    def create(self, name: str, listen: str, upstream: str) -> None:
        """A new proxy; `listen` and `upstream` are `host:port`."""
        self._checked(
            "/proxies", {"name": name, "listen": listen, "upstream": upstream, "enabled": True}
        )

    def move(self, name: str, listen: str) -> None:
        """Let an existing proxy listen elsewhere; open connections end."""
        proxy = APIConsumer.get(f"/proxies/{name}").json()
        self._checked(
            f"/proxies/{name}", {"listen": listen, "upstream": proxy["upstream"], "enabled": True}
        )

    def add_latency(self, name: str, latency_ms: int) -> None:
        """Delay both directions by `latency_ms` each, and read it back."""
        for stream in ("upstream", "downstream"):
            self._checked(
                f"/proxies/{name}/toxics",
                {
                    "name": f"latency_{stream}",
                    "type": "latency",
                    "stream": stream,
                    "attributes": {"latency": latency_ms},
                },
            )
        toxics = self._server.get_proxy(name).toxics().values()
        found = sorted((toxic.stream, toxic.attributes["latency"]) for toxic in toxics)
        if found != [("downstream", latency_ms), ("upstream", latency_ms)]:
            raise LabError(f"asked for {latency_ms} ms each way, found {found}", where=name)

    def traffic(self) -> dict[str, dict[str, int]]:
        """Bytes over each link: `{"worker1": {"up": to the worker, "down": from it}}`.

        toxiproxy counts a connection's bytes when it ends: ask after the head has.
        """
        text = APIConsumer.get("/metrics", timeout=10).text
        found: dict[str, dict[str, int]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == SENT:
                    name = DIRECTIONS[sample.labels["direction"]]
                    found.setdefault(sample.labels["proxy"], {})[name] = int(sample.value)
        return found

    def _checked(self, url: str, body: dict[str, Any]) -> None:
        """POST, where anything but success is the lab's failure.

        `toxiproxy-python` raises for three status codes and passes over the others.
        """
        answer = APIConsumer.post(url, json=body, timeout=10)
        if not answer.ok:
            raise LabError(f"toxiproxy refused {body}: {answer.text.strip()}", where=url)
