"""What a cluster needs for so many events a second, by measured costs: ``python -m bench.scale``. Arithmetic only."""
