"""Images: what a node or a proxy is started from, made only when needed."""

from lab.images.base import ensure_base
from lab.images.llama import ensure, why_rebuild
from lab.images.toxiproxy import ensure_toxiproxy
from lab.images.types import Image, ImageSpec

__all__ = ["Image", "ImageSpec", "ensure", "ensure_base", "ensure_toxiproxy", "why_rebuild"]
