"""Documents as text: read with positions, and written."""
