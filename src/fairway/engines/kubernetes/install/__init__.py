"""What `fairway install kubernetes` applies: definitions, roles, processes. Pure data, from one source for all ways to install."""
