"""The version that a replica serves: its folder, loader and datatypes."""
