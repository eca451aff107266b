accelerate launch --cpu accelerate_gang.py
