python ddp_gang.py
