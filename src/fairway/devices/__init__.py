"""What accelerators this machine has, and who uses them. One probe a vendor."""
