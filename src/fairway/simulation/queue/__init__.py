"""A recorded queue, played again under another policy or on other machines."""
