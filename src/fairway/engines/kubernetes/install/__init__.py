"""What `fairway install kubernetes` applies: definitions, roles, processes. Pure data, one source for every way to install."""
