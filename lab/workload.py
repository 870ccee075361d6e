"""The requests to the head: exact prompt lengths, greedy, with log-probabilities."""

from __future__ import annotations

import json
import random
import string
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx

from lab.scenario import Workload

TOP = 4
"""Candidates whose log-probabilities are asked for with each token."""

TIMINGS = ("prompt_n", "prompt_ms", "predicted_n", "predicted_ms")
"""Of llama-server's own count: the first token belongs to the prompt."""

Answer = dict[str, Any]
"""{"prompt_tokens": int, "tokens": [id], "logprobs": [nats], "top": [[[id, nats]]], "text": str,
"timings": {prompt_n, prompt_ms, predicted_n, predicted_ms} | None (the server's own),
"error": str | None}"""


def speed(answer: Answer) -> float | None:
    """Generated tokens per second, after the first."""
    timings = answer.get("timings")
    if not timings or not timings["predicted_ms"] or timings["predicted_n"] < 2:
        return None
    return float(1000 * (timings["predicted_n"] - 1) / timings["predicted_ms"])


def prompt(index: int, tokens: int) -> str:
    """The prompt of request `index`: `tokens` tokens for the lab's tokenizer.

    One character is one token, and the server adds one token for the beginning of the sequence.
    """
    choice = random.Random(f"prompt {index}")  # noqa: S311 - no secret, but repeatable
    return "".join(choice.choices(string.ascii_lowercase + " ", k=tokens - 1))


def payload(workload: Workload, index: int) -> dict[str, Any]:
    """The body of request `index` to `/completion`, in llama-server's own words."""
    return {
        "prompt": prompt(index, workload.prompt),
        "n_predict": workload.predict,
        "temperature": 0.0,
        "top_k": 1,
        "seed": 42,
        "n_probs": TOP,
        "ignore_eos": True,
        "cache_prompt": False,
        "stream": True,
    }


class Requests:
    """The requests of a workload under way."""

    def __init__(
        self, url: str, workload: Workload, event: Callable[..., None], *, progress: bool = False
    ) -> None:
        self._url, self._workload, self._event = url, workload, event
        self._progress = progress
        self._processed = [0] * workload.requests
        self._generated = [0] * workload.requests
        self._first = threading.Event()
        at_once = workload.requests if workload.together else 1
        self._pool = ThreadPoolExecutor(at_once)
        self._client = httpx.Client(
            timeout=None,  # noqa: S113 - the phases have budgets
            # A kept connection may be closed by the server at the moment it is used again.
            limits=httpx.Limits(max_keepalive_connections=0),
        )
        self._futures: list[Future[Answer]] = [
            self._pool.submit(self._send, index) for index in range(workload.requests)
        ]

    def done(self) -> bool:
        """Whether each request has ended, with an answer or an error."""
        return all(future.done() for future in self._futures)

    def wait(self, seconds: float) -> bool:
        """Wait for the end of all requests; whether they have ended."""
        pending = next((future for future in self._futures if not future.done()), None)
        if pending is not None:
            try:
                pending.result(timeout=seconds)
            except TimeoutError:
                return False
        return self.done()

    def answers(self) -> list[Answer]:
        """The answers of the requests that have ended."""
        return [future.result() for future in self._futures if future.done()]

    def tokens(self) -> int:
        """Generated so far, of all requests."""
        return sum(self._generated)

    def prompt_tokens(self) -> int:
        """Prompt tokens processed so far, of all requests; known only with `progress`."""
        return sum(self._processed)

    def abandon(self) -> None:
        """Stop waiting; requests under way end when their connection does."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def _send(self, index: int) -> Answer:
        self._event("request", index=index)
        answer: Answer = {
            "prompt_tokens": None,
            "tokens": [],
            "logprobs": [],
            "top": [],
            "text": "",
            "timings": None,
            "error": None,
        }
        body = payload(self._workload, index)
        if self._progress:
            body["return_progress"] = True
        finished = False
        try:
            with self._client.stream("POST", f"{self._url}/completion", json=body) as response:
                if response.status_code != httpx.codes.OK:
                    response.read()
                    answer["error"] = f"HTTP {response.status_code}: {response.text[:300]}"
                    return answer
                for line in response.iter_lines():
                    finished = self._take(line, index, answer) or finished
        except (httpx.HTTPError, RuntimeError) as error:
            answer["error"] = f"{type(error).__name__}: {error}"
        else:
            if not finished and not answer["error"]:
                answer["error"] = "the stream ended before the answer did"
        self._event("answer", index=index, tokens=len(answer["tokens"]), error=answer["error"])
        return answer

    def _take(self, line: str, index: int, answer: Answer) -> bool:
        """Add one line of the stream; whether it was the last of the answer."""
        kind, _, data = line.partition(":")
        if kind == "error":
            answer["error"] = data.strip()
        if kind != "data" or data.strip() == "[DONE]":
            return False
        chunk = json.loads(data)
        if "error" in chunk:
            answer["error"] = json.dumps(chunk["error"])
            return False
        if progress := chunk.get("prompt_progress"):
            self._processed[index] = progress["processed"]
        for token in chunk.get("completion_probabilities", []):
            answer["tokens"].append(token["id"])
            answer["logprobs"].append(token["logprob"])
            answer["top"].append([[near["id"], near["logprob"]] for near in token["top_logprobs"]])
            if not self._first.is_set():
                self._first.set()
                self._event("first-token")
        self._generated[index] = len(answer["tokens"])
        answer["text"] += chunk.get("content", "")
        if chunk.get("stop"):
            answer["prompt_tokens"] = chunk.get("tokens_evaluated")
            timings = chunk.get("timings", {})
            answer["timings"] = {key: timings.get(key) for key in TIMINGS} if timings else None
            return True
        return False
