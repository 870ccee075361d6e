#!/bin/sh
# Make sure that a container engine answers.
#
# Exits 0 where one does, or one was installed and started; 3 where none can be had. As root on
# Debian and Ubuntu it installs Debian's docker.io; RPCLAB_NO_INSTALL=1 forbids that.
set -u

say() { printf 'engine: %s\n' "$*" >&2; }
fail() {
    say "$*"
    say "exit code 3: no container engine (make shows it as Error 3 and itself exits 2)"
    exit 3
}

# Any docker CLI will do to ask; without one the answer is no.
answers() { docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

wait_for_it() {
    for _ in $(seq 60); do
        answers && return 0
        sleep 0.5
    done
    return 1
}

answers && exit 0

[ -z "${DOCKER_HOST:-}" ] || fail "DOCKER_HOST is $DOCKER_HOST, and nothing answers there"
socket=/var/run/docker.sock
[ -S $socket ] && [ ! -w $socket ] &&
    fail "this user may not use $socket: 'sudo usermod -aG docker $(id -un)', then log in again"
[ "${RPCLAB_NO_INSTALL:-0}" = 1 ] &&
    fail "none answers, and RPCLAB_NO_INSTALL=1 forbids installing one: install docker and start it"
[ "$(id -u)" = 0 ] ||
    fail "none answers, and only root can install one: run 'sudo make engine', or start docker"

. /etc/os-release 2>/dev/null || fail "none answers, and this system is unknown: install docker"
case " ${ID:-} ${ID_LIKE:-} " in
    *" debian "* | *" ubuntu "*) ;;
    *) fail "none answers: install docker (this installs it on Debian and Ubuntu only)" ;;
esac

export DEBIAN_FRONTEND=noninteractive
if ! command -v dockerd >/dev/null || ! command -v iptables >/dev/null; then
    say "none answers: installing docker.io and what it needs (RPCLAB_NO_INSTALL=1 forbids it)"
    apt-get update -qq >/dev/null || fail "apt-get update failed"
    # Newer releases have the CLI and BuildKit's part of it in packages of their own; mmdebstrap
    # and its keys make the base image where no hub answers.
    packages="docker.io iptables mmdebstrap debian-archive-keyring"
    for package in docker-cli docker-buildx; do
        apt-cache show "$package" >/dev/null 2>&1 && packages="$packages $package"
    done
    # shellcheck disable=SC2086  # a list
    apt-get install -y -qq --no-install-recommends $packages >/dev/null || fail "apt-get install failed"
    answers && exit 0
fi

if [ -d /run/systemd/system ]; then
    say "starting the docker service"
    systemctl start docker >&2 || fail "systemctl start docker failed: see 'journalctl -u docker'"
else
    log=/var/log/dockerd.log
    say "starting dockerd, detached (systemd does not run here); its log is $log"
    # A daemon that was killed leaves its pid file, and a new one refuses to start.
    pid=$(cat /var/run/docker.pid 2>/dev/null) && ! kill -0 "$pid" 2>/dev/null &&
        rm -f /var/run/docker.pid
    setsid dockerd </dev/null >>"$log" 2>&1 &
fi
wait_for_it || fail "installed and started, but it does not answer: see its log"
say "$(docker version --format 'docker {{.Server.Version}}') answers"
