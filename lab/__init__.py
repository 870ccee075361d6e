"""The llama.cpp RPC lab: run llama.cpp's distributed mode for real and judge what happens."""

__version__ = "0.1.0"
