"""Where pure meets I/O, through the ports in `ports.py`. The one loop lives in `loop.py`."""
