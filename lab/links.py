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
                    # One sample for each address that the link had.
                    held = found.setdefault(sample.labels["proxy"], {})
                    held[name] = held.get(name, 0) + int(sample.value)
        return found

    def add_toxic(
        self,
        name: str,
        label: str,
        kind: str,
        stream: str,
        attributes: dict[str, int],
        *,
        toxicity: float = 1.0,
    ) -> dict[str, Any]:
        """Put a toxic on one direction of a link, and read it back as toxiproxy has it.

        `toxicity`: the share of connections that it works on.
        """
        body: dict[str, Any] = {"name": label, "type": kind, "stream": stream}
        body |= {"attributes": attributes, "toxicity": toxicity}
        self._checked(f"/proxies/{name}/toxics", body)
        found = self._toxics(name).get(label)
        if found is None or any(
            found.get(key) != body[key] for key in ("type", "stream", "toxicity")
        ):
            raise LabError(f"asked for {body}, found {found}", where=name)
        if {key: found["attributes"].get(key) for key in attributes} != attributes:
            raise LabError(f"asked for {body}, found {found}", where=name)
        return found

    def set_toxicity(self, name: str, label: str, toxicity: float) -> float:
        """Change the share of connections that a toxic works on, open ones too; read back."""
        self._checked(f"/proxies/{name}/toxics/{label}", {"toxicity": toxicity})
        found = float(self._toxics(name)[label]["toxicity"])
        if found != toxicity:
            raise LabError(f"toxicity is {found}, not {toxicity}", where=name)
        return found

    def remove_toxic(self, name: str, label: str) -> list[str]:
        """Lift a toxic; the names of those that are left."""
        # toxiproxy waits until the toxic has passed on what it holds.
        answer = APIConsumer.delete(f"/proxies/{name}/toxics/{label}", timeout=30)
        left = sorted(self._toxics(name))
        if not answer.ok or label in left:
            raise LabError(f"toxiproxy did not lift {label}: {answer.text.strip()}", where=name)
        return left

    def enable(self, name: str, up: bool) -> bool:
        """Open a link's port, or close it and its connections; read back."""
        self._checked(f"/proxies/{name}", {"enabled": up})
        found = bool(APIConsumer.get(f"/proxies/{name}", timeout=10).json()["enabled"])
        if found != up:
            raise LabError(f"enabled is {found}, not {up}", where=name)
        return found

    def _toxics(self, name: str) -> dict[str, dict[str, Any]]:
        toxics = APIConsumer.get(f"/proxies/{name}/toxics", timeout=10).json()
        return {toxic["name"]: toxic for toxic in toxics}

    def _checked(self, url: str, body: dict[str, Any]) -> None:
        """POST, where anything but success is the lab's failure.

        `toxiproxy-python` raises for three status codes and passes over the others.
        """
        answer = APIConsumer.post(url, json=body, timeout=10)
        if not answer.ok:
            raise LabError(f"toxiproxy refused {body}: {answer.text.strip()}", where=url)
