"""What goes through a link, measured where the head sits: a container on its network.

The worker's side of the link is an echo, the head's side a client that says how long each message
took to come back, in how many pieces, and how the connection ended.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import docker
from toxiproxy.api import APIConsumer

from lab.rpc import CAPABILITIES, HELLO
from lab.topology import LINK_PORT, Topology

ECHO_PORT = 6000

ECHO = """
use IO::Socket::INET;
$SIG{CHLD} = 'IGNORE';
my $server = IO::Socket::INET->new(LocalPort => %d, Listen => 9, ReuseAddr => 1) or die;
while (my $peer = $server->accept) {
    next if fork;
    while (sysread($peer, my $data, 65536)) {
        open(my $log, '>>', '/tmp/echoed'); print $log $data; close($log);
        exit if $data =~ /Q/;
        print $peer $data; $peer->flush;
    }
    exit;
}
"""

CLIENT = r"""
use IO::Socket::INET; use IO::Select; use Errno;
sub now { open(my $file, '<', '/proc/uptime'); return (split ' ', <$file>)[0]; }
my ($host, $port, $hex, $wanted, $times, $go) = @ARGV;
my ($end, $reads, $bytes, @seconds) = ('open', 0, 0);
$SIG{PIPE} = 'IGNORE'; $| = 1;
my $sock = IO::Socket::INET->new(PeerAddr => $host, PeerPort => $port, Timeout => 3);
if (!$sock) { $end = $!{ECONNREFUSED} ? 'refused' : "$!"; goto SAY; }
sub take {
    my ($want, $wait) = @_; my $got = 0;
    while ($got < $want) {
        if (!IO::Select->new($sock)->can_read($wait)) { $end = 'silent'; return $got; }
        my $n = sysread($sock, my $data, 65536);
        if (!defined $n) { $end = $!{ECONNRESET} ? 'rst' : "$!"; return $got; }
        if (!$n) { $end = 'fin'; return $got; }
        $got += $n; $reads++;
    }
    return $got;
}
if ($go) {
    print "connected\n";
    select(undef, undef, undef, 0.01) until -e $go;
    if (IO::Select->new($sock)->can_read(0.3)) { take(1, 0); goto SAY; }
}
for (1 .. $times) {
    my $from = now();
    if (!syswrite($sock, pack('H*', $hex))) { $end = $!{ECONNRESET} ? 'rst' : "$!"; last; }
    $bytes += take($wanted, 3);
    push @seconds, now() - $from;
    last if $end ne 'open';
}
SAY:
printf '{"end": "%s", "reads": %d, "bytes": %d, "seconds": [%s]}', $end, $reads, $bytes,
    join ', ', @seconds;
"""

HELLO_MESSAGE = bytes([HELLO]) + len(CAPABILITIES).to_bytes(8, "little") + CAPABILITIES


@dataclass(frozen=True)
class Went:
    """How it went."""

    end: str
    """`open`, `fin`, `rst`, `refused`, or `silent`: 3 seconds without a byte."""
    reads: int
    bytes: int
    seconds: list[float] = field(default_factory=list)
    """Of each message, there and back."""


class Head:
    """A container in the head's place."""

    def __init__(self, client: docker.DockerClient, topology: Topology, image: str) -> None:
        self._topology = topology
        of_head = client.api.inspect_container(topology.nodes["head"].container.id)
        self._container: Any = client.containers.run(
            image,
            ["sleep", "900"],
            network=next(iter(of_head["NetworkSettings"]["Networks"])),
            labels=topology.plan.labels,
            detach=True,
            init=True,
        )

    def __enter__(self) -> Head:
        return self

    def __exit__(self, *_: object) -> None:
        self._container.remove(force=True)

    def send(
        self,
        worker: int,
        message: bytes,
        *,
        wanted: int | None = None,
        times: int = 1,
        meanwhile: Callable[[], object] | None = None,
    ) -> Went:
        """Send a message `times` over one connection; `meanwhile`: once it is open, before all."""
        go = "/tmp/go" if meanwhile else ""  # noqa: S108 - inside the container
        size = len(message) if wanted is None else wanted
        where = [f"worker{worker}", str(LINK_PORT + worker)]
        command = ["perl", "-e", CLIENT, *where, message.hex(), str(size), str(times), go]
        if not meanwhile:
            return _went(self._container.exec_run(command).output)
        self._container.exec_run(["rm", "-f", go])
        output = self._container.exec_run(command, stream=True).output
        said = next(output)
        assert said == b"connected\n", said
        meanwhile()
        self._container.exec_run(["touch", go])
        return _went(b"".join(output))

    def hello(self, worker: int) -> Went:
        """llama.cpp's own first message."""
        return self.send(worker, HELLO_MESSAGE, wanted=8)


def echo_behind(topology: Topology, worker: int) -> None:
    """Put an echo behind a link, in the worker's own container."""
    name = f"worker{worker}"
    container = topology.nodes[name].container
    container.exec_run(["perl", "-e", ECHO % ECHO_PORT], detach=True)
    proxy = APIConsumer.get(f"/proxies/{name}").json()
    host = proxy["upstream"].rpartition(":")[0]
    body = {"listen": proxy["listen"], "upstream": f"{host}:{ECHO_PORT}", "enabled": True}
    APIConsumer.post(f"/proxies/{name}", json=body)


def _went(output: bytes) -> Went:
    text = output.decode()
    assert text.startswith("{"), text
    return Went(**json.loads(text))
