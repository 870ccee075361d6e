"""What a link costs: bytes and round trips of each token, and what a network allows at best.

runs of short and long work, over two latencies -> measured cost of each link
    -> tokens per second that latency and bandwidth allow -> held against runs at others
"""
