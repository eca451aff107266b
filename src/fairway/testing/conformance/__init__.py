"""One suite for each port, which every implementation passes."""
