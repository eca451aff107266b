"""What model files are and what they take and give, read without the frameworks that wrote them."""
