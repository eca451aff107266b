"""What comes out of tasks: what they print, and the numbers in it, in their reports and in event files."""
