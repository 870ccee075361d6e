#!/bin/sh
# Make the virtual environment $1 with the Python $2 and install the lab into it.
#
# Where Debian's venv module is missing and we are root, it is installed;
# RPCLAB_NO_INSTALL=1 forbids that.
set -eu

venv=$1
python=$2
cd "$(dirname "$0")/.."

say() { printf 'venv: %s\n' "$*" >&2; }

command -v "$python" >/dev/null || {
    say "no $python here: install Python 3.11 or newer, or set PYTHON"
    exit 1
}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    say "$("$python" --version) is too old: set PYTHON to a Python 3.11 or newer"
    exit 1
}
# Debian ships Python without it, and says so only halfway through.
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    package="$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
    if [ "$(id -u)" != 0 ] || [ "${RPCLAB_NO_INSTALL:-0}" = 1 ] || ! command -v apt-get >/dev/null
    then
        say "$python has no venv module: install $package"
        exit 1
    fi
    say "installing $package (RPCLAB_NO_INSTALL=1 forbids it)"
    apt-get update -qq >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null
fi
say "making $venv"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e '.[dev]' </dev/null
