"""The formats of model files, their inputs and outputs, read without the frameworks that wrote them."""
