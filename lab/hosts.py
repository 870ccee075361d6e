"""Real hardware is named, never pretended: labels of hosts that a case may need."""

LABELS: dict[str, str] = {
    "cuda": "an NVIDIA GPU",
    "rocm": "an AMD GPU with ROCm",
    "rdma": "an RDMA-capable network device",
    "arm64": "a 64-bit Arm processor",
}
"""What a label promises."""


def missing(needs: tuple[str, ...]) -> str | None:
    """Why no host can serve `needs`, or None where one can.

    The lab drives the local engine only, which promises none of the labels: its nodes sit on
    internal bridge networks, with no device passed through.
    """
    if not needs:
        return None
    wanted = ", ".join(f"{label} ({LABELS[label]})" for label in needs)
    return f"needs a host labelled {wanted}; there is none"
