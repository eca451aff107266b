"""The command line interface. It starts in milliseconds: heavy modules are imported only by the verb that needs them."""
